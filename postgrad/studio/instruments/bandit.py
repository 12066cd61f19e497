"""Instrument 22, a bandit to play against: levers that pay what recorded answers were paid, and a machine
that explores by chance and else takes the best lever so far."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from postgrad.studio.instruments.base import ChoiceControl, Instrument
from postgrad.studio.json_types import JsonDict
from postgrad.studio.recordings import recording

LEVERS = "ABCD"
SHARES = (0.1, 0.3, 0.45, 0.75)  # the lever of each is the problem whose share of right answers is nearest
ORDER = (2, 0, 3, 1)             # where they stand
MOST = 30                        # pulls of a game


@dataclass(frozen=True)
class State:
    explores: int = 10  # percent of the machine's pulls
    mine: str = ""


CONTROLS = (ChoiceControl("explores", "The machine explores in",
                          ((0, "0 %"), (10, "10 %"), (30, "30 %"), (100, "100 %"))),)


@cache
def recorded_levers() -> list[list[int]]:
    """Of each lever what its pulls pay, in the order in which the answers were drawn: 1 for a right one."""
    rows = [row["right"] for row in recording("choosing")["rows"]]
    near = [min(rows, key=lambda row: abs(sum(row) / len(row) - share)) for share in SHARES]
    return [[int(x) for x in near[i]] for i in ORDER]


@cache
def machine_draws() -> list[list[float]]:
    """Two uniform numbers for each pull of the machine: whether it explores, and where."""
    import torch

    from postgrad.maths.noise import uniform

    seeds = torch.tensor([7, 8])
    return [[round(x, 6) for x in uniform(seeds, torch.full((2,), t)).tolist()] for t in range(MOST)]


def best_lever(pulls: list[int], paid: list[int]) -> int:
    """The lever with the best mean so far; one never pulled counts as a half; of equals the first."""
    means = [paid[i] / pulls[i] if pulls[i] else 0.5 for i in range(len(pulls))]
    return means.index(max(means))


def play(choices: str, explores: int, count: int) -> JsonDict:
    """A game of so many pulls: by `choices`, or by the machine where there are none."""
    levers, draws = recorded_levers(), machine_draws()
    pulls, paid = [0, 0, 0, 0], [0, 0, 0, 0]
    path, log = [[0, 0]], []
    for t in range(count):
        if choices:
            at = LEVERS.index(choices[t])
        elif 100 * draws[t][0] < explores:
            at = int(draws[t][1] * len(levers))
        else:
            at = best_lever(pulls, paid)
        gain = levers[at][pulls[at] % len(levers[at])]
        pulls[at] = pulls[at] + 1
        paid[at] = paid[at] + gain
        path.append([t + 1, sum(paid)])
        log.append([LEVERS[at], gain])
    means = [paid[i] / pulls[i] if pulls[i] else None for i in range(len(levers))]
    return {"pulls": pulls, "means": means, "paid": sum(paid), "path": path, "log": log}


def compute(state: State) -> JsonDict:
    levers = recorded_levers()
    mine = state.mine[:MOST]
    count = len(mine)
    shares = [sum(lever) / len(lever) for lever in levers]
    return {
        "mine": mine, "count": count, "most": MOST, "explores": state.explores, "letters": list(LEVERS),
        "you": play(mine, 0, count), "machine": play("", state.explores, count), "shares": shares,
        "over": count == MOST, "best": max(shares), "bound": max(shares) * count,
        "recorded": len(levers[0]), "best_letter": LEVERS[shares.index(max(shares))],
    }


def settle(state: State) -> State:
    """Pulls of levers that there are, and no more than a game has."""
    return State(explores=state.explores, mine="".join([x for x in state.mine if x in LEVERS])[:MOST])


def insight(numbers: JsonDict) -> str:
    you, machine, count = numbers["you"]["paid"], numbers["machine"]["paid"], numbers["count"]
    if not count:
        return (f"Four levers, {numbers['most']} pulls, and nothing is known yet. Pull one: the machine "
                "pulls whenever you do, on a bandit of the same answers.")
    gap = you - machine
    ahead = (f"you are ahead by {gap}" if gap > 0 else f"the machine is ahead by {-gap}" if gap < 0
             else "you are level")
    said = f"After {count} pull{'' if count == 1 else 's'} you have {you}, the machine {machine}: {ahead}."
    if not numbers["over"]:
        tried = sum([1 for n in numbers["you"]["pulls"] if n])
        return f"{said} You have tried {tried} of the four levers."
    return (f"{said} Lever {numbers['best_letter']} pays {100 * numbers['best']:.0f} % of its pulls: with it "
            f"alone you would expect {numbers['bound']:.1f}.")


INSTRUMENT = Instrument(
    name="bandit", number=22, title="Explore or exploit: who earns more, you or the machine?",
    functions=("postgrad.maths.noise.uniform", "postgrad.studio.instruments.bandit.best_lever"),
    state=State, controls=CONTROLS, compute=compute, insight=insight, settle=settle,
    about="Four levers that pay what recorded answers were paid. Pull them, against a machine that does.",
)

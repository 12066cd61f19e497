"""Instrument 9, test-time compute: recorded samples of one model, and who chooses among them.

The curves are exact means over every way to draw so many of the samples.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache

from postgrad.studio.instruments.base import ChoiceControl, Instrument, Slider
from postgrad.studio.json_types import JsonDict, Values
from postgrad.studio.recordings import recording

SHARE = (0.0, 1.0)
SPENT = 32  # samples of a problem that were recorded
CHOOSERS = {"verifier": "verifier", "judge": "reward model", "vote": "majority"}
KINDS = {"all": "all", "often": "often right", "seldom": "seldom right"}
FALL = 0.01  # a fall from the best number of samples that is worth a word


@dataclass(frozen=True)
class State:
    spent: int = 8
    chooser: str = "judge"
    kind: str = "all"


CONTROLS = (
    Slider("spent", "Samples spent on a problem", 1, SPENT, 1),
    ChoiceControl("chooser", "Who chooses", tuple(CHOOSERS.items())),
    ChoiceControl("kind", "Problems, by their samples", tuple(KINDS.items())),
)


@cache
def solved_by_chooser() -> dict[str, list[list[float]]]:
    """solved()[chooser][i][n - 1]: the chance that the chooser's one of n samples of problem i is right."""
    from postgrad.maths.passk import best_of_n, majority_at_k, pass_at_k

    sizes, rows = range(1, SPENT + 1), recording("choosing")["rows"]
    return {
        "verifier": [[pass_at_k(SPENT, sum(row["right"]), n) for n in sizes] for row in rows],
        "judge": [[best_of_n(row["scores"], row["right"], n) for n in sizes] for row in rows],
        "vote": [majority_at_k([None if a < 0 else a for a in row["answers"]], row["right"], list(sizes))
                 for row in rows],
    }


@cache
def problems_of_kind(kind: str) -> list[int]:
    """The problems of a kind: right in at least a quarter of the samples, in fewer, or all."""
    shares = [sum(row["right"]) / SPENT for row in recording("choosing")["rows"]]
    return [i for i, share in enumerate(shares) if kind == "all" or (share >= 0.25) == (kind == "often")]


@cache
def solved_curve(chooser: str, kind: str) -> list[float]:
    rows = [solved_by_chooser()[chooser][i] for i in problems_of_kind(kind)]
    return [math.fsum(row[n] for row in rows) / len(rows) for n in range(SPENT)]


def compute(state: State) -> JsonDict:
    from postgrad.maths.intervals import mean_interval

    data, at = recording("choosing"), state.spent - 1
    curves = {chooser: solved_curve(chooser, state.kind) for chooser in CHOOSERS}
    mine = curves[state.chooser]
    best = max(range(SPENT), key=lambda n: (mine[n], -n))
    values = [solved_by_chooser()[state.chooser][i][at] for i in problems_of_kind(state.kind)]
    return {
        "spent": state.spent, "chooser": state.chooser, "name": CHOOSERS[state.chooser], "kind": state.kind,
        "curves": {name: [(math.log2(n), y) for n, y in enumerate(ys, start=1)]
                   for name, ys in curves.items()},
        "here": {name: ys[at] for name, ys in curves.items()}, "one": curves["verifier"][0],
        "interval": mean_interval(values, SHARE), "best": best + 1, "best_share": mine[best],
        "last_share": mine[-1], "at": math.log2(state.spent), "problems": len(problems_of_kind(state.kind)),
        "samples": SPENT, "tokens": state.spent * data["length"], "model": data["model"],
        "judge": data["judge"], "labels": curve_labels(curves),
    }


def curve_labels(curves: dict[str, list[float]]) -> list[Values]:
    """(chooser, colour, name, height) for the ends of the curves, kept apart from each other."""
    kinds = {"verifier": "up", "judge": "reward", "vote": "policy"}
    placed: list[tuple[str, str, str, float]] = []
    for name in sorted(CHOOSERS, key=lambda name: -curves[name][-1]):
        height = min([curves[name][-1], *(y - 0.1 for *_, y in placed)])
        placed.append((name, kinds[name], CHOOSERS[name], height))
    return placed


def insight(numbers: JsonDict) -> str:
    here, name = numbers["here"], numbers["name"]
    if numbers["spent"] == 1:
        return (f"One sample leaves nothing to choose: {percent_of(numbers['one'])} of the problems are "
                "solved.")
    first = (f"With {numbers['spent']} samples the {name} solves {percent_of(here[numbers['chooser']])}, one "
             f"sample {percent_of(numbers['one'])}")
    if numbers["chooser"] == "verifier":
        return f"{first}: a verifier that knows a right answer when it is there sets the ceiling."
    lost = here["verifier"] - here[numbers["chooser"]]
    missed = (f"a right one was there in {percent_of(lost)} more" if lost >= 5e-4
              else "it misses none that was there")
    if numbers["best"] < numbers["samples"] and numbers["best_share"] - numbers["last_share"] >= FALL:
        return (f"{first}; {missed}. It is best with {numbers['best']}, {percent_of(numbers['best_share'])}, "
                f"and with {numbers['samples']} down to {percent_of(numbers['last_share'])}.")
    return f"{first}; {missed}."


def percent_of(share: float) -> str:
    return f"{100 * share:.1f} %"


INSTRUMENT = Instrument(
    name="test-time", number=9, title="More samples help a judge that can choose",
    functions=("postgrad.maths.passk.majority_at_k", "postgrad.maths.passk.best_of_n",
               "postgrad.maths.passk.pass_at_k"),
    state=State, controls=CONTROLS, compute=compute, insight=insight,
    about="A verifier, a reward model and a majority vote choose among recorded samples, from one to 32.",
)

"""Instrument 19, credit over turns: a recorded group of episodes, and what each turn is given by the score
of its episode, by its turn in the group, or by values that were measured in each state."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from postgrad.studio.instruments.base import ChoiceControl, Instrument, Slider
from postgrad.studio.json_types import JsonDict
from postgrad.studio.pages import MINUS
from postgrad.studio.recordings import recording

if TYPE_CHECKING:
    from torch import Tensor

EPISODES = 8
METHODS = {"episode": "episode", "turn": "turn", "values": "values"}
FLAT = 5e-4  # a difference that is shown as none


@dataclass(frozen=True)
class State:
    method: str = "values"
    episode: int = 1
    lam: float = 0.5


CONTROLS = (
    ChoiceControl("method", "Compared by", tuple(METHODS.items())),
    Slider("episode", "Episode of the group", 1, EPISODES, 1),
    Slider("lam", "λ, where values are used", 0, 1, 0.1),
)


def group_columns() -> tuple[Tensor, Tensor, Tensor]:
    """Reward, mask and value of the group, [episodes, columns]: a column for each reply, and one for each
    answer between two."""
    import torch

    rows = recording("episodes")["rows"]
    width = max(2 * len(row["turns"]) - 1 for row in rows)
    reward, value = (torch.zeros(len(rows), width, dtype=torch.float64) for _ in range(2))
    mask = torch.zeros(len(rows), width, dtype=torch.bool)
    for i, row in enumerate(rows):
        for k in range(len(row["turns"])):
            reward[i, 2 * k], value[i, 2 * k], mask[i, 2 * k] = row["rewards"][k], row["values"][k], True
    return reward, mask, value


def compute(state: State) -> JsonDict:
    from postgrad.maths.credit import gae, group_zscore, turn_zscore

    kept = recording("episodes")
    row = kept["rows"][state.episode - 1]
    reward, mask, value = group_columns()
    group = len(kept["rows"])
    adv = (group_zscore(reward, mask, group) if state.method == "episode"
           else turn_zscore(reward, mask, group) if state.method == "turn"
           else gae(reward, mask, group, value=value, lam=state.lam))
    given = [[round(x, 6) + 0.0 for x in line[::2]] for line in adv.tolist()]
    scores = [one["score"] for one in kept["rows"]]
    turns = [{"said": turn["said"], "answered": turn["answered"] or row["reason"],
              "reward": row["rewards"][k], "value": row["values"][k], "credit": given[state.episode - 1][k],
              "change": ([*row["values"], 0.0][k + 1] + row["rewards"][k] - row["values"][k])}
             for k, turn in enumerate(row["turns"])]
    return {
        "method": state.method, "episode": state.episode, "lam": state.lam, "question": kept["question"],
        "turns": turns, "score": row["score"], "reason": row["reason"], "scores": scores,
        "mean": sum(scores) / group, "group": group, "command": kept["command"],
        "continued": kept["continued"], "reach": max(0.1, *(abs(x) for line in given for x in line)),
        "path": [[k, v] for k, v in enumerate(row["values"])],
    }


def insight(numbers: JsonDict) -> str:
    turns, score = numbers["turns"], f"Episode {numbers['episode']} scores {numbers['score']:.1f}"
    credits = [turn["credit"] for turn in turns]
    if max(credits) - min(credits) < FLAT:
        if numbers["method"] == "episode":
            return (f"{score}, and the mean of its group is {numbers['mean']:.2f}. Each of its {len(turns)} "
                    f"turns is given {credit_text(credits[0])}, whatever was said in it.")
        return f"{score}. Each of its {len(turns)} turns is given {credit_text(credits[0])}."
    best, worst = max(turns, key=lambda turn: turn["credit"]), min(turns, key=lambda turn: turn["credit"])
    return (f"{score}. Turn {turns.index(best) + 1}, “{best['said']}”, is given the most, "
            f"{credit_text(best['credit'])}, and turn {turns.index(worst) + 1}, “{worst['said']}”, "
            f"the least, {credit_text(worst['credit'])}.")


def credit_text(value: float) -> str:
    return f"{value:+.2f}".replace("-", MINUS)


INSTRUMENT = Instrument(
    name="turn-credit", number=19, title="One score for an episode blames its good turns too",
    functions=("postgrad.maths.credit.group_zscore", "postgrad.maths.credit.turn_zscore",
               "postgrad.maths.credit.gae"),
    state=State, controls=CONTROLS, compute=compute, insight=insight,
    about="Eight recorded games of several turns, and what each turn is given by three ways to compare.",
)

"""Instrument 12, GAE: what lambda trades, on replies of eight choices that can be enumerated.

Each choice is good or bad with even chances, and a reply with at least five good ones is paid 1. So the true
value of every prefix is known, the true advantage of every choice too, and the error of what an estimate does
to a choice divides exactly into what is wrong on average (bias) and what is chance (noise).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import TYPE_CHECKING

from postgrad.studio.instruments.base import ChoiceControl, Instrument, Slider
from postgrad.studio.json_types import JsonDict, Values
from postgrad.studio.pages import num

if TYPE_CHECKING:
    from torch import Tensor

LENGTH, NEEDED = 8, 5
GRID = tuple(i / 20 for i in range(21))  # the lambdas of the curve
PATHS = {"early": "good first, then bad", "late": "bad first, then good", "close": "decided by the last"}
CHOICES = {"early": (1, 1, 1, 1, 1, 0, 0, 0), "late": (0, 0, 0, 1, 1, 1, 1, 1),
           "close": (1, 0, 1, 0, 1, 0, 1, 0)}
SMALLEST = 5e-4  # anything below is printed as 0.000


@dataclass(frozen=True)
class State:
    lam: float = 0.95
    wrong: float = 0.5
    samples: int = 64
    path: str = "late"


CONTROLS = (
    Slider("lam", "λ: how far beyond the critic", 0, 1, 0.05),
    Slider("wrong", "How wrong the critic is", 0, 1, 0.05),
    ChoiceControl("samples", "Replies in a mean", (1, 4, 16, 64, 256, 1024)),
    ChoiceControl("path", "The reply that is shown", tuple(PATHS.items())),
)


@cache
def true_values() -> list[list[float]]:
    """values()[t][s]: the chance to be paid after t choices of which s were good."""
    rows = [[float(s >= NEEDED) for s in range(LENGTH + 1)]]
    for _ in range(LENGTH):
        rows.append([(a + b) / 2 for a, b in zip(rows[-1], rows[-1][1:] + [rows[-1][-1]], strict=True)])
    return rows[::-1]


@cache
def all_replies() -> JsonDict:
    """All 256 replies: their choices, the true values before each and the true advantages, the rewards, and
    which replies have as many good choices before each, with how many these are."""
    import torch

    choices = torch.tensor([[i >> (LENGTH - 1 - t) & 1 for t in range(LENGTH)] for i in range(2**LENGTH)])
    after = choices.cumsum(1)
    before = after - choices
    table = torch.tensor(true_values(), dtype=torch.float64)  # [T + 1, s]
    steps = torch.arange(LENGTH)
    value, then = table[steps, before], table[steps + 1, after]
    reward = torch.zeros_like(value)
    reward[:, -1] = then[:, -1]
    member = torch.nn.functional.one_hot(before.T, LENGTH).double()  # [T, 256, good ones before]
    return {"choices": choices, "sign": 2.0 * choices - 1, "value": value, "true": then - value,
            "reward": reward, "member": member, "size": member.sum(1).clamp(min=1)[:, :, None]}


def push_errors(lam: float, wrong: float) -> Values:
    """(advantages [256, T], bias [T], noise [T]) of the push A * (1 for good, -1 for bad), which is what an
    advantage does to the logit of a choice: a number that is added to both cancels. Root mean squares."""
    import torch

    from postgrad.maths.credit import gae

    known = all_replies()
    found = gae(known["reward"], torch.ones_like(known["reward"], dtype=torch.bool), 1,
                value=wrong_critic(wrong),
                gamma=1.0, lam=lam)
    push, exact, member = found * known["sign"], known["true"] * known["sign"], known["member"]
    means = member.transpose(1, 2) @ push.T[:, :, None] / known["size"]
    expected = (member @ means)[:, :, 0].T
    bias, noise = (x.square().mean(0).sqrt().tolist() for x in (expected - exact, push - expected))
    return found, bias, noise


def wrong_critic(wrong: float) -> Tensor:
    """The true values, moved by a share towards that of the empty reply: at 1 it says the same everywhere."""
    value: Tensor = all_replies()["value"]
    return (1 - wrong) * value + wrong * value[0, 0]


def total_error(bias: list[float], noise: list[float], samples: int) -> dict[str, float]:
    """Over all choices of a reply; the mean of several replies has as much bias, and less noise."""
    apart = [math.sqrt(math.fsum(x * x for x in part) / LENGTH) for part in (bias, noise)]
    found = {"bias": apart[0], "noise": apart[1] / math.sqrt(samples)}
    return found | {"error": math.hypot(found["bias"], found["noise"])}


@lru_cache(maxsize=256)
def lambda_curve(wrong: float, samples: int) -> list[JsonDict]:
    rows = ((lam, push_errors(lam, wrong)) for lam in GRID)
    return [{"lam": lam, **total_error(bias, noise, samples)} for lam, (_, bias, noise) in rows]


def compute(state: State) -> JsonDict:
    found, bias, noise = push_errors(state.lam, state.wrong)
    known, rows = all_replies(), lambda_curve(state.wrong, state.samples)
    shown = int("".join(map(str, CHOICES[state.path])), 2)
    return {
        "lam": state.lam, "wrong": state.wrong, "samples": state.samples,
        **total_error(bias, noise, state.samples),
        "best": min(rows, key=lambda row: row["error"]), "curve": rows,
        "along": {"bias": bias, "noise": [x / math.sqrt(state.samples) for x in noise]},
        "choices": known["choices"][shown].tolist(), "advantages": (0 + found[shown]).tolist(),
        "true": known["true"][shown].tolist(), "values": known["value"][shown].tolist(),
        "critic": wrong_critic(state.wrong)[shown].tolist(), "paid": sum(CHOICES[state.path]) >= NEEDED,
        "weights": [state.lam**k for k in range(LENGTH)],
    }


def insight(numbers: JsonDict) -> str:
    bias, noise, best = numbers["bias"], numbers["noise"], numbers["best"]
    wrong = f"wrong by {num(bias)} on average" if bias >= SMALLEST else "right on average"
    chance = f"off by {num(noise)} by chance" if noise >= SMALLEST else "free of chance"
    of = "one reply" if numbers["samples"] == 1 else f"{numbers['samples']} replies"
    first = f"With λ = {num(numbers['lam'], 2)} and {of} the push on a choice is {wrong} and {chance}"
    if numbers["error"] - best["error"] < SMALLEST:
        return f"{first}: {num(numbers['error'])} together, and no other λ is better by as much as 0.001."
    side = "less" if best["lam"] < numbers["lam"] else "more"
    return (f"{first}: {num(numbers['error'])} together. Here {side} would be better, λ = "
            f"{num(best['lam'], 2)}: {num(best['error'])}.")


INSTRUMENT = Instrument(
    name="gae", number=12, title="λ trades the critic’s mistakes for noise",
    functions=("postgrad.maths.credit.gae",),
    state=State, controls=CONTROLS, compute=compute, insight=insight,
    about="Advantages along a reply, how wrong they are on average and by chance, for a critic as good as "
          "you make it.",
)

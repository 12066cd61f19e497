"""Instrument 10, pass@k of a base and of what RL made of it: recorded counts of right samples, problem by
problem."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache

from postgrad.studio.instruments.base import ChoiceControl, Instrument, Slider
from postgrad.studio.json_types import JsonDict, Values
from postgrad.studio.pages import MINUS
from postgrad.studio.recordings import recording

SHARE = (0.0, 1.0)
TITLES = {"words": "word problems", "words-es": "the same in Spanish", "countdown": "countdown",
          "chat": "word problems, after SFT"}


@dataclass(frozen=True)
class State:
    task: str = "words"
    k: int = 1


@cache
def right_counts() -> dict[str, JsonDict]:
    """Right samples of each problem before and after RL, and of how many."""
    tries, pipeline = recording("tries"), recording("pipeline")
    found = {name: {"base": counts["base"], "rl": counts["rl"], "samples": tries["samples"],
                    "model": tries["base"], "command": tries["command"]}
             for name, counts in tries["tasks"].items()}
    stages = {stage["name"]: stage for stage in pipeline["stages"]}
    before, after = (stages[name]["measured"]["words"] for name in ("sft", "rl"))
    return found | {"chat": {"base": before["right"], "rl": after["right"], "samples": before["samples"],
                             "model": "tiny-chat", "command": stages["rl"]["made_by"]}}


def settle(state: State) -> State:
    return replace(state, k=min(state.k, right_counts()[state.task]["samples"]))


def controls(state: State) -> Values:
    return (
        Slider("k", "Tries, k", 1, right_counts()[state.task]["samples"], 1),
        ChoiceControl("task", "Problems", tuple(TITLES.items())),
    )


@cache
def pass_chances(task: str, who: str) -> list[list[float]]:
    """passes(...)[k - 1][i]: the chance that k tries solve problem i."""
    from postgrad.maths.passk import pass_at_k

    data = right_counts()[task]
    return [[pass_at_k(data["samples"], c, k) for c in data[who]] for k in range(1, data["samples"] + 1)]


def compute(state: State) -> JsonDict:
    from postgrad.maths.intervals import gain_interval, mean_interval

    data = right_counts()[state.task]
    values = {who: pass_chances(state.task, who) for who in ("base", "rl")}
    curves = {who: [(math.log2(k), sum(row) / len(row)) for k, row in enumerate(rows, start=1)]
              for who, rows in values.items()}
    here = {who: rows[state.k - 1] for who, rows in values.items()}
    never = [i for i, c in enumerate(data["base"]) if c == 0]
    return {
        "k": state.k, "samples": data["samples"], "problems": len(data["base"]), "title": TITLES[state.task],
        "curves": curves, "base": mean_interval(here["base"], SHARE), "rl": mean_interval(here["rl"], SHARE),
        "gain": gain_interval(here["base"], here["rl"], SHARE), "model": data["model"],
        "command": data["command"], "never": len(never), "found": sum(data["rl"][i] > 0 for i in never),
        "lost": sum(a > 0 and b == 0 for a, b in zip(data["base"], data["rl"], strict=True)),
        "shares": [(a / data["samples"], b / data["samples"], a == 0)
                   for a, b in zip(data["base"], data["rl"], strict=True)],
        "meet": next((k for k, (a, b) in enumerate(zip(curves["base"], curves["rl"], strict=True), start=1)
                      if a[1] >= b[1]), None),
        "worth": next((k for k, (_, share) in enumerate(curves["base"], start=1)
                       if share >= curves["rl"][0][1]), None),
        "at": math.log2(state.k), "doublings": math.log2(data["samples"]),
        "ticks": [(i, 2**i) for i in range(data["samples"].bit_length())],
    }


def insight(numbers: JsonDict) -> str:
    tries = "one try" if numbers["k"] == 1 else f"{numbers['k']} tries"
    gain, low, high = (as_points(x) for x in numbers["gain"])
    ahead = (f"RL is ahead by {gain} points ({low} to {high})" if numbers["gain"][1] > 0
             else f"RL is behind by {gain} points ({low} to {high})" if numbers["gain"][2] < 0
             else f"a gain of {gain} points ({low} to {high}), which may be chance")
    known = (f"Of the {numbers['never']} that the model before never solved in {numbers['samples']} tries, "
             f"RL solves {numbers['found']}." if numbers["never"]
             else f"The model before solves every one of them at least once in {numbers['samples']} tries.")
    return (f"With {tries} RL solves {as_points(numbers['rl'][0])} % of the problems, the model before it "
            f"{as_points(numbers['base'][0])} %: {ahead}. {known}")


def as_points(share: float) -> str:
    return f"{round(100 * share, 1) + 0.0:.1f}".replace("-", MINUS)


INSTRUMENT = Instrument(
    name="pass-at-k", number=10, title="RL is worth several tries of its base",
    functions=("postgrad.maths.passk.pass_at_k", "postgrad.maths.intervals.gain_interval"),
    state=State, controls=controls, compute=compute, insight=insight, settle=settle,
    about="pass@k of a base model and of what RL made of it, from one try to 64.",
)

"""Instrument 20, telling two models apart: many evaluations of the same two recorded models, each with its
interval, and how many of them see a difference.

The recorded counts are taken as the truth: a problem of theirs is drawn, then samples at its share of right
ones. So the true difference is known, and an interval can be wrong in sight.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from functools import cache

from postgrad.studio.instruments.base import ChoiceControl, Instrument, Slider, Toggle
from postgrad.studio.instruments.pass_at_k import right_counts
from postgrad.studio.json_types import JsonDict
from postgrad.studio.pages import MINUS
from postgrad.studio.recordings import recording

SHARE = (0.0, 1.0)
EVALUATIONS, MOST, STEP = 40, 200, 20  # evaluations that are drawn; problems of the longest; a step of them
PAIRS = {"far": "far apart", "some": "apart", "near": "close", "same": "the same"}
POWER = 0.8  # the share of evaluations that problems_needed asks for
Counts = tuple[list[float], list[float]]  # the chance of a right sample, problem by problem, of both models


@dataclass(frozen=True)
class State:
    models: str = "near"
    problems: int = 60
    samples: int = 1
    paired: bool = True


CONTROLS = (
    Slider("problems", "Problems of an evaluation", STEP, MOST, STEP),
    ChoiceControl("samples", "Samples of a problem", (1, 4, 8)),
    ChoiceControl("models", "The two models", tuple(PAIRS.items())),
    Toggle("paired", "Both answer the same problems", ("yes", "no")),
)


@cache
def recorded_pairs() -> dict[str, JsonDict]:
    """Two recorded models each: their names, the task, and their shares of right samples by problem."""
    tries = right_counts()
    stages = {s["name"]: s["measured"]["words"] for s in recording("pipeline")["stages"]}

    def shares(counts: list[int], samples: int) -> list[float]:
        return [count / samples for count in counts]

    def stage(name: str) -> list[float]:
        return shares(stages[name]["right"], stages[name]["samples"])

    def tried(task: str, who: str) -> list[float]:
        return shares(tries[task][who], tries[task]["samples"])

    return {
        "far": {"task": "word problems", "names": ["tiny-zero", "tiny-zero after RL"],
                "shares": (tried("words", "base"), tried("words", "rl"))},
        "some": {"task": "word problems", "names": ["pretrained", "after SFT"],
                 "shares": (stage("base"), stage("sft"))},
        "near": {"task": "countdown", "names": ["tiny-zero", "tiny-zero after RL"],
                 "shares": (tried("countdown", "base"), tried("countdown", "rl"))},
        "same": {"task": "countdown", "names": ["tiny-zero after RL", "tiny-zero after RL"],
                 "shares": (tried("countdown", "rl"), tried("countdown", "rl"))},
    }


def drawn_scores(shares: Counts, samples: int, paired: bool, draw: random.Random) -> Counts:
    """One evaluation of MOST problems: the share of right samples of each, of both models."""
    first, second = shares
    asked = draw.choices(range(len(first)), k=MOST)
    others = asked if paired else draw.choices(range(len(second)), k=MOST)

    def score(chance: float) -> float:
        return sum(draw.random() < chance for _ in range(samples)) / samples

    return [score(first[i]) for i in asked], [score(second[i]) for i in others]


@cache
def evaluations(models: str, samples: int, paired: bool) -> JsonDict:
    """The intervals of all evaluations at each number of problems, and how many problems are needed by the
    spread of all of them together. A longer evaluation begins with the problems of the shorter one."""
    from postgrad.maths.intervals import gain_interval
    from postgrad.maths.paired import problems_needed

    shares = recorded_pairs()[models]["shares"]
    draw = random.Random(f"{models} {samples} {paired}")
    scores = [drawn_scores(shares, samples, paired, draw) for _ in range(EVALUATIONS)]
    sizes = range(STEP, MOST + 1, STEP)
    gains = [b - a for first, second in scores for a, b in zip(first, second, strict=True)]
    truth = math.fsum(shares[1]) / len(shares[1]) - math.fsum(shares[0]) / len(shares[0])
    return {
        "truth": truth,
        "intervals": {n: [tuple(round(x, 4) for x in gain_interval(first[:n], second[:n], SHARE))
                          for first, second in scores] for n in sizes},
        "needed": problems_needed(gains) if truth else None,
    }


def compute(state: State) -> JsonDict:
    """The evaluations, least first; how many tell the two apart at each number of problems."""
    drawn, pair = evaluations(state.models, state.samples, state.paired), recorded_pairs()[state.models]
    here = sorted(drawn["intervals"][state.problems])
    truth = drawn["truth"]
    told = [(n, sum(low > 0 or high < 0 for _, low, high in rows) / EVALUATIONS)
            for n, rows in drawn["intervals"].items()]
    return {
        "models": state.models, "task": pair["task"], "names": pair["names"], "problems": state.problems,
        "samples": state.samples, "paired": state.paired, "truth": truth, "evaluations": EVALUATIONS,
        "intervals": [[mean, low, high, interval_colour(low, high, truth)] for mean, low, high in here],
        "told": sum(low > 0 or high < 0 for _, low, high in here),
        "missed": sum(not low <= truth <= high for _, low, high in here),
        "least": here[0][0], "most": here[-1][0],
        "width": sum(high - low for _, low, high in here) / EVALUATIONS,
        "power": told, "needed": drawn["needed"], "replies": 2 * state.problems * state.samples,
    }


def interval_colour(low: float, high: float, truth: float) -> str:
    """The colour of an interval: one that misses the truth, one that sees a difference, one that does not."""
    return "down" if not low <= truth <= high else "policy" if low > 0 or high < 0 else "soft"


def insight(numbers: JsonDict) -> str:
    size = "1 sample" if numbers["samples"] == 1 else f"{numbers['samples']} samples"
    count = numbers["evaluations"]
    span = (f"{count} evaluations with {numbers['problems']} problems and {size} of each put the difference "
            f"between {gap_text(numbers['least'])} and {gap_text(numbers['most'])} points")
    if not numbers["truth"]:
        return (f"One model against itself: {span}. The truth is 0, and {numbers['told']} of the {count} "
                "see a difference.")
    return (f"{span}. The truth is {gap_text(numbers['truth'])}, and {numbers['told']} of the {count} see a "
            f"difference. By the formula below, about {numbers['needed']} problems show it in 80 of 100.")


def gap_text(share: float) -> str:
    return f"{round(100 * share, 1) + 0.0:.1f}".replace("-", MINUS)


INSTRUMENT = Instrument(
    name="telling-apart", number=20, title="One evaluation is one draw of many",
    functions=("postgrad.maths.intervals.gain_interval", "postgrad.maths.paired.problems_needed"),
    state=State, controls=CONTROLS, compute=compute, insight=insight,
    about="Forty evaluations of the same two models: what each reports, and how many see the difference.",
)

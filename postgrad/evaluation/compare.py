"""Models on the same problems: paired differences, their significance, what was won and lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from postgrad.evaluation.evaluate import (
    SHARE,
    EvalTask,
    Figures,
    Groups,
    mean_of,
    passed,
    score_range,
    with_interval,
)
from postgrad.maths.intervals import gain_interval, mean_interval
from postgrad.maths.paired import detectable_difference, problems_needed, sign_flip, whole_units
from postgrad.records import Scored

LEVEL = 0.05
TEST = ("exact sign-flip permutation test over problems (Fisher), two-sided; a difference counts as real "
        f"below {LEVEL}")


def judged_by_all(task: EvalTask, drawn: Sequence[Groups]) -> list[list[list[Scored]]]:
    """Each model's samples with a verdict, by problem; a problem on which some model has none is left out of
    all."""
    sound = [[[s for s in group if s.verdict.given] for group in groups] for groups in drawn]
    kept = [i for i in range(len(sound[0])) if all(groups[i] for groups in sound)]
    if not kept:
        first = drawn[0][0][0].verdict
        raise ValueError(f"no problem of {task.name} has a verdict on every model's replies "
                         f"({first.error or first.reason or 'no reason given'}): ask more problems, or name "
                         "another judge.")
    return [[groups[i] for i in kept] for groups in sound]


def against_first(task: EvalTask, judged: Sequence[Groups]) -> list[Figures]:
    """A row for each model: means over problems with intervals, and gains over the first model's. The first's
    own gain is exactly 0."""
    paid = score_range(task, (s for groups in judged for group in groups for s in group))
    rows: list[Figures] = [{} for _ in judged]
    measured: list[tuple[str, Callable[[Scored], float], tuple[float, float] | None]] = [
        ("pass@1", lambda s: passed(task, s), SHARE), ("reward", lambda s: s.verdict.score, paid)]
    for name, figure, within in measured:
        first, *_ = values = [[mean_of(map(figure, group)) for group in groups] for groups in judged]
        for row, means in zip(rows, values, strict=True):
            gain = gain_interval(first, means, within) if means is not first else (0.0, 0.0, 0.0)
            row |= with_interval(name, mean_interval(means, within)) | with_interval(f"{name}_gain", gain)
    return rows


def paired_test(task: EvalTask, first: Groups, second: Groups) -> Figures:
    """Whether the second model's pass@1 differs from the first's: the p-value, what was won and lost problem
    by problem, and a sentence."""
    a, b = ([mean_of(passed(task, s) for s in group) for group in groups] for groups in (first, second))
    gains = [y - x for x, y in zip(a, b, strict=True)]
    counts = [len(group) for groups in (first, second) for group in groups]
    p_value = sign_flip(whole_units(a, b, counts))
    found: Figures = {"p_value": p_value, "real": p_value < LEVEL, "test": TEST,
             "won": sum(gain > 0 for gain in gains), "lost": sum(gain < 0 for gain in gains),
             "even": sum(gain == 0 for gain in gains),
             "problems_needed": None if p_value < LEVEL else problems_needed(gains),
             "least_told": detectable_difference(gains)}
    by_problem = [{"id": group[0].rollout.prompt.id, "question": group[0].rollout.prompt.question,
                   "first": x, "second": y, "gain": gain}
                  for group, x, y, gain in zip(first, a, b, gains, strict=True)]
    return found | {"says": difference_sentence(found, mean_of(gains)), "by_problem": by_problem}


def difference_sentence(found: Mapping[str, Any], gain: float) -> str:
    """Whether the difference is significant, in a sentence or two."""
    n = found["won"] + found["lost"] + found["even"]
    if not found["won"] and not found["lost"]:
        return f"No difference: both did equally well on each of the {n} problems."
    size = f"{100 * abs(gain):.1f} points {'more' if gain > 0 else 'fewer'}"
    score = f"won {found['won']} problems, lost {found['lost']}"
    chance = f"p = {found['p_value']:.2g}" if found["p_value"] >= 1e-4 else "p < 0.0001"
    if found["real"]:
        return f"The difference is real: the second solves {size} ({score}; {chance})."
    if not found["problems_needed"]:
        return f"No difference was found: {score}, and as much was won as lost ({chance})."
    least = found["least_told"]
    told = f" {n} problems tell differences from about {100 * least:.0f} points up." if least else ""
    return (f"The difference may be chance: the second solves {size} ({score}; {chance}). If it is real, "
            f"about {found['problems_needed']} problems are needed to tell it in 80 of 100 "
            f"comparisons.{told}")

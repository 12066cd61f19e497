"""How good a model is at a task: pass@1 and pass@k with intervals, greedy accuracy, format rate, length."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

from postgrad.maths.intervals import gain_interval, mean_interval
from postgrad.maths.passk import pass_at_k
from postgrad.records import Prompt, Rollout, Scored
from postgrad.rewards.base import Judge, Verifying, judge_all
from postgrad.sampler import Sampling, Track, counted

BLOCK = 128  # prompts that are sampled together
SHARE = (0.0, 1.0)  # what a share of right samples can be

Measure = Callable[[Sequence[Rollout]], Sequence[float]]


def passed(task, scored: Scored) -> bool:
    """A sample passes when its answer is right by the reading that is paid: the part `correct`.

    Where a verifier names no such part, it passes when it got the best score.
    """
    return scored.verdict.parts.get("correct", scored.verdict.score / task.best) >= 1.0


def mean_of(values: Iterable[float]) -> float:
    values = list(values)
    return sum(values) / len(values)


def score_range(task, scored: Iterable[Scored]) -> tuple[float, float] | None:
    """The range of the task's scores, 0 to the best; None where one lies outside, as a reward model's may."""
    inside = task.best > 0 and all(0 <= s.verdict.score <= task.best for s in scored)
    return (0.0, task.best) if inside else None


def with_interval(name: str, found: tuple[float, float, float]) -> dict:
    """A mean and its interval under two names; None for an interval that nothing is known of."""
    mean, low, high = found
    return {name: mean, f"{name}_interval": [low, high] if math.isfinite(high - low) else None}


def sample_all(sampler, prompts: Sequence[Prompt], samples: int, settings: Sampling, seed: int,
               track: Track = iter) -> list[list[Rollout]]:
    """Every sample, a block of prompts at a time; `track` may show how far it is."""
    blocks = [prompts[i: i + BLOCK] for i in range(0, len(prompts), BLOCK)]
    with counted(track, len(prompts) * samples, sampler):
        return [group for block in blocks for group in sampler.sample(block, samples, settings, seed)]


def score_samples(task, sampler, prompts: Sequence[Prompt], samples: int, settings: Sampling, seed: int,
                  track: Track = iter, judge: Judge | None = None) -> list[list[Scored]]:
    """Every sample with its verdict. judge: who says it, where that is not the task's verifier."""
    groups = sample_all(sampler, prompts, samples, settings, seed, track)
    return judge_all(judge or Verifying(task.verify, task.waits), groups)


def evaluate(task, sampler, prompts: Sequence[Prompt], *, samples: int = 8, settings: Sampling, seed: int,
             greedy: bool = True, track: Track = iter, judge: Judge | None = None,
             measures: Mapping[str, Measure] = MappingProxyType({})) -> dict:
    """One row of figures. Intervals are taken over problems: samples of one problem are not independent.

    A sample whose verdict failed for reasons of its own is counted in `errors` and judged
    neither right nor wrong.
    lenient: pass@1 of the lenient reading, where the verifier keeps both;
        pass@1 itself is the strict one, which is paid.
    measures: further numbers of the same samples, by name, e.g. what a reward model says of each;
        their means are added.
    """
    began = time.perf_counter()
    plain = Sampling(max_new_tokens=settings.max_new_tokens, temperature=0.0)
    with counted(track, len(prompts) * (samples + greedy), sampler):
        groups = score_samples(task, sampler, prompts, samples, settings, seed, judge=judge)
        best = score_samples(task, sampler, prompts, 1, plain, seed, judge=judge) if greedy else []
    rows = [s for group in groups for s in group]
    judged = [sound for group in groups if (sound := [s for s in group if s.verdict.given])]
    if not judged:
        raise ValueError(f"the verifier of task {task.name} finds nothing to judge in any sample: "
                         f"{rows[0].verdict.error or rows[0].verdict.reason or 'no reason given'}")
    right = [(len(group), sum(passed(task, s) for s in group)) for group in judged]
    paid = [mean_of(s.verdict.score for s in group) for group in judged]
    within = score_range(task, (s for group in judged for s in group))
    kinds = sorted({name for group in judged for s in group for name in s.verdict.parts})
    loose = ([mean_of(s.verdict.parts.get("lenient", 0.0) for s in group) for group in judged]
             if "lenient" in kinds else [])
    out = {**with_interval("pass@1", mean_interval([c / n for n, c in right], SHARE)),
           **({"lenient": mean_of(loose)} if loose else {}),
           **with_interval(f"pass@{samples}", mean_interval([pass_at_k(n, c, n) for n, c in right], SHARE)),
           **with_interval("reward", mean_interval(paid, within)),
           "mean_length": mean_of(len(s.rollout.tokens) for s in rows),
           "finished": mean_of(s.rollout.finished for s in rows),
           "errors": sum(s.verdict.error is not None for s in rows), "problems": len(prompts),
           "samples": samples}
    for name in kinds:
        if name != "lenient":
            given = [s.verdict.parts[name] for group in judged for s in group if name in s.verdict.parts]
            out[name if name == "format" else f"reward/{name}"] = mean_of(given)
    for name, measure in measures.items():
        if values := measure([s.rollout for s in rows]):
            out[name] = mean_of(values)
    if greedy:
        right_greedy = [float(passed(task, s)) for (s,) in best]
        out |= with_interval("greedy", mean_interval(right_greedy, SHARE))
    out["seconds"] = time.perf_counter() - began
    return out


def judged_groups(task, groups: Sequence[Sequence[Scored]]) -> list[list[Scored]]:
    """The samples of each problem that were judged; refused where a problem has none."""
    sound = [[s for s in group if s.verdict.given] for group in groups]
    if not all(sound):
        fault = groups[sound.index([])][0].verdict.error
        raise ValueError(f"the judge of {task.name} failed on every reply to a problem: {fault}")
    return sound


def against_first(task, judged: Sequence[Sequence[Sequence[Scored]]]) -> list[dict]:
    """A row a model, from its samples by problem: means over problems with their intervals, and the gains on
    the first model's. The first gains 0 on itself, for certain."""
    paid = score_range(task, (s for groups in judged for group in groups for s in group))
    rows: list[dict] = [{} for _ in judged]
    for key, figure, within in (("pass@1", lambda s: passed(task, s), SHARE),
                                ("reward", lambda s: s.verdict.score, paid)):
        first, *_ = values = [[mean_of(map(figure, group)) for group in groups] for groups in judged]
        for row, found in zip(rows, values, strict=True):
            gain = gain_interval(first, found, within) if found is not first else (0.0, 0.0, 0.0)
            row |= with_interval(key, mean_interval(found, within)) | with_interval(f"{key}_gain", gain)
    return rows

"""How good a model is at a task: pass@1 and pass@k with intervals, greedy accuracy, format rate, length."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from postgrad.maths.intervals import mean_interval
from postgrad.maths.passk import pass_at_k
from postgrad.records import Prompt, Reward, Rollout, Scored
from postgrad.rewards.base import score_groups
from postgrad.sampling import Sampling, Track, counted

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
                  track: Track = iter, reward: Reward | None = None) -> list[list[Scored]]:
    """Every sample with its verdict. reward: what scores them, in place of the task's verifier."""
    groups = sample_all(sampler, prompts, samples, settings, seed, track)
    return score_groups(reward or task.reward(), groups)


class Drawn(NamedTuple):
    """What a model wrote on a task's problems, judged: several samples of each, and the greedy reply."""

    groups: list[list[Scored]]
    greedy: Sequence[Scored] = ()

    @property
    def judged(self) -> list[list[Scored]]:
        """The samples that a verdict was given on; a problem without any is left out."""
        return [sound for group in self.groups if (sound := [s for s in group if s.verdict.given])]


def draw(task, sampler, prompts: Sequence[Prompt], *, samples: int, settings: Sampling, seed: int,
         greedy: bool = True, track: Track = iter, reward: Reward | None = None) -> Drawn:
    """Samples of every prompt and, with greedy, its likeliest reply; each with its verdict."""
    plain = Sampling(max_new_tokens=settings.max_new_tokens, temperature=0.0)
    with counted(track, len(prompts) * (samples + greedy), sampler):
        groups = score_samples(task, sampler, prompts, samples, settings, seed, reward=reward)
        best = score_samples(task, sampler, prompts, 1, plain, seed, reward=reward) if greedy else []
    drawn = Drawn(groups, [s for (s,) in best])
    if not drawn.judged:
        said = groups[0][0].verdict
        raise ValueError(f"the verifier of task {task.name} finds nothing to judge in any sample: "
                         f"{said.error or said.reason or 'no reason given'}")
    return drawn


def evaluate(task, sampler, prompts: Sequence[Prompt], *, samples: int = 8, settings: Sampling, seed: int,
             greedy: bool = True, track: Track = iter, reward: Reward | None = None,
             measures: Mapping[str, Measure] = MappingProxyType({}), kept: int = 0) -> dict:
    """One row of figures, and how long they took. measures: further numbers of the same samples, by name,
    e.g. what a reward model says of each; their means are added. kept: the first so many problems whose
    replies are in the row too, as `answers`."""
    began = time.perf_counter()
    drawn = draw(task, sampler, prompts, samples=samples, settings=settings, seed=seed, greedy=greedy,
                 track=track, reward=reward)
    row, rollouts = figures(task, drawn), [s.rollout for group in drawn.groups for s in group]
    for name, measure in measures.items():
        if values := measure(rollouts):
            row[name] = mean_of(values)
    if kept:
        row["answers"] = [answered(group) for group in drawn.groups[:kept]]
    return {**row, "seconds": time.perf_counter() - began}


def answered(group: Sequence[Scored]) -> dict:
    """One problem with its replies and what was said of each, as text."""
    prompt = group[0].rollout.prompt
    return {"prompt": prompt.question, "gold": str(prompt.answer),
            "replies": [{"text": s.rollout.text, "score": s.verdict.score,
                         "reason": s.verdict.error or s.verdict.reason} for s in group]}


def figures(task, drawn: Drawn) -> dict:
    """One row. Intervals are taken over problems: samples of one problem are not independent.

    A sample whose verdict failed for reasons of its own is counted in `errors` and judged
    neither right nor wrong.
    lenient: pass@1 of the lenient reading, where the verifier keeps both;
        pass@1 itself is the strict one, which is paid; greedy_lenient of greedy likewise.
    """
    rows, judged, samples = [s for group in drawn.groups for s in group], drawn.judged, len(drawn.groups[0])
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
           "mean_length": mean_of(len(s.rollout.sampled) for s in rows),
           "finished": mean_of(s.rollout.finished for s in rows),
           "errors": sum(s.verdict.error is not None for s in rows), "problems": len(drawn.groups),
           "samples": samples}
    for name in kinds:
        if name != "lenient":
            given = [s.verdict.parts[name] for group in judged for s in group if name in s.verdict.parts]
            out[name if name == "format" else f"reward/{name}"] = mean_of(given)
    if drawn.greedy:
        right_greedy = [float(passed(task, s)) for s in drawn.greedy]
        out |= with_interval("greedy", mean_interval(right_greedy, SHARE))
        if loose:
            out["greedy_lenient"] = mean_of(s.verdict.parts.get("lenient", 0.0) for s in drawn.greedy)
    return out

"""Evaluates a model on a task: pass@1 and pass@k with intervals, greedy accuracy, format rate, length."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

from postgrad.evaluation.progress import Progress, track_replies
from postgrad.maths.intervals import mean_interval
from postgrad.maths.passk import pass_at_k
from postgrad.records import Prompt, Reward, Rollout, Sampler, Sampling, Scored
from postgrad.rewards.base import score_groups

BLOCK = 128  # prompts that are sampled together
SHARE = (0.0, 1.0)  # what a share of right samples can be

Measure = Callable[[Sequence[Rollout]], Sequence[float]]
Groups = Sequence[Sequence[Scored]]  # scored samples by problem
Figures = dict[str, object]          # one row of an evaluation, as JSON


class EvalTask(Protocol):
    """What an evaluation needs of a task."""

    @property
    def name(self) -> str: ...

    @property
    def best(self) -> float: ...

    @property
    def plays(self) -> bool: ...

    def reward(self) -> Reward: ...


def passed(task: EvalTask, scored: Scored) -> bool:
    """Whether a sample's answer is right by the paid reading, the part `correct`; without that part, whether
    it got the best score."""
    return scored.verdict.parts.get("correct", scored.verdict.score / task.best) >= 1.0


def mean_of(values: Iterable[float]) -> float:
    values = list(values)
    return sum(values) / len(values)


def score_range(task: EvalTask, scored: Iterable[Scored]) -> tuple[float, float] | None:
    """(0, best) where every score lies within it; else None, as of a reward model."""
    inside = task.best > 0 and all(0 <= s.verdict.score <= task.best for s in scored)
    return (0.0, task.best) if inside else None


def with_interval(name: str, interval: tuple[float, float, float]) -> Figures:
    """{name: mean, name_interval: [low, high]}; the interval is None where it is not finite."""
    mean, low, high = interval
    return {name: mean, f"{name}_interval": [low, high] if math.isfinite(high - low) else None}


def sample_all(sampler: Sampler, prompts: Sequence[Prompt], samples: int, settings: Sampling, seed: int,
               track: Progress = iter) -> list[list[Rollout]]:
    """[P][G] samples, a block of prompts at a time. track: shows progress."""
    blocks = [prompts[i: i + BLOCK] for i in range(0, len(prompts), BLOCK)]
    with track_replies(track, len(prompts) * samples, sampler):
        return [group for block in blocks for group in sampler.sample(block, samples, settings, seed)]


def score_samples(task: EvalTask, sampler: Sampler, prompts: Sequence[Prompt], samples: int,
                  settings: Sampling, seed: int,
                  track: Progress = iter, reward: Reward | None = None) -> list[list[Scored]]:
    """Every sample with its verdict. reward: what scores them, in place of the task's verifier."""
    groups = sample_all(sampler, prompts, samples, settings, seed, track)
    return score_groups(reward or task.reward(), groups)


class ScoredSamples(NamedTuple):
    """A model's scored replies to a task's problems: several samples of each, and the greedy reply."""

    groups: list[list[Scored]]
    greedy: Sequence[Scored] = ()

    @property
    def judged(self) -> list[list[Scored]]:
        """The samples that a verdict was given on; a problem without any is left out."""
        return [sound for group in self.groups if (sound := [s for s in group if s.verdict.given])]


def draw_samples(task: EvalTask, sampler: Sampler, prompts: Sequence[Prompt], *, samples: int,
                 settings: Sampling, seed: int, greedy: bool = True, track: Progress = iter,
                 reward: Reward | None = None) -> ScoredSamples:
    """Samples of every prompt and, with greedy, its likeliest reply; each with its verdict."""
    greedily = Sampling(max_new_tokens=settings.max_new_tokens, temperature=0.0)
    with track_replies(track, len(prompts) * (samples + greedy), sampler):
        groups = score_samples(task, sampler, prompts, samples, settings, seed, reward=reward)
        best = score_samples(task, sampler, prompts, 1, greedily, seed, reward=reward) if greedy else []
    drawn = ScoredSamples(groups, [s for (s,) in best])
    if not drawn.judged:
        first = groups[0][0].verdict
        raise ValueError(f"the verifier of task {task.name} finds nothing to judge in any sample: "
                         f"{first.error or first.reason or 'no reason given'}")
    return drawn


def evaluate_task(task: EvalTask, sampler: Sampler, prompts: Sequence[Prompt], *, samples: int = 8,
                  settings: Sampling, seed: int, greedy: bool = True, track: Progress = iter,
                  reward: Reward | None = None, measures: Mapping[str, Measure] = MappingProxyType({}),
                  kept: int = 0) -> Figures:
    """One row of figures, and the seconds it took. measures: further numbers of each sample, by name; their
    means are added. kept: for so many problems the replies are in the row too, as `answers`."""
    began = time.perf_counter()
    drawn = draw_samples(task, sampler, prompts, samples=samples, settings=settings, seed=seed, greedy=greedy,
                 track=track, reward=reward)
    row, rollouts = task_figures(task, drawn), [s.rollout for group in drawn.groups for s in group]
    for name, measure in measures.items():
        if values := measure(rollouts):
            row[name] = mean_of(values)
    if kept:
        row["answers"] = [problem_with_replies(group) for group in drawn.groups[:kept]]
    return {**row, "seconds": time.perf_counter() - began}


def problem_with_replies(group: Sequence[Scored]) -> Figures:
    """One problem with its replies and their verdicts, as JSON."""
    prompt = group[0].rollout.prompt
    return {"prompt": prompt.question, "gold": str(prompt.answer),
            "replies": [{"text": s.rollout.text, "score": s.verdict.score,
                         "reason": s.verdict.error or s.verdict.reason} for s in group]}


def task_figures(task: EvalTask, drawn: ScoredSamples) -> Figures:
    """One row. Intervals are taken over problems: samples of one problem are not independent.

    A sample whose verdict is an error is counted in `errors`, and is neither right nor wrong.
    lenient: pass@1 of the lenient reading, where the verifier gives both; pass@1 itself is of the strict one,
    which is paid. greedy_lenient likewise.
    """
    rows, judged, samples = [s for group in drawn.groups for s in group], drawn.judged, len(drawn.groups[0])
    right = [(len(group), sum(passed(task, s) for s in group)) for group in judged]
    paid = [mean_of(s.verdict.score for s in group) for group in judged]
    within = score_range(task, (s for group in judged for s in group))
    kinds = sorted({name for group in judged for s in group for name in s.verdict.parts})
    loose = ([mean_of(s.verdict.parts.get("lenient", 0.0) for s in group) for group in judged]
             if "lenient" in kinds else [])
    out = with_interval("pass@1", mean_interval([c / n for n, c in right], SHARE))
    if loose:
        out["lenient"] = mean_of(loose)
    out |= with_interval(f"pass@{samples}", mean_interval([pass_at_k(n, c, n) for n, c in right], SHARE))
    out |= with_interval("reward", mean_interval(paid, within))
    out |= {"mean_length": mean_of(len(s.rollout.sampled) for s in rows),
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

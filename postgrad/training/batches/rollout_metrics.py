"""Metrics of a collection of rollouts."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from postgrad.maths.diversity import repetition
from postgrad.records import Rollout, Scored
from postgrad.training.stats import Deferred, read_scalars


def rollout_metrics(rows: Sequence[Scored], group_size: int) -> dict[str, float | Deferred]:
    """Reward, length, truncation and errors of a collection. A failed verdict does not count in the reward.

    Deferred: computed when the log reads them, so that a GPU does not wait.
    """
    figures = Deferred(lambda: compute_rollout_metrics(rows, group_size))

    def figure(name: str) -> Deferred:
        return Deferred(lambda: figures.result[name])

    parts = sorted({name for s in rows if s.verdict.given for name in s.verdict.parts})
    names = ["reward", "reward_std", "length", "sampled", "truncated", "repetition", "errors",
             *(f"reward/{name}" for name in parts),
             *(("turns", "new_rows") if any(s.rollout.episode for s in rows) else ())]
    return {name: figure(name) for name in names}


def compute_rollout_metrics(rows: Sequence[Scored], group_size: int) -> dict[str, float]:
    groups = [[s for s in rows[i: i + group_size] if s.verdict.given]
              for i in range(0, len(rows), group_size)]
    scores = [torch.tensor([s.verdict.score for s in group], dtype=torch.float64) for group in groups
              if group]
    judged = [s for group in groups for s in group]
    written = sum(len(s.rollout.sampled) for s in rows)
    parts: dict[str, list[float]] = {}
    for s in judged:
        for name, score in s.verdict.parts.items():  # absent: there was nothing to judge
            parts.setdefault(name, []).append(score)
    facts = {
        "reward": float(torch.cat(scores).mean()) if scores else 0.0,
        "reward_std": sum(read_scalars([x.std(unbiased=False) for x in scores])) / max(len(scores), 1),
        "length": written / len(rows), "sampled": float(written),
        "truncated": sum(not s.rollout.finished for s in rows) / len(rows),
        "repetition": sum(repetition(s.rollout.sampled) for s in rows) / len(rows),
        "errors": float(sum(s.verdict.error is not None for s in rows)),
        "turns": sum(count_replies(s.rollout) for s in rows) / len(rows),
        "new_rows": float(sum(len(s.rollout.earlier) for s in rows))}
    return facts | {f"reward/{name}": sum(given) / len(given) for name, given in parts.items()}


def count_replies(rollout: Rollout) -> int:
    """Assistant turns of an episode."""
    return sum(turn.role == "assistant" for row in rollout.rows for turn in row.turns)

"""What a collection's log says of it."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from postgrad.maths.diversity import repetition
from postgrad.records import Rollout, Scored
from postgrad.stats import Later, numbers


def facts_of(rows: Sequence[Scored], group_size: int) -> dict[str, float | Later]:
    """What a reader of the log looks at first. A verdict that failed has no part in the reward."""
    groups = [[s for s in rows[i: i + group_size] if s.verdict.given]
              for i in range(0, len(rows), group_size)]
    scores = [torch.tensor([s.verdict.score for s in group], dtype=torch.float64) for group in groups
              if group]
    judged = [s for group in groups for s in group]
    written = sum(len(s.rollout.sampled) for s in rows)
    facts: dict[str, float | Later] = {
        "reward": float(torch.cat(scores).mean()) if scores else 0.0,
        "reward_std": sum(numbers([x.std(unbiased=False) for x in scores])) / max(len(scores), 1),
        "length": written / len(rows), "sampled": float(written),
        "truncated": sum(not s.rollout.finished for s in rows) / len(rows),
        "repetition": Later(lambda: sum(repetition(s.rollout.sampled) for s in rows) / len(rows)),
        "errors": float(sum(s.verdict.error is not None for s in rows))}
    for name in sorted({name for s in judged for name in s.verdict.parts}):
        # absent: there was nothing to judge
        given = [s.verdict.parts[name] for s in judged if name in s.verdict.parts]
        facts[f"reward/{name}"] = sum(given) / len(given)
    if any(s.rollout.episode for s in rows):
        facts |= {"turns": sum(replies_of(s.rollout) for s in rows) / len(rows),
                  "new_rows": float(sum(len(s.rollout.earlier) for s in rows))}
    return facts


def replies_of(rollout: Rollout) -> int:
    """How many replies the policy wrote in an episode."""
    return sum(turn.role == "assistant" for row in rollout.rows for turn in row.turns)

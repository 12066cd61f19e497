"""Rows of one's own: what is done about those that cannot be read or do not fit, how many are held out."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from postgrad.loop import Objective
from postgrad.models import Models
from postgrad.records import Batch
from postgrad.settings import Settings, setting
from postgrad.stats import Stats


@dataclass(frozen=True, kw_only=True)
class OwnRows(Settings):
    """What is done with rows of a file, or rows that were handed in (`data`)."""

    holdout: float = setting(0.1, "the share of the prompts in `data` that is held out and examined, by a "
                             "hash of their text, where there are 20 or more",
                             "0 where every row has to be learned from; more for a narrower interval")

    def __post_init__(self):
        if not 0 <= self.holdout < 1:
            raise ValueError(f"holdout is {self.holdout}: it is a share, from 0 to below 1.")


@torch.no_grad()
def seen_on(objective: Objective, models: Models, batch: Batch, tokens_per_pass: int) -> dict[str, float]:
    """What an objective sees of a batch that is not trained on: its loss, and whatever it counts."""
    stats = Stats()
    for micro in batch.split(tokens_per_pass):
        stats.add(objective(models, micro)[1])
    return stats.results()

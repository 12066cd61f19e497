"""Texts imitated beside the rollouts: the pretraining mix of PPO-ptx (Ouyang et al. 2022, 2203.02155, eq. 2).

    objective + weight * E_text[log pi(text)]
Their rows stand behind the rollouts in the same batch, flagged `imitate`, so that one update sees both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from postgrad.maths.weights import token_mean
from postgrad.records import Batch
from postgrad.training.batches.shuffled import Shuffled, padded_columns


class PtxMix:
    """texts: (id, tokens, mask) of each; `rows` of them join every optimizer step."""

    def __init__(self, texts: Sequence[tuple[str, list[int], list[bool]]], *, rows: int, weight: float,
                 seed: int):
        self.texts = Shuffled(texts, seed)
        self.rows = rows
        self.weight = weight

    def into(self, batch: Batch) -> Batch:
        """The batch with the next texts behind its rows."""
        ids, tokens, masks = zip(*self.texts.take(self.rows), strict=True)
        new = padded_columns(ids, tokens, masks)
        new |= {"weight": self.weight * token_mean(new["mask"], new["mask"].shape[1])}
        width = max(batch.tokens.shape[1], new["tokens"].shape[1])
        columns: dict[str, Any] = {}
        for f in fields(batch):
            if isinstance(x := getattr(batch, f.name), Tensor):
                below = new[f.name].to(x) if f.name in new else x.new_zeros(len(ids), *x.shape[1:])
                columns[f.name] = torch.cat([pad_columns(x, width), pad_columns(below, width)])
        imitate = torch.arange(len(batch) + len(ids), device=batch.tokens.device) >= len(batch)
        return replace(batch, ids=batch.ids + ids, imitate=imitate, **columns)


def pad_columns(x: Tensor, width: int) -> Tensor:  # [B, T] -> [B, width]; [B] stays
    if x.dim() == 4:  # routes
        return F.pad(x, (0, 0, 0, 0, 0, width - x.shape[1]))
    return F.pad(x, (0, width - x.shape[1])) if x.dim() == 2 else x

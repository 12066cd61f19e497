"""The choices that a model made, each with all that it could have chosen: for losses over the vocabulary."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

CHUNK = 1024  # choices whose logits exist at once


@dataclass(frozen=True, kw_only=True)
class Choices:
    """The state in which each of N tokens was chosen, and the way from states to logits.

    cells [N]: where the tokens stand in the rows [B, T], counted through.
    """

    states: Tensor                    # [N, D]
    read: Callable[[Tensor], Tensor]  # [n, D] -> logits [n, V]
    cells: Tensor                     # [N]


def choice_columns(policy: Choices, tokens: Tensor, temperature: float = 1.0,
            teacher: Choices | None = None) -> tuple[Tensor, ...]:  # [B, T] -> [B, T] two or three times
    """Of each choice the log-probability and the entropy; with a teacher KL(policy || teacher) too, over the
    whole vocabulary. Zero elsewhere.

    The logits of a chunk are made again in the backward pass, so that [N, V] never exists.
    """
    def part(chosen: Tensor, mine: Tensor, theirs: Tensor | None = None) -> tuple[Tensor, ...]:
        logp = log_softmax(policy.read(mine), temperature)
        p = logp.exp()
        seen = logp.gather(-1, chosen[:, None]).squeeze(-1), -(p * logp).sum(-1)
        if teacher is None or theirs is None:
            return seen
        return *seen, (p * (logp - log_softmax(teacher.read(theirs), temperature))).sum(-1)

    read = [tokens.flatten()[policy.cells], policy.states, *([teacher.states] if teacher else [])]
    parts = [checkpoint(part, *(x[i: i + CHUNK] for x in read), use_reentrant=False)
             for i in range(0, len(policy.cells), CHUNK)]
    found = [torch.cat(x) for x in zip(*parts, strict=True)] or [policy.states.sum(1).float()] * len(read)
    return tuple(x.new_zeros(tokens.numel()).scatter(0, policy.cells, x).view(tokens.shape) for x in found)


def log_softmax(logits: Tensor, temperature: float) -> Tensor:
    """In float32 at least."""
    return torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature, -1)

"""What training asks of a model: log-probs of a language model, values of a critic, scores of a scorer.

Decoder, HFModel, Adapted and ScalarModel implement it; so may a tabular policy over a toy language.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from postgrad.maths.packing import Packed

CHUNK = 1024  # choices whose logits are materialised at once


class Trainable(Protocol):
    def parameters(self) -> Iterator[Tensor]: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any: ...


class LanguageModel(Protocol):
    def logp(self, tokens: Tensor, mask: Tensor, temperature: float = 1.0,
             packed: Packed | None = None) -> tuple[Tensor, Tensor]:
        """[B, T] -> log-prob of each masked token given those before it, and the entropy there; [B, T]."""
        ...

    def choices(self, tokens: Tensor, mask: Tensor, packed: Packed | None = None) -> Choices:
        """[B, T] -> the states that predict the masked tokens; for losses over the whole vocabulary."""
        ...


class Critic(Protocol):
    def value(self, tokens: Tensor, packed: Packed | None = None) -> Tensor:
        """[B, T] -> [B, T]; column t: the value of the state in which token t is chosen."""
        ...


class Scorer(Protocol):
    @property
    def heads(self) -> int: ...

    def scores(self, tokens: Tensor, lengths: Tensor, packed: Packed | None = None) -> Tensor:
        """[B, T], [B] -> [B, K]: the score of each head for the full answer."""
        ...

    def token_scores(self, tokens: Tensor, packed: Packed | None = None) -> Tensor:
        """[B, T] -> [B, T]; column t: the score of the answer up to token t."""
        ...


@dataclass(frozen=True, kw_only=True)
class Choices:
    """The states that predict N masked tokens, and the function from states to logits."""

    states: Tensor                    # [N, D]
    read: Callable[[Tensor], Tensor]  # [n, D] -> logits [n, V]
    cells: Tensor                     # [N], flat indices of the tokens in [B, T]


def choice_columns(policy: Choices, tokens: Tensor, temperature: float = 1.0,
                   teacher: Choices | None = None) -> tuple[Tensor, ...]:  # [B, T] -> [B, T], two or three
    """Log-prob and entropy of each choice; with a teacher also KL(policy || teacher) over the vocabulary.
    Zero elsewhere. The backward pass recomputes the logits chunk by chunk, so that [N, V] never exists."""
    def part(chosen: Tensor, mine: Tensor, theirs: Tensor | None = None) -> tuple[Tensor, ...]:
        logp = log_softmax(policy.read(mine), temperature)
        p = logp.exp()
        both = logp.gather(-1, chosen[:, None]).squeeze(-1), -(p * logp).sum(-1)
        if teacher is None or theirs is None:
            return both
        return *both, (p * (logp - log_softmax(teacher.read(theirs), temperature))).sum(-1)

    read = [tokens.flatten()[policy.cells], policy.states, *([teacher.states] if teacher else [])]
    parts = [checkpoint(part, *(x[i: i + CHUNK] for x in read), use_reentrant=False)
             for i in range(0, len(policy.cells), CHUNK)]
    columns = [torch.cat(x) for x in zip(*parts, strict=True)] or [policy.states.sum(1).float()] * len(read)
    return tuple(x.new_zeros(tokens.numel()).scatter(0, policy.cells, x).view(tokens.shape) for x in columns)


def log_softmax(logits: Tensor, temperature: float) -> Tensor:
    """In float32 at least."""
    return torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature, -1)

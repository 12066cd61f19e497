"""What the rest of the house asks of a model: a language model's log-probs, a critic's values,
a scorer's scores.

Decoder, Adapted, HFModel and ScalarModel are such; so is anything else with these methods,
a table of a toy language, say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from torch import Tensor

from postgrad.maths.packing import Packed
from postgrad.models.choices import Choices


class Trainable(Protocol):
    """Weights that an optimizer moves and a checkpoint keeps."""

    def parameters(self) -> Iterator[Tensor]: ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> Any: ...


class LanguageModel(Protocol):
    def logp(self, tokens: Tensor, mask: Tensor, temperature: float = 1.0,
             packed: Packed | None = None) -> tuple[Tensor, Tensor]:
        """[B, T] -> the log-prob of each masked token given those before it,
        and the entropy of the choice; [B, T]."""
        ...

    def choices(self, tokens: Tensor, mask: Tensor, packed: Packed | None = None) -> Choices:
        """[B, T] -> what each masked token was chosen from; for rows that look at the whole vocabulary."""
        ...


class Critic(Protocol):
    def value(self, tokens: Tensor, packed: Packed | None = None) -> Tensor:
        """[B, T] -> [B, T]; column t: the value of the state in which token t is chosen."""
        ...


class Scorer(Protocol):
    @property
    def heads(self) -> int: ...

    def scores(self, tokens: Tensor, lengths: Tensor, packed: Packed | None = None) -> Tensor:
        """[B, T], [B] -> [B, K]: what each head says of a whole answer."""
        ...

    def token_scores(self, tokens: Tensor, packed: Packed | None = None) -> Tensor:
        """[B, T] -> [B, T]; column t: the score of the answer as far as token t."""
        ...

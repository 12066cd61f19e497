"""The sampler seam: what a sampler is, and what a sampler in this process needs of a model.

A sampler of yours is a class with one method; `sampler=` of fit, evaluate and a config takes an object of it,
a FILE.py or a name that a plugin registered (docs/own-sampler.md):

    class Mine:
        def sample(self, prompts, n, sampling, seed):
            return [[self.rollout(prompt, i, seed) for i in range(n)] for prompt in prompts]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from postgrad.maths.packing import Packed
from postgrad.records import Prompt, Rollout, Sampling


@runtime_checkable
class Sampler(Protocol):
    """n samples of each of P prompts. A row depends on the model, its prompt and the seed, not on its
    neighbours."""

    def sample(self, prompts: Sequence[Prompt], n: int, sampling: Sampling, seed: int) -> list[list[Rollout]]:
        """[P][n] rollouts; their logp is that of the distribution that was sampled from."""
        ...


@runtime_checkable
class PolicySampler(Sampler, Protocol):
    """A sampler that takes over the policy's weights before each collection."""

    def update_weights(self, policy: torch.nn.Module, step: int) -> None:
        """step: optimizer steps behind these weights."""
        ...


class DecodableModel(Protocol):
    """A model that can be sampled from in this process (models/engine.py)."""

    config: Any
    head: Tensor

    def engine(self, *, rows: int, prompts: int, read: int, new: int, positions: int) -> Any: ...

    def states(self, tokens: Tensor, packed: Packed) -> Tensor: ...

    def load_state_dict(self, state_dict: Any) -> Any: ...

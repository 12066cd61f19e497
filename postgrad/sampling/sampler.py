"""The sampler seam: what a sampler is, and what a sampler in this process needs of a model.

A sampler of yours is a class with one method; `sampler=` of fit, evaluate and a config takes an object of it,
a FILE.py or a name that a plugin registered (docs/own-sampler.md):

    class Mine:
        def sample(self, prompts, n, sampling, seed):
            return [[self.rollout(prompt, i, seed) for i in range(n)] for prompt in prompts]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from postgrad.maths.packing import Packed
from postgrad.models.chat import Chat
from postgrad.records import Prompt, Rollout, Sampler, Sampling


@runtime_checkable
class PolicySampler(Sampler, Protocol):
    """A sampler that takes over the policy's weights before each collection."""

    def update_weights(self, policy: torch.nn.Module, step: int) -> None:
        """step: optimizer steps behind these weights."""
        ...


class DecodableModel(Protocol):
    """A model that can be sampled from in this process (models/engine.py)."""

    @property
    def config(self) -> Any: ...

    @property
    def head(self) -> Tensor: ...

    def engine(self, *, rows: int, prompts: int, read: int, new: int, positions: int) -> Any: ...

    def states(self, tokens: Tensor, packed: Packed) -> Tensor: ...

    def load_state_dict(self, state_dict: Any) -> Any: ...


class ScriptedSampler:
    """ScriptedSampler(chat, {"What is 2+3?": ["5", "6"]}): sample i of a question is its completion i
    (cycling)."""

    def __init__(self, chat: Chat, script: Mapping[str, Sequence[str]]):
        self.chat, self.script = chat, script

    def sample(self, prompts: Sequence[Prompt], n: int, sampling: Sampling, seed: int) -> list[list[Rollout]]:
        return [[self._rollout(p, i, sampling, seed) for i in range(n)] for p in prompts]

    def _rollout(self, prompt: Prompt, i: int, sampling: Sampling, seed: int) -> Rollout:
        lines = self.script[prompt.question]
        tokens = [*self.chat.encode(lines[i % len(lines)]), self.chat.stop[0]][: sampling.max_new_tokens]
        return Rollout(prompt=prompt, prompt_tokens=tuple(self.chat.render(prompt.messages)),
                       tokens=tuple(tokens), logp=(0.0,) * len(tokens), text=self.chat.decode(tokens),
                       finished=tokens[-1] in self.chat.stop, seed=seed)

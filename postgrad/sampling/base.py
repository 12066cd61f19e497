"""What a sampler is: prompts in, rollouts out, each row with a seed of its own."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from postgrad.records import Prompt, Rollout


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """How to choose tokens. temperature 0 is greedy.

    top_k 0, top_p 1 and min_p 0 leave the distribution whole.

    stop: texts that end a reply, beside the model's own end token;
    the tokens that complete one stay in the reply.
    """

    max_new_tokens: int = 64
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    stop: tuple[str, ...] = ()

    def __post_init__(self):
        if self.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens is {self.max_new_tokens}: a reply needs at least 1 token.")
        if not 0 <= self.temperature < math.inf:
            raise ValueError(f"temperature is {self.temperature}: use 0 for greedy, 1 for the model's "
                             "own distribution.")
        if not (self.top_k >= 0 and 0 < self.top_p <= 1 and 0 <= self.min_p < 1):
            raise ValueError(f"top_k {self.top_k}, top_p {self.top_p}, min_p {self.min_p}: "
                             "expected top_k >= 0, 0 < top_p <= 1, 0 <= min_p < 1.")
        if isinstance(self.stop, str) or not all(self.stop):
            raise ValueError(f"stop is {self.stop!r}: give the texts that end a reply as a tuple, none "
                             "of them empty.")

    @property
    def whole(self) -> bool:
        """Whether no token is left out."""
        return self.top_k == 0 and self.top_p == 1 and self.min_p == 0


class Sampler(Protocol):
    """G samples for each of P prompts.

    A row's tokens depend on the model, its prompt and its seed, not on its neighbours.
    """

    def sample(self, prompts: Sequence[Prompt], group_size: int, settings: Sampling,
               seed: int) -> list[list[Rollout]]:
        """[P][G] rollouts; the log-probs in them are those of the distribution that was sampled from."""
        ...

"""What is asked of a batch of requests and what comes back: requests, sequences, sampled tokens, rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from itertools import repeat
from typing import Any, Literal, NamedTuple

import numpy as np
from torch import Tensor

from postgrad.maths.noise import seed_of
from postgrad.records import Sampling
from postgrad.sampling.detokenizer import IncrementalDetokenizer
from postgrad.sampling.scheduler import SlotSequence

Caching = Literal["turns", "prompts", "none"]
NOTHING = 0, b""


class ArrayTuple(Sequence[Any]):
    """Tokens or log-probs: a NumPy array that compares, hashes and pickles as the tuple of its numbers, made
    at first use; `packing.concat_rows` takes the array. begun: of tokens, how many are detokenized, and
    their bytes."""

    def __init__(self, array: np.ndarray, begun: tuple[int, bytes] = NOTHING):
        self.array, self.begun = array, begun

    @cached_property
    def numbers(self) -> tuple[Any, ...]:
        return tuple(self.array.tolist())

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, at: Any) -> Any:
        return self.numbers[at]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.numbers)

    def __eq__(self, other: object) -> bool:
        return self.numbers == (other.numbers if isinstance(other, ArrayTuple) else other)

    def __hash__(self) -> int:
        return hash(self.numbers)

    def __add__(self, other: Sequence[Any]) -> tuple[Any, ...]:
        return self.numbers + tuple(other)

    def __radd__(self, other: tuple[Any, ...]) -> tuple[Any, ...]:
        return other + self.numbers

    def __repr__(self) -> str:
        return repr(self.numbers)

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (self.numbers,)


@dataclass(frozen=True, kw_only=True)
class Request:
    """A sequence to be sampled.

    sampling: max_new_tokens counts sampled tokens. raw_logprobs: log-probs of the model itself, not of the
    distribution that temperature, top-k, top-p and min-p make of it. top_logprobs: how many of the likeliest
    tokens are reported with each. stream: its text is wanted as it comes. keep: when it has ended it stays in
    its slot, to be extended or aborted. caching: the keys that its prompt may begin with, and leaves to later
    ones. turns: of whole conversations, those of replies as decode steps wrote them, which on a CPU are
    rounded otherwise than a prefill's; prompts: of prefills alone, on a CPU its own bits; none: no keys.
    """

    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0
    stop_token_ids: tuple[int, ...] = ()
    raw_logprobs: bool = False
    top_logprobs: int = 0
    stream: bool = False
    keep: bool = False
    caching: Caching = "prompts"

    @cached_property
    def needs_logits(self) -> bool:
        """Whether its log-probs are others than those of the distribution that is sampled from."""
        s = self.sampling
        return self.top_logprobs > 0 or self.raw_logprobs and not (s.unfiltered and s.temperature == 1)

    @cached_property
    def stop_set(self) -> frozenset[int]:
        return frozenset(self.stop_token_ids)

    @cached_property
    def distribution(self) -> Sampling:
        """What decides which token is sampled: sequences with the same are sampled together."""
        return with_max_new_tokens(self.sampling, 1)

    def nth(self, i: int) -> Request:
        """The request of sample i: the first has the seed as it is, others a seed derived from it."""
        return replace(self, seed=seed_of(self.seed, i)) if i else self


@lru_cache(maxsize=256)
def with_max_new_tokens(sampling: Sampling, max_new_tokens: int) -> Sampling:
    return replace(sampling, max_new_tokens=max_new_tokens, stop=())


class SampledToken(NamedTuple):
    """A token, its log-prob, the likeliest tokens with theirs, and the text that may be shown with it."""

    token: int
    logp: float
    top: tuple[tuple[int, float], ...] = ()
    text: str = ""

    @classmethod
    def listed(cls, tokens: Iterable[int], logps: Iterable[float],
               tops: Iterable[tuple[tuple[int, float], ...]] | None = None) -> list[SampledToken]:
        """One for each token, hundreds of thousands a second at an endpoint: no call of Python's for any."""
        return [*map(partial(tuple.__new__, cls), zip(tokens, logps, tops or repeat(()), repeat("")))]


@dataclass(eq=False, kw_only=True, slots=True)
class RequestSequence(SlotSequence):
    """seeds[number] is its seed; number: in its collection. finish_reason: stop
    (a token or a text), length, abort; None while it is decoded. weight_versions: which weights sampled from
    which token on, as (sampled so far, version). turn: tokens sampled before this turn. under_way: tokens
    that the device samples or has sampled, and the host has not seen.

    Of a collection: shown: tokens of earlier turns. since: steps before its first. `tokens` are filled in
    when it has ended and is cached.
    """

    request: Request
    seeds: Sequence[int] = ()
    number: int = 0
    sampled: list[SampledToken] = field(default_factory=list)
    weight_versions: list[tuple[int, int]] = field(default_factory=list)
    finish_reason: str | None = None
    fault: Exception | None = None
    detokenizer: IncrementalDetokenizer | None = None
    turn: int = 0
    under_way: int = 0
    shown: int = 0
    since: int = 0

    @property
    def room(self) -> int:
        """The most tokens that it may still sample in this turn."""
        return self.request.sampling.max_new_tokens + self.turn - len(self.sampled)

    def take(self, sampled: list[SampledToken], version: int) -> list[SampledToken]:
        """Appends sampled tokens up to its end -> the same; the text that may be shown stands at the last."""
        request, detokenizer, text = self.request, self.detokenizer, ""
        if not self.weight_versions or self.weight_versions[-1][1] != version:
            self.weight_versions.append((len(self.sampled), version))
        room = self.room
        if len(sampled) >= room:
            self.finish_reason, sampled = "length", sampled[:room]
        tokens = [token for token, *_ in sampled]
        reads = detokenizer if detokenizer and detokenizer.stop else None
        if reads or not request.stop_set.isdisjoint(tokens):
            for i, token in enumerate(tokens, 1):
                text += reads.add(token) if reads else ""
                if token in request.stop_set or (reads and reads.stopped):
                    self.finish_reason, sampled, tokens = "stop", sampled[:i], tokens[:i]
                    break
        if detokenizer and not detokenizer.stop:
            text = detokenizer.add(*tokens)
        if self.finish_reason and detokenizer:
            text += detokenizer.end()
        self.tokens += tokens
        if text:
            sampled[-1] = sampled[-1]._replace(text=text)
        self.sampled += sampled
        return sampled


class FinishedSequence(NamedTuple):
    """A row of a collection. tokens: sampled, the stop token included. finished: by a stop, not at the
    length. cached: what its sampler still has of it, where it may be continued."""

    number: int
    tokens: Sequence[int]
    logp: Sequence[float]
    finished: bool
    cached: RequestSequence | None = None
    routes: Tensor | None = None  # as in Rollout

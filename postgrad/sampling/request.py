"""A row that is asked for, and what has become of it so far."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

from torch import Tensor

from postgrad.sampling.base import Sampling
from postgrad.sampling.text import Text


@dataclass(frozen=True, kw_only=True)
class Request:
    """A row to be written.

    settings: max_new_tokens counts what is sampled. ends: tokens that end the row. own: log-probs are those
    of the model itself, not of the distribution that temperature, top-k, top-p and min-p make of it. top: of
    so many of the likeliest tokens the log-probs are told too. pieces: its text is wanted as it comes. keep:
    when it has ended it stays in its slot, to be extended or dropped.
    """

    settings: Sampling = field(default_factory=Sampling)
    seed: int = 0
    ends: tuple[int, ...] = ()
    own: bool = False
    top: int = 0
    pieces: bool = False
    keep: bool = False

    @cached_property
    def how(self) -> Sampling:
        """What decides which token is chosen: rows with the same are chosen for together."""
        return how(self.settings)


@lru_cache(maxsize=256)
def how(settings: Sampling) -> Sampling:
    return replace(settings, max_new_tokens=1, stop=())


class Chosen(NamedTuple):
    """A token, its log-prob, the likeliest tokens with theirs, and the text that may be shown with it."""

    token: int
    logp: float
    top: tuple[tuple[int, float], ...] = ()
    piece: str = ""


@dataclass(eq=False)
class Place:
    """A prompt, where its keys and values are, and how many rows still need them."""

    tokens: list[int]
    users: int
    number: int | None = None
    state: Tensor | None = None  # [D], from which the first token after it is chosen


@dataclass(eq=False)
class Row:
    """tokens: all after the prompt, in the order in which they were written or given; sampled: those that
    were chosen. end: stop (a token or a text that ends it), length, dropped; None while it is written.
    versions: from which token on it was written by which weights, as (sampled so far, version)."""

    request: Request
    place: Place
    slot: int | None = None
    tokens: list[int] = field(default_factory=list)
    sampled: list[Chosen] = field(default_factory=list)
    given: deque[int] = field(default_factory=deque)
    versions: list[tuple[int, int]] = field(default_factory=list)
    end: str | None = None
    text: Text | None = None
    turn: int = 0  # tokens sampled before this turn

    @property
    def first(self) -> Tensor:  # [D]
        """The state from which its first token is chosen."""
        assert self.place.state is not None, "its prompt has been read"
        return self.place.state

    def take(self, chosen: Chosen, version: int) -> Chosen:
        """A token that was chosen for it; -> with the text that may be shown."""
        request = self.request
        if not self.versions or self.versions[-1][1] != version:
            self.versions.append((len(self.sampled), version))
        piece = self.text.add(chosen.token) if self.text else ""
        self.tokens.append(chosen.token)
        self.sampled.append(chosen)
        if chosen.token in request.ends or (self.text and self.text.stopped):
            self.end = "stop"
        elif len(self.sampled) - self.turn >= request.settings.max_new_tokens:
            self.end = "length"
        if self.end and self.text:
            piece += self.text.end()
        return chosen._replace(piece=piece) if piece else chosen

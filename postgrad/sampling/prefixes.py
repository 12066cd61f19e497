"""Which tokens have their keys and values in which place of the prompt cache, so that a prompt that begins
with them is prefilled from there on.

Blocks of BLOCK tokens are found by chained hashes, as in vLLM: a block's hash holds all before it. A hash is
a hint; a hit compares the tokens. Places are the scheduler's: what stands in a free place
stays to be found until the place is taken, the one that was freed first before others (LRU). Left out on
purpose: paging, as a place holds a whole context, and a prefix is copied to another place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

BLOCK = 16
TRIED = 4  # places that are compared, of those with a hash: the newest ones


class StoredPrefix(NamedTuple):
    """What stands in a place. prefilled: of these tokens, as many as have the keys of a prefill, before the
    first one whose keys a decode step wrote."""

    tokens: list[int]
    prefilled: int
    hashes: list[int]


def block_hash(before: int, block: Sequence[int]) -> int:
    return hash((before, *block))


def block_hashes(tokens: Sequence[int], begun: Sequence[int] = ()) -> list[int]:
    """The hash of each whole block. begun: those that are known."""
    hashes = [*begun]
    for start in range(len(hashes) * BLOCK, len(tokens) - BLOCK + 1, BLOCK):
        hashes.append(block_hash(hashes[-1] if hashes else 0, tokens[start: start + BLOCK]))
    return hashes


def common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """How many tokens two sequences begin with alike."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


class Prefixes:
    def __init__(self) -> None:
        self.stored: dict[int, StoredPrefix] = {}
        self.places: dict[int, dict[int, None]] = {}  # by hash, the newest last

    def put(self, place: int, tokens: list[int], prefilled: int, begun: Sequence[int] = ()) -> None:
        """What stands in a place from now on. begun: hashes of its first blocks."""
        self.drop(place)
        stored = self.stored[place] = StoredPrefix(tokens, prefilled, block_hashes(tokens, begun))
        for key in stored.hashes:
            self.places.setdefault(key, {})[place] = None

    def drop(self, place: int) -> None:
        if stored := self.stored.pop(place, None):
            for key in {*stored.hashes}:
                del self.places[key][place]
                if not self.places[key]:
                    del self.places[key]

    def clear(self) -> None:
        self.stored.clear()
        self.places.clear()

    def find(self, tokens: Sequence[int], hashes: Sequence[int], exact: bool) -> tuple[int, int] | None:
        """A place with the longest known prefix of these tokens, of a block or more, and how many they are.
        exact: of tokens with the keys of a prefill alone."""
        best: tuple[int, int] | None = None
        for place, stored in self.candidates(hashes[: len(tokens) // BLOCK]):
            count = common_length(tokens, stored.tokens[: stored.prefilled if exact else None])
            if count >= BLOCK and (best is None or count > best[1]):
                best = place, count
                if not exact:
                    break
        return best

    def candidates(self, hashes: Sequence[int]) -> Iterator[tuple[int, StoredPrefix]]:
        for key in reversed(hashes):
            for place in islice(reversed(self.places.get(key, {})), TRIED):
                yield place, self.stored[place]

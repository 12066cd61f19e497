"""Tokens and log-probs as a sampler has them, made into numbers of Python only for who looks at them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

NOTHING = 0, b""


class Numbers(Sequence[Any]):
    """An array that is a tuple to whoever looks at its numbers one by one, and is made into one only then;
    `packing.flat` takes the array. To other processes it goes as the tuple.

    begun: of tokens, how many are spelled already, and their bytes.
    """

    def __init__(self, array: np.ndarray, begun: tuple[int, bytes] = NOTHING):
        self.array, self.begun = array, begun

    @cached_property
    def plain(self) -> tuple:
        return tuple(self.array.tolist())

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, at):
        return self.plain[at]

    def __iter__(self) -> Iterator:
        return iter(self.plain)

    def __eq__(self, other: object) -> bool:
        return self.plain == (other.plain if isinstance(other, Numbers) else other)

    def __hash__(self) -> int:
        return hash(self.plain)

    def __add__(self, other: tuple) -> tuple:
        return self.plain + tuple(other)

    def __radd__(self, other: tuple) -> tuple:
        return other + self.plain

    def __repr__(self) -> str:
        return repr(self.plain)

    def __reduce__(self):
        return tuple, (self.plain,)

"""Tokens and log-probs as an array that reads as a tuple."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

NOTHING = 0, b""


class ArrayTuple(Sequence[Any]):
    """A NumPy array that compares, hashes and pickles as the tuple of its numbers, which is made when one is
    asked for; `packing.flat` takes the array.

    begun: of tokens, how many are detokenized already, and their bytes.
    """

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

"""Lists that are larger than memory: all but the first items are in a temporary file (in $TMPDIR)."""

from __future__ import annotations

import os
import pickle
import tempfile
from array import array
from collections.abc import Iterable, Sequence
from typing import IO, Generic, TypeVar, overload

IN_MEMORY = 50_000  # items
ItemT = TypeVar("ItemT")


class Indexed(Sequence[ItemT], Generic[ItemT]):
    """A sequence by its `item(i)`."""

    def item(self, i: int) -> ItemT:
        raise NotImplementedError

    @overload
    def __getitem__(self, i: int) -> ItemT: ...
    @overload
    def __getitem__(self, i: slice) -> list[ItemT]: ...

    def __getitem__(self, i: int | slice) -> ItemT | list[ItemT]:
        places = range(len(self))[i]
        return self.item(places) if isinstance(places, int) else [self.item(place) for place in places]


class DiskList(Indexed[ItemT]):
    """A list of items that can be pickled. Those after the first IN_MEMORY are written to a file without a
    name, which is gone with the process; 8 bytes of each stay in memory."""

    def __init__(self, items: Iterable[ItemT] = ()):
        self.first, self.ends = list[ItemT](), array("Q", [0])
        self.file: IO[bytes] | None = None
        self.buffered = False
        for item in items:
            self.append(item)

    def append(self, item: ItemT) -> None:
        if len(self.first) < IN_MEMORY:
            self.first.append(item)
            return
        self.file = self.file or tempfile.TemporaryFile(prefix="postgrad-")
        self.ends.append(self.ends[-1] + self.file.write(pickle.dumps(item, pickle.HIGHEST_PROTOCOL)))
        self.buffered = True

    def __len__(self) -> int:
        return len(self.first) + len(self.ends) - 1

    def item(self, i: int) -> ItemT:
        if i < len(self.first):
            return self.first[i]
        assert self.file is not None
        if self.buffered:
            self.file.flush()
            self.buffered = False
        start, end = self.ends[i - len(self.first)], self.ends[i - len(self.first) + 1]
        found: ItemT = pickle.loads(os.pread(self.file.fileno(), end - start, start))
        return found

    def as_list(self) -> Sequence[ItemT]:
        """A list where nothing is on disk."""
        return self if self.file else self.first


class Selected(Indexed[ItemT]):
    """Some items of a sequence, by their places."""

    def __init__(self, items: Sequence[ItemT], places: Iterable[int]):
        self.items, self.places = items, array("Q", places)

    def __len__(self) -> int:
        return len(self.places)

    def item(self, i: int) -> ItemT:
        return self.items[self.places[i]]


def select(items: Sequence[ItemT], places: Iterable[int]) -> Sequence[ItemT]:
    """The items at these places: of a list a list, of others a view."""
    return [items[i] for i in places] if isinstance(items, list) else Selected(items, places)

"""Where a GPU ran out of memory: an error that knows the phase of the step it came from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class OutOfMemory(RuntimeError):
    """phase: sampling, scoring or training."""

    def __init__(self, phase: str):
        super().__init__(f"the GPU ran out of memory in {phase}")
        self.phase = phase


@contextmanager
def oom_phase(name: str) -> Iterator[None]:
    """A block in which running out of memory is that of the phase; of blocks inside each other, the
    innermost."""
    import torch
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(name) from error


def iterate_in_phase(name: str, items: Iterable[T]) -> Iterator[T]:
    """The items, each made in the phase; what is done with them is not."""
    made = iter(items)
    while True:
        with oom_phase(name):
            try:
                item = next(made)
            except StopIteration:
                return
        yield item

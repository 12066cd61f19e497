"""Out-of-memory errors that name the phase of the step: sampling, scoring or training."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class OutOfMemory(RuntimeError):
    """A device ran out of memory in this phase."""

    def __init__(self, phase: str):
        super().__init__(f"out of memory in {phase}")
        self.phase = phase


@contextmanager
def oom_phase(name: str) -> Iterator[None]:
    """Attributes an out-of-memory error inside the block to the phase; of nested blocks, the innermost."""
    import torch
    try:
        yield
    except (MemoryError, RuntimeError) as error:  # of a CPU torch raises a plain RuntimeError
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error):
            raise OutOfMemory(name) from error
        raise


def iterate_in_phase(name: str, items: Iterable[T]) -> Iterator[T]:
    """Iterates with `next` inside the phase and the loop body outside it."""
    made = iter(items)
    while True:
        with oom_phase(name):
            try:
                item = next(made)
            except StopIteration:
                return
        yield item

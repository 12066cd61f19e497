"""The block of code in which a CUDA graph is captured, and the one for whatever else a thread of this process
asks of the GPU: never both at once."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

_one_at_a_time = RLock()


@contextmanager
def capturing(tidy: bool = True) -> Iterator[None]:
    """For as long as the block lasts the garbage collector is off, and no thread is in `beside`. tidy: what
    it would have freed is freed before, for a graph that takes much memory.

    A model and its graphs know each other, so an earlier run's are freed by the collector, whenever it likes;
    freeing a graph while another is being captured makes the capture invalid. So does another thread that
    waits for the GPU.
    """
    with _one_at_a_time:
        if tidy:
            gc.collect()
        on = gc.isenabled()
        gc.disable()
        try:
            yield
        finally:
            if on:
                gc.enable()


@contextmanager
def outside_capture() -> Iterator[None]:
    """What a thread asks of the GPU beside the one that trains: after a capture that is under way."""
    with _one_at_a_time:
        yield

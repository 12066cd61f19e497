"""A block of code during which no garbage is collected: CUDA graphs are captured in one."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """For as long as the block lasts the collector is off, and what it would have freed is freed before.

    A model and its graphs know each other, so an earlier run's are freed by the collector, whenever it likes;
    freeing a graph while another is being captured makes the capture invalid.
    """
    gc.collect()
    on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if on:
            gc.enable()

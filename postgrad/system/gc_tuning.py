"""Tunes Python's cyclic garbage collector.

A step makes thousands of records, hardly any of them in reference cycles. The default of one collection every
700 allocations, some over everything that torch and its compiler have loaded, takes a tenth of the host's
time in a step.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

OBJECTS = 50_000  # allocations between two collections: half a dozen steps of 512 rollouts


@contextmanager
def seldom_collected() -> Iterator[None]:
    """A block with rare collections, which skip the objects that exist before it."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()

"""How often Python looks for objects that hold one another in a circle.

A step makes thousands of records, and what is in none of those circles goes as soon as nobody holds it.
Looking for circles every 700 of them, and now and then at all that torch and its compiler have loaded, took a
tenth of the host's time in a step.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

OBJECTS = 50_000  # that are made between two looks: half a dozen steps of 512 rollouts


@contextmanager
def seldom_collected() -> Iterator[None]:
    """For as long as the block lasts it is done seldom, and what was there before is not looked at."""
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()

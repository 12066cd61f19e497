"""Mutual exclusion between the capture of a CUDA graph and other threads' GPU work."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock

_one_at_a_time = RLock()


@contextmanager
def capturing(tidy: bool = True) -> Iterator[None]:
    """The block captures a CUDA graph: the garbage collector is off, and no thread is in `outside_capture`.
    tidy: collect before, for a large graph.

    A model and its graphs are a reference cycle; freeing an earlier run's graph invalidates a capture, and so
    does another thread that synchronises with the GPU.
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
    """The block uses the GPU from another thread than the training one; waits for a running capture."""
    with _one_at_a_time:
        yield

"""How code of others is called: whatever is to be awaited is awaited, and what it draws is fixed by the
episode's seed."""

from __future__ import annotations

import asyncio
import inspect
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """The one loop that everything asynchronous runs on: connections outlive a call."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="environments", daemon=True).start()
    return loop


def await_value(value: Any) -> Any:
    """The value itself, or what it comes to where it has to be awaited."""
    async def awaited() -> Any:
        return await value
    if not inspect.isawaitable(value):
        return value
    return asyncio.run_coroutine_threadsafe(awaited(), _loop()).result()


@contextmanager
def seeded_globals(rng: random.Random) -> Iterator[None]:
    """Whoever asks Python's or NumPy's global generator inside draws what the episode's seed says; outside,
    they go on where they were."""
    before, before_np = random.getstate(), np.random.get_state()
    random.seed(rng.getrandbits(64))
    np.random.seed(rng.getrandbits(32))
    try:
        yield
    finally:
        random.setstate(before)
        np.random.set_state(before_np)


def import_needed(module: str, what: str, install: str) -> ModuleType:
    """A package that is there only where somebody uses it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ValueError(f"{what} needs the package {install.partition('=')[0].partition('>')[0]} "
                         f"({error}): pip install '{install}'.") from error

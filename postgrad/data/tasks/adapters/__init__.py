"""Environments of other libraries, each behind an adapter that is imported when it is named.

env:trl:FILE.py:CLASS    a class for TRL's environment_factory
env:verifiers:NAME       a taskset of verifiers, scored in this process
env:openenv:ws://...     an OpenEnv server
env:skyrl:NAME:ROWS      an environment of skyrl-gym on rows of a file
"""

from __future__ import annotations

import asyncio
import inspect
import random
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from types import ModuleType
from typing import Any

import numpy as np

from postgrad.data.tasks.base import Task
from postgrad.models.chat.tools import ModelReply
from postgrad.records import Verdict

NAMES = ("env:KIND:SOURCE",)

EXAMPLES = {"trl": "env:trl:my_env.py:Counter", "verifiers": "env:verifiers:my-taskset",
            "openenv": "env:openenv:ws://localhost:8000", "skyrl": "env:skyrl:gsm8k:rows.jsonl"}

ForeignGame = Generator[Sequence[Mapping[str, Any]], ModelReply, Verdict]


def load(name: str, source: str) -> Task:
    """load("env", "trl:my_env.py:Counter")"""
    kind, _, rest = source.partition(":")
    if kind not in EXAMPLES or not rest:
        raise ValueError(f"there is no environment {name}:{source}: write {', '.join(EXAMPLES.values())}.")
    task: Task = import_module(f"postgrad.data.tasks.adapters.{kind}").load(rest)
    return task


@cache
def _loop() -> asyncio.AbstractEventLoop:
    """One event loop for everything asynchronous: connections outlive a call."""
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="environments", daemon=True).start()
    return loop


def await_value(value: Any) -> Any:
    """The value, awaited if it is awaitable."""
    async def awaited() -> Any:
        return await value
    if not inspect.isawaitable(value):
        return value
    return asyncio.run_coroutine_threadsafe(awaited(), _loop()).result()


@contextmanager
def seeded_globals(rng: random.Random) -> Iterator[None]:
    """Seeds Python's and NumPy's global generators from rng; restores their states on exit."""
    before, before_np = random.getstate(), np.random.get_state()
    random.seed(rng.getrandbits(64))
    np.random.seed(rng.getrandbits(32))
    try:
        yield
    finally:
        random.setstate(before)
        np.random.set_state(before_np)


def import_needed(module: str, what: str, install: str) -> ModuleType:
    """Imports a module of an optional package."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ValueError(f"{what} needs the package {install.partition('=')[0].partition('>')[0]} "
                         f"({error}): pip install '{install}'.") from error

"""Doors to environments that exist elsewhere, each an adapter that is imported when it is named.

env:trl:FILE.py:CLASS    a class as TRL's environment_factory takes it
env:verifiers:NAME       a taskset of verifiers, scored in this process
env:openenv:ws://...     an OpenEnv server
env:skyrl:NAME:ROWS      an environment of skyrl-gym on rows of a file
"""

from __future__ import annotations

from importlib import import_module

from postgrad.data.tasks.base import Task

NAMES = ("env:KIND:SOURCE",)

EXAMPLES = {"trl": "env:trl:my_env.py:Counter", "verifiers": "env:verifiers:my-taskset",
            "openenv": "env:openenv:ws://localhost:8000", "skyrl": "env:skyrl:gsm8k:rows.jsonl"}


def load(name: str, source: str) -> Task:
    """load("env", "trl:my_env.py:Counter")"""
    kind, _, rest = source.partition(":")
    if kind not in EXAMPLES or not rest:
        raise ValueError(f"there is no environment {name}:{source}: write {', '.join(EXAMPLES.values())}.")
    task: Task = import_module(f"postgrad.data.tasks.adapters.{kind}").load(rest)
    return task

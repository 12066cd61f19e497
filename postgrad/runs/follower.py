"""A run in a process that takes part in it and writes nothing: another one writes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self


class Follower:
    """What a training asks of its run, without a file. made: the steps that are behind it."""

    config: Mapping[str, object] = {}

    def __init__(self, folder: str | Path, made: int = 0):
        self.folder, self.next_step = Path(folder), made + 1

    @contextmanager
    def locked(self) -> Iterator[Self]:
        yield self

    def log(self, step: int, row: Mapping[str, object]) -> None:
        assert step == self.next_step, f"step {step} came where step {self.next_step} was next"
        self.next_step = step + 1

    def event(self, kind: str, text: str, step: int | None = None, **data: object) -> None:
        """Told by the process that writes."""

    def status(self, state: str, *, step: int | None = None, error: str | None = None) -> None:
        """Kept by the process that writes."""

"""Trainings in the terminal: the stages of several, and how a signal ends one."""

from __future__ import annotations

import signal
import sys
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path

from postgrad.runs.display import Watch, progress


class Stages:
    """The stages of the demo or a pipeline, each with a display of its own. intro: said before the first."""

    def __init__(self, quiet: bool, intro: str = ""):
        self.quiet, self.intro = quiet, "" if quiet else intro

    def begin(self) -> None:
        if self.intro:
            print(self.intro)
            self.intro = ""

    def stage(self, name: str, steps: int):
        self.begin()
        return nullcontext() if self.quiet else Watch(name, steps)

    def track(self, label: str):
        self.begin()
        return iter if self.quiet else partial(progress, label=label)


@contextmanager
def stopping(folder: Path, again: str):
    """A signal ends the command with its code, after saying how to go on; of several ranks the first says
    it."""
    from postgrad.system import processes
    from postgrad.system.signals import Stopped
    try:
        yield
    except Stopped as end:
        if processes.leads():
            print(f"\n{end}; saved. Go on with: {again}", file=sys.stderr)
        sys.exit(end.exit_code)
    except KeyboardInterrupt:
        if not any((folder / name).exists() for name in ("run.json", "pipeline.json")):
            raise
        print(f"\nstopped at once. Go on from the last checkpoint with: {again}", file=sys.stderr)
        sys.exit(128 + signal.SIGINT)

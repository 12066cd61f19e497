"""Checkpoints that are written while the run goes on: one thread, one checkpoint at a time.

What is written was copied before, so that the next steps can change what they like. A checkpoint becomes
visible whole or not at all (`Run.save`): a kill in the middle of one costs the steps since the last.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Thread
from types import TracebackType

from postgrad.runs.folder import Run
from postgrad.runs.follower import Follower


class Saves:
    """with Saves(run) as saves: saves.start(step, write, size) at a checkpoint, saves.check() at every step.

    At the end of the block, however it ends, the last one is on the disk. Of a Follower there is none.
    """

    def __init__(self, run: Run | Follower):
        self.run = run
        self.thread: Thread | None = None
        self.fault: BaseException | None = None

    def __enter__(self) -> Saves:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.wait()
        if error is None:
            self.check()
        elif self.fault is not None:
            error.add_note(f"a checkpoint could not be written either: {self.fault}")

    def start(self, step: int, write: Callable[[Path], None], size: int) -> None:
        """Begins to write a checkpoint, after the one before it is written."""
        self.wait()
        self.check()
        run = self.run
        assert isinstance(run, Run), "the process that writes saves"

        def work() -> None:
            try:
                run.save(step, write, size=size)
            except BaseException as error:  # raised where the run looks next
                self.fault = error

        self.thread = Thread(target=work, name=f"checkpoint {step}", daemon=True)
        self.thread.start()

    def now(self, step: int, write: Callable[[Path], None], size: int) -> None:
        """Writes a checkpoint of what was not copied."""
        self.wait()
        self.check()
        assert isinstance(self.run, Run), "the process that writes saves"
        self.run.save(step, write, size=size)

    def wait(self) -> None:
        if self.thread is not None:
            self.thread.join()
            self.thread = None

    def check(self) -> None:
        """Raises what a checkpoint failed with."""
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault

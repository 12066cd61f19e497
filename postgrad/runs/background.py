"""Checkpoints and sample rows that are written by a thread while the training goes on.

Building sample rows competes with the training for Python's interpreter lock. `SampleLog.later` therefore
puts off the models' part until the next step's first pass is under way, where the training mostly waits for
the GPU. A checkpoint starts after `SampleLog.wait`, so that it is never ahead of the rows in the file.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from threading import Thread
from types import TracebackType
from typing import Self

from postgrad.runs.folder import Follower, Run

Rows = Callable[[], Iterable[Mapping[str, object]]]


class BackgroundWriter:
    """One thread that runs jobs in order; a job waits for a place where `most` are queued.

    `check` raises what a job failed with; the jobs after it are dropped. The end of the `with` block waits
    for all jobs. A Follower writes nothing, so it has none.
    """

    what = "a file"

    def __init__(self, run: Run | Follower, most: int):
        self.run = run
        self.thread: Thread | None = None
        self.jobs: queue.Queue[Callable[[], object] | None] = queue.Queue(most)
        self.fault: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self.thread is not None:
            self.jobs.put(None)
            self.thread.join()
        if error is None:
            self.check()
        elif self.fault is not None:
            error.add_note(f"{self.what} could not be written either: {self.fault}")

    def writer(self) -> Run:
        assert isinstance(self.run, Run), "a follower writes nothing"
        return self.run

    def submit(self, job: Callable[[], object]) -> None:
        self.check()
        if self.thread is None:
            self.thread = Thread(target=self._work, name=self.what, daemon=True)
            self.thread.start()
        self.jobs.put(job)

    def wait(self) -> None:
        """Until the jobs so far have ended."""
        self.jobs.join()

    def check(self) -> None:
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault

    def _work(self) -> None:
        failed = False
        while (job := self.jobs.get()) is not None:
            try:
                if not failed:
                    job()
            except BaseException as error:  # raised by `check`
                self.fault, failed = error, True
            finally:
                self.jobs.task_done()


class Saves(BackgroundWriter):
    """with Saves(run) as saves: saves.start(step, write, size) at a checkpoint, saves.check() at every step.

    `write` fills the checkpoint's folder with copies, so that the next steps may change the originals.
    """

    what = "a checkpoint"

    def __init__(self, run: Run | Follower, keep: float = 2):
        """keep: newest checkpoints that stay, besides the best one; inf: all."""
        super().__init__(run, most=1)
        self.keep = keep

    def start(self, step: int, write: Callable[[Path], None], size: int) -> None:
        """Starts to write a checkpoint, once the one before it is written."""
        self.wait()
        self.submit(lambda: self._save(step, write, size))

    def now(self, step: int, write: Callable[[Path], None], size: int) -> None:
        """Writes a checkpoint before it returns: of state that is not copied."""
        self.wait()
        self.check()
        self._save(step, write, size)

    def _save(self, step: int, write: Callable[[Path], None], size: int) -> None:
        run = self.writer()
        best = run.best(step, *run.checkpoints())
        run.save(step, write, keep=self.keep, keep_steps=(best[0],) if best else (), size=size)


class SampleLog(BackgroundWriter):
    """with SampleLog(run) as samples: samples.log(step, rows), or samples.later(step, query).

    rows: a function that builds the rows; query: one that queries the models and returns `rows`.
    """

    what = "samples"

    def __init__(self, run: Run | Follower):
        super().__init__(run, most=2)
        self.pending: tuple[int, Callable[[], Rows]] | None = None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        try:
            self.ask()
        except Exception as fault:  # noqa: BLE001 - raised below, or noted on the error that ends the block
            self.fault = self.fault or fault
        super().__exit__(kind, error, trace)

    def later(self, step: int, query: Callable[[], Rows]) -> None:
        """Calls `query` at the next `ask`, which must come before the models change."""
        self.ask()
        self.pending = step, query

    def ask(self) -> None:
        """Runs the pending query, if there is one."""
        if self.pending is not None:
            (step, query), self.pending = self.pending, None
            self.log(step, query())

    def log(self, step: int, rows: Rows) -> None:
        self.submit(lambda: self.writer().log_samples(step, rows()))

    def wait(self) -> None:
        """Until all rows so far are written."""
        self.ask()
        super().wait()
        self.check()

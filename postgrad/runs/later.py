"""Sample rows that are asked for, made and written while the next step is computed: by one thread, in order.

Python runs one thread at a time, so rows that are made while the training asks a GPU for the next thing keep
both waiting. Models are therefore asked for them when the next step's first pass is under way; then the
training mostly waits.

A checkpoint is begun after `wait`, so that it never knows more than the rows that are in the file.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Mapping
from threading import Thread
from types import TracebackType

from postgrad.runs.folder import Run
from postgrad.runs.follower import Follower

AT_MOST = 2  # steps whose rows wait; past them a step waits for the thread

Rows = Callable[[], Iterable[Mapping[str, object]]]


class SampleLog:
    """with SampleLog(run) as samples: samples.log(step, rows), where the call of `rows` makes them; or
    samples.later(step, ask), where the call of `ask` asks the models and gives `rows`.

    At the end of the block, however it ends, all rows are written. Of a Follower there is none.
    """

    def __init__(self, run: Run | Follower):
        self.run = run
        self.unasked: tuple[int, Callable[[], Rows]] | None = None
        self.thread: Thread | None = None
        self.inbox: queue.Queue[tuple[int, Rows] | None] = queue.Queue(AT_MOST)
        self.fault: BaseException | None = None

    def __enter__(self) -> SampleLog:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        try:
            self.ask()
        except Exception as fault:  # noqa: BLE001 - raised below, or told with the error that ends the block
            self.fault = self.fault or fault
        if self.thread is not None:
            self.inbox.put(None)
            self.thread.join()
        if error is None:
            self.check()
        elif self.fault is not None:
            error.add_note(f"samples could not be written either: {self.fault}")

    def later(self, step: int, ask: Callable[[], Rows]) -> None:
        """Rows whose models are asked at the next call of `ask`, which has to come before they change."""
        self.ask()
        self.unasked = step, ask

    def ask(self) -> None:
        """Asks for the rows that were put off, if there are any."""
        if self.unasked is not None:
            (step, ask), self.unasked = self.unasked, None
            self.log(step, ask())

    def log(self, step: int, rows: Rows) -> None:
        self.check()
        if self.thread is None:
            self.thread = Thread(target=self._work, name="samples", daemon=True)
            self.thread.start()
        self.inbox.put((step, rows))

    def wait(self) -> None:
        """Until all rows so far are written."""
        self.ask()
        self.inbox.join()
        self.check()

    def check(self) -> None:
        """Raises what the rows failed with."""
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault

    def _work(self) -> None:
        assert isinstance(self.run, Run), "the process that writes logs samples"
        broken = False
        while (job := self.inbox.get()) is not None:
            try:
                if not broken:  # a step whose rows are missing is the last of the log
                    self.run.log_samples(job[0], job[1]())
            except BaseException as error:  # raised where the run looks next
                self.fault, broken = error, True
            finally:
                self.inbox.task_done()

"""The one process that writes a run: its lock, its rows and its status.

Left out on purpose: checkpoints and the way back to them (`folder`).
"""

from __future__ import annotations

import os
import signal
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from postgrad.runs import disk
from postgrad.runs.disk import RunBusy, RunGone
from postgrad.runs.reader import Reader
from postgrad.runs.rows import append, dumps, open_log, unreadable
from postgrad.system.files import DiskFull, write_text


class Writer(Reader):
    """A reader that can also write rows. The first write takes the lock."""

    def __init__(self, folder: str | Path, lock: int | None = None):
        super().__init__(folder)
        self._lock = lock
        self._files: dict[str, int] = {}  # log -> descriptor
        self._next: int | None = None
        self._id = None if lock is None else disk.file_id(lock)  # of the lock, once this process has held it
        _WRITERS.add(self)

    # the lock

    def _own(self) -> None:
        """Before every write: the lock is held, and the folder is the one it was taken in."""
        if self._id is not None and disk.file_id(self.folder / "lock") != self._id:
            raise RunGone(f"{self.folder} is no longer the folder of this run: it was removed or replaced "
                          f"while process {os.getpid()} was at work in it. Nothing more is written there; "
                          "start the run again under another name.")
        if self._lock is None:
            try:
                lock = disk.take_lock(self.folder / "lock")
            except BlockingIOError:
                pid = self._status().get("pid")
                raise RunBusy(f"process {pid} is training in {self.folder}: wait for it, stop it with `kill "
                              f"{pid}`, or start a run with another name") from None
            except OSError as error:
                raise ValueError(f"cannot write in {self.folder} ({unreadable(error)}): check "
                                 "its permissions") from error
            try:
                disk.refuse_links(self.folder)
            except BaseException:
                os.close(lock)
                raise
            # another process may have gone on since we read
            self._lock, self._id, self._next = lock, disk.file_id(lock), None

    def alive(self) -> bool:
        return self._lock is not None or super().alive()

    def stop(self) -> int:
        """Ask the process that trains here to save and leave, by SIGTERM; -> its id.

        A second time, it leaves at once.
        """
        pid = disk.holder(self.folder / "lock") or self._status().get("pid")
        if not self.alive() or not isinstance(pid, int) or pid < 2:
            raise ValueError(f"nobody is training in {self.folder}: there is nothing to stop.")
        if pid == os.getpid():
            raise ValueError(f"{self.folder} is trained by this very process: end it where it was started.")
        os.kill(pid, signal.SIGTERM)
        return pid

    def close(self) -> None:
        """Give the lock back; reading goes on working."""
        for fd in self._files.values():
            os.close(fd)
        self._files = {}
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextmanager
    def locked(self) -> Iterator[Self]:
        """Hold the lock for a block: with run.locked(): train(...)"""
        self._own()
        try:
            yield self
        finally:
            self.close()

    def __del__(self) -> None:
        if hasattr(self, "_files"):
            self.close()

    # writing rows

    @property
    def next_step(self) -> int:
        """The step that comes after the last one in the metrics."""
        if self._next is None:
            rows, _ = self.rows("metrics")
            self._next = int(rows[-1]["step"]) + 1 if rows else 1
        return self._next

    def log(self, step: int, row: Mapping[str, object]) -> None:
        """The metrics of one step; steps come in order, each once."""
        self._own()
        assert step == self.next_step, f"metrics of step {step} came where step {self.next_step} was next"
        self._append("metrics", step, row)
        self._next = step + 1

    def log_eval(self, step: int, row: Mapping[str, object]) -> None:
        self._append("evals", step, row)

    def log_samples(self, step: int, rows: Iterable[Mapping[str, object]]) -> None:
        for row in rows:
            self._append("samples", step, row)

    def event(self, kind: str, text: str, step: int | None = None, **data: object) -> None:
        """Something to tell. With a step it is undone when the run goes back before that step;
        without, it stays."""
        self._append("events", step, {"kind": kind, "text": text, "time": time.time(), "data": data})

    def _append(self, name: str, step: int | None, row: Mapping[str, object]) -> None:
        assert row.get("step", step) == step, f"a row of step {row.get('step')} was logged as step {step}"
        self._own()
        line = dumps({"step": step, **row}).encode() + b"\n"
        if name not in self._files:
            self._files[name] = open_log(self.folder / f"{name}.jsonl")
        try:
            append(self._files[name], line)
        except OSError as error:
            disk.raise_disk_error(self.folder, error, f"{name}.jsonl", len(line))

    def status(self, state: str, *, step: int | None = None, error: str | None = None) -> None:
        """Replace status.json at one stroke. No step: the last logged one.

        An end (not "running") gives the lock back.
        """
        assert state in ("running", "done", "stopped", "failed"), state
        self._own()
        text = dumps({"state": state, "pid": os.getpid(),
                      "step": self.next_step - 1 if step is None else step, "steps": self.info.get("steps"),
                      "updated": time.time(), "error": error})
        self._replace("status.json", text)
        if state != "running":
            self.close()

    def set_steps(self, steps: int) -> None:
        """The run is to have another length: in what was started, and in its config."""
        self._own()
        self.config, self.info = self.config | {"steps": steps}, self.info | {"steps": steps}
        self._replace("config.json", dumps(self.config, indent=1))
        self._replace("run.json", dumps(self.info, indent=1))

    def _replace(self, name: str, text: str) -> None:
        """A small file at one stroke."""
        try:
            write_text(self.folder / name, text + "\n")
        except DiskFull as fault:
            disk.raise_disk_error(self.folder, fault.__cause__ or fault, name, len(text))


# A forked child must not keep its parent's run locked after the parent's death, nor write in it.
_WRITERS: weakref.WeakSet[Writer] = weakref.WeakSet()


def _close_in_child() -> None:
    for writer in list(_WRITERS):
        writer.close()


os.register_at_fork(after_in_child=_close_in_child)

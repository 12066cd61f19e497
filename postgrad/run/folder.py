"""One run in one folder: create, log, save, resume, rewind, read.

Left out on purpose: how a file reaches the disk whole (`disk`) and what a line looks like (`rows`).
"""

from __future__ import annotations

import math
import os
import platform
import shlex
import shutil
import signal
import sys
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from postgrad.run import disk
from postgrad.run.disk import DamagedCheckpoint, RunBusy
from postgrad.run.rows import LOGS, append, cut, dumps, number, open_log, read_json, read_rows, read_step


class Run:
    """One training run in one folder. Readers open it freely; the first write takes the lock.

    run = Run.create("runs/first", recipe="grpo", config={"lr": 1e-4}, steps=100, method="grpo", model="embedded")
    run.log(1, {"loss": 0.7}); run.save(1, lambda folder: (folder / "weights").write_bytes(b"..."))
    Save last in a step: rows of a step that follow its save may be missing after a kill.
    """

    def __init__(self, folder: str | Path, lock: int | None = None):
        self.folder = Path(os.path.abspath(folder))
        self.info: dict = read_json(self.folder / "run.json")
        self.config: dict = read_json(self.folder / "config.json")
        self._lock, self._files, self._reported, self._next = lock, {}, set(), None
        _RUNS.add(self)

    @classmethod
    def create(cls, folder: str | Path, *, recipe: str, config: Mapping, steps: int,
               bring: Mapping[str, Path] | None = None, **facts) -> Run:
        """A new run. It is built beside the folder and renamed into place, so that no half-written run can exist.

        bring: folders that move into it, by the name they get there.
        """
        folder = Path(os.path.abspath(folder))
        disk.check_name(folder.name)
        disk.refuse_if_taken(folder)
        now = time.time()
        run = {"recipe": recipe, "steps": steps, "command": shlex.join(sys.argv), "python": platform.python_version(),
               "created": now, **facts}
        status = {"state": "running", "pid": os.getpid(), "step": 0, "steps": steps, "updated": now, "error": None}
        texts = {"run.json": dumps(run, indent=1), "config.json": dumps(config, indent=1), "status.json": dumps(status)}
        return cls(folder, disk.build(folder, texts, LOGS, bring or {}))

    @classmethod
    def open(cls, folder: str | Path) -> Run:
        """An existing run, to read or (after `resume`) to go on with."""
        folder = Path(os.path.abspath(folder))
        disk.refuse_if_none(folder)
        return cls(folder)

    # the lock

    def _own(self) -> None:
        if self._lock is None:
            try:
                self._lock = disk.take(self.folder / "lock")
                self._next = None  # another process may have gone on since we read
            except BlockingIOError:
                pid = self._status().get("pid")
                raise RunBusy(f"process {pid} is training in {self.folder}: wait for it, stop it with `kill {pid}`, "
                              "or start a run with another name") from None
            except OSError as error:
                raise ValueError(f"cannot write in {self.folder} ({error.strerror}): check its permissions") from error

    def alive(self) -> bool:
        """Is a process training here now? Asked of the lock, so a reused process id can't deceive."""
        return self._lock is not None or disk.is_held(self.folder / "lock")

    def stop(self) -> int:
        """Ask the process that trains here to save and leave, by SIGTERM; -> its id. A second time, it leaves at once."""
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
    def locked(self) -> Iterator[Run]:
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
            self._next = rows[-1]["step"] + 1 if rows else 1
        return self._next

    def log(self, step: int, row: Mapping) -> None:
        """The metrics of one step; steps come in order, each once."""
        self._own()
        assert step == self.next_step, f"metrics of step {step} came where step {self.next_step} was next"
        self._append("metrics", step, row)
        self._next = step + 1

    def log_eval(self, step: int, row: Mapping) -> None:
        self._append("evals", step, row)

    def log_samples(self, step: int, rows: Iterable[Mapping]) -> None:
        for row in rows:
            self._append("samples", step, row)

    def event(self, kind: str, text: str, step: int | None = None, **data) -> None:
        """Something to tell. With a step it is undone when the run goes back before that step; without, it stays."""
        self._append("events", step, {"kind": kind, "text": text, "time": time.time(), "data": data})

    def _append(self, name: str, step: int | None, row: Mapping) -> None:
        assert row.get("step", step) == step, f"a row of step {row.get('step')} was logged as step {step}"
        self._own()
        line = dumps({"step": step, **row}).encode() + b"\n"
        if name not in self._files:
            self._files[name] = open_log(self.folder / f"{name}.jsonl")
        try:
            append(self._files[name], line)
        except OSError as error:
            disk.fail(self.folder, error, f"{name}.jsonl", len(line))

    def status(self, state: str, *, step: int | None = None, error: str | None = None) -> None:
        """Replace status.json at one stroke. No step: the last logged one. An end (not "running") gives the lock back."""
        assert state in ("running", "done", "stopped", "failed"), state
        self._own()
        text = dumps({"state": state, "pid": os.getpid(), "step": self.next_step - 1 if step is None else step,
                      "steps": self.info.get("steps"), "updated": time.time(), "error": error})
        temp = self.folder / ".status.json.tmp"
        try:
            temp.write_text(text + "\n")
            os.replace(temp, self.folder / "status.json")
        except OSError as fault:
            temp.unlink(missing_ok=True)
            disk.fail(self.folder, fault, "status.json", len(text))
        if state != "running":
            self.close()

    # checkpoints

    def checkpoints(self) -> dict[int, Path]:
        """step -> folder, oldest first, verified or not."""
        return disk.steps(self.folder / "checkpoints")

    def save(self, step: int, write: Callable[[Path], None], keep: int = 2, keep_steps: Iterable[int] = (),
             size: int | None = None) -> Path:
        """A checkpoint: `write` fills a temp folder; hashed, synced and renamed, it becomes visible whole or not at all.

        The rows logged so far reach the disk before the rename, so that a checkpoint never knows more than the metrics.
        keep: newest checkpoints that stay, besides keep_steps. size: expected bytes, for the sentence when the disk is full.
        """
        self._own()
        assert keep >= 1 and self.next_step == step + 1, f"save({step}, keep={keep}) where step {self.next_step} is next"
        home = self.folder / "checkpoints"
        target, temp = home / f"{step:06d}", home / f".tmp-{step:06d}-{os.getpid()}"
        before = self.checkpoints()
        try:
            shutil.rmtree(temp, ignore_errors=True)
            temp.mkdir(parents=True)
            write(temp)
            disk.seal(temp, step)
            for name in LOGS:
                disk.fsync(self.folder / f"{name}.jsonl")
            disk.publish(temp, target)
        except BaseException as error:
            last = max((disk.size(path) for path in before.values()), default=0) if disk.is_full(error) else 0
            needed = size or max(last, disk.size(temp))
            shutil.rmtree(temp, ignore_errors=True)
            disk.put_back(home)
            if not disk.is_full(error):
                raise
            disk.fail(self.folder, error, f"checkpoints/{target.name}", needed)
        older, stay = [s for s in before if s < step], set(keep_steps)
        for s in older[: max(0, len(older) - keep + 1)]:
            if s not in stay:
                disk.discard(before[s])
        return target

    def verify(self, step: int) -> Path:
        """The checkpoint's folder, after every file was found, measured and hashed; else DamagedCheckpoint."""
        found = self.checkpoints()
        if step not in found:
            raise ValueError(f"{self.folder} has no checkpoint of step {step}; it has {list(found) or 'none'}")
        disk.check(found[step], step)
        return found[step]

    def latest(self) -> Path | None:
        """The newest checkpoint that verifies. A damaged one is skipped, and told in the events if this process writes."""
        for step in reversed(self.checkpoints()):
            try:
                return self.verify(step)
            except DamagedCheckpoint as error:
                if self._lock is not None and step not in self._reported:
                    self._reported.add(step)
                    self.event("damaged", str(error), checkpoint=step)
        return None

    def resume(self) -> Path | None:
        """Clean up, find the newest good checkpoint, go back to it. None: there was none, start from the first step."""
        self._own()
        home = self.folder / "checkpoints"
        home.mkdir(exist_ok=True)
        disk.put_back(home)
        for left in [*home.glob(".tmp-*"), *self.folder.glob(".*.tmp")]:
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        path = self.latest()
        if path is None and self.checkpoints():
            raise DamagedCheckpoint(f"every checkpoint in {home} is damaged (see events.jsonl): restore one from a copy, or "
                                    "start a new run from its config.json")
        step = int(path.name) if path else None
        lost = self.rewind(-1 if step is None else step)
        self.event("resumed", f"resumed after step {step}" if path else "no checkpoint: started again from the first step",
                   checkpoint=step, dropped=lost)
        self.status("running")
        return path

    def rewind(self, step: int) -> dict[str, int]:
        """Go back to the end of `step`: rows and checkpoints after it are removed. -> rows dropped, by file.

        A torn last line goes too. -1 goes back before the evaluations of step 0. Kept lines stay byte for byte. A kill on
        the way leaves a run that can be rewound again: newer checkpoints go first, then each file is replaced at one stroke.
        """
        self._own()
        seen = [row["step"] for row in self.rows("metrics")[0] if row["step"] <= step]
        if seen != list(range(1, step + 1)):
            odd = next((i + 1 for i, s in enumerate(seen) if s != i + 1), len(seen) + 1)
            raise ValueError(f"{self.folder / 'metrics.jsonl'} should hold each step from 1 to {step} once, and does not at "
                             f"step {odd}: restore the file, or go back to a checkpoint before that step")
        for s, path in self.checkpoints().items():
            if s > step:
                disk.discard(path)
        for fd in self._files.values():
            os.close(fd)
        self._files = {}
        lost = {}
        for name in LOGS:
            try:
                lost[name] = cut(self.folder / f"{name}.jsonl", step)
            except OSError as error:
                disk.fail(self.folder, error, f"{name}.jsonl", (self.folder / f"{name}.jsonl").stat().st_size)
        disk.fsync(self.folder)
        self._next = max(step, 0) + 1
        return lost

    # reading

    def rows(self, name: str, after: int = 0, most: int = -1) -> tuple[list[dict], int]:
        """The whole rows behind byte `after`, and the cursor for the next call. most: bytes to read at most (-1: all).

        A cursor from before a rewind that no longer stands on a line's start begins again at 0: replace rows by their step.
        """
        assert name in LOGS, name
        return read_rows(self.folder / f"{name}.jsonl", after, most)

    def at(self, name: str, step: int) -> tuple[list[dict], int | None, int | None]:
        """The rows of the newest logged step up to `step`, and the logged steps before and after it; a long log is not read."""
        assert name in LOGS, name
        return read_step(self.folder / f"{name}.jsonl", step)

    def curve(self, name: str) -> tuple[list[int], list[float]]:
        """Steps and values of a metric, from the metrics or else the evaluations; not-finite values as floats."""
        for log in ("metrics", "evals"):
            points = [(row["step"], number(row[name])) for row in self.rows(log)[0] if name in row]
            if points:
                return [s for s, _ in points], [v for _, v in points]
        return [], []

    def _status(self) -> dict:
        try:
            return read_json(self.folder / "status.json")
        except ValueError:
            return {"state": "unknown", "pid": None, "step": 0, "steps": self.info.get("steps"), "updated": None, "error": None}

    def state(self) -> dict:
        """status.json as it is true now: "running" with nobody behind it reads "interrupted"."""
        status = self._status()
        return {**status, "state": "interrupted"} if status.get("state") == "running" and not self.alive() else status

    def summary(self, points: int = 32) -> dict:
        """One row of the list of runs; `series` is the reward (or accuracy, or loss) at up to `points` steps."""
        status, (rows, _), (evals, _) = self.state(), self.rows("metrics"), self.rows("evals")
        shown = next((n for n in ("reward", "accuracy", "loss") if any(n in row for row in rows)), None)
        series = [number(row[shown]) for row in rows if shown in row] if shown else []
        every = max(1, math.ceil(len(series) / points))
        passed = [row["pass@1"] for row in evals if "pass@1" in row]
        return {
            "name": self.folder.name, **{k: self.info.get(k) for k in ("recipe", "method", "model", "task", "created")},
            "state": status.get("state"), "error": status.get("error"), "updated": status.get("updated"),
            "step": rows[-1]["step"] if rows else 0, "steps": self.info.get("steps"),
            "seconds": sum(x for row in rows if math.isfinite(x := number(row.get("time/step")))),
            "reward": next((number(row["reward"]) for row in reversed(rows) if "reward" in row), None),
            "pass@1": number(passed[-1]) if passed else None,
            "series_name": shown, "series": [x for x in series[::-1][::every][::-1] if math.isfinite(x)],
        }


def list_runs(folder: str | Path) -> list[dict]:
    """Summaries of the runs in a folder, newest first. A run that can't be read is listed as "broken" with the reason."""
    found = []
    for path in Path(folder).glob("*/run.json"):
        try:
            disk.check_name(path.parent.name)
            found.append(Run.open(path.parent).summary())
        except (ValueError, OSError) as error:
            found.append({"name": path.parent.name, "state": "broken", "error": str(error), "created": None, "series": []})
    return sorted(found, key=lambda run: (-(run["created"] or 0), run["name"]))


# A forked child must not keep its parent's run locked after the parent's death, nor write in it.
_RUNS: weakref.WeakSet[Run] = weakref.WeakSet()
os.register_at_fork(after_in_child=lambda: [run.close() for run in list(_RUNS)])

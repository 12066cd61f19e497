"""One run in one folder: read it, write its rows, save, resume, rewind; and the list of runs.

Left out on purpose: how a file reaches the disk complete (`disk`) and what a line looks like (`rows`).
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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from postgrad.runs import disk
from postgrad.runs.disk import DamagedCheckpoint, RunBusy, RunGone
from postgrad.runs.frame import as_columns, merge_steps
from postgrad.runs.rows import (
    LOGS,
    JsonDict,
    append,
    changed_logs,
    cut_log,
    dumps,
    log_sums,
    number,
    open_log,
    read_json,
    read_log,
    read_step,
    unreadable,
)
from postgrad.system.files import DiskFull, is_full, write_text
from postgrad.system.renamed import translate_config, translate_info

BEST = ("pass@1", "accuracy", "reward", "loss")  # figures of evaluations, the first that a run has decides
LOWER = ("loss", "ece", "kl_reply")  # is better


class Run:
    """One training run in one folder. Any number of processes read it; the first write takes the lock.

    run = Run.create("runs/first", recipe="grpo", config={"lr": 1e-4}, steps=100, method="grpo",
        model="embedded")
    run.log(1, {"loss": 0.7}); run.save(1, lambda folder: (folder / "weights").write_bytes(b"..."))
    run.curve("loss") -> ([1], [0.7])
    Save last in a step: rows that follow the save of their step may be missing after a kill.
    """

    def __init__(self, folder: str | Path, lock: int | None = None):
        self.folder = Path(os.path.abspath(folder))
        self.info: JsonDict = translate_info(read_json(self.folder / "run.json"))
        self.config: JsonDict = translate_config(read_json(self.folder / "config.json"))
        self.damaged: dict[int, str] = {}  # checkpoints that `latest` skipped, and what is wrong with them
        self.changed_logs: list[str] = []  # what is wrong with the logs, as `newest` saw it
        self._lock = lock
        self._lock_id = None if lock is None else disk.file_id(lock)  # once this process has held it
        self._files: dict[str, int] = {}  # log -> descriptor
        self._next: int | None = None
        _OPEN.add(self)

    @classmethod
    def create(cls, folder: str | Path, *, recipe: str, config: Mapping[str, object], steps: int,
               bring: Mapping[str, Path] | None = None, **facts: object) -> Run:
        """A new run, built beside the folder and renamed into place: no half-written run can exist.

        bring: folders that move into it, by their name there.
        """
        folder = Path(os.path.abspath(folder))
        disk.check_name(folder.name)
        disk.refuse_if_taken(folder)
        now = time.time()
        run = {"recipe": recipe, "steps": steps, "command": shlex.join(sys.argv),
               "python": platform.python_version(), "created": now, **facts, "config": config}
        status = {"state": "running", "pid": os.getpid(), "step": 0, "steps": steps, "updated": now,
                  "error": None}
        texts = {"run.json": dumps(run, indent=1), "config.json": dumps(config, indent=1),
                 "status.json": dumps(status)}
        return cls(folder, disk.build_run_folder(folder, texts, LOGS, bring or {}))

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        """An existing run, to read or (after `resume`) to continue."""
        folder = Path(os.path.abspath(folder))
        disk.refuse_if_none(folder)
        return cls(folder)

    # reading

    def started(self) -> tuple[str, int]:
        """The recipe and the number of steps that the run was started with."""
        recipe, steps = self.info.get("recipe"), self.info.get("steps")
        if isinstance(recipe, str) and isinstance(steps, int):
            return recipe, steps
        key, value = ("steps", steps) if isinstance(recipe, str) else ("recipe", recipe)
        raise ValueError(f"{self.folder / 'run.json'}: {key} is {value!r:.60}: the run is broken; restore "
                         "the file from a copy")

    def edited_settings(self) -> dict[str, tuple[object, object]]:
        """Settings of config.json that are not those the run began with: name -> (at the start, now).

        The number of steps may change (`set_steps`). {} for a run of 0.1, which has no copy in run.json.
        """
        began = self.info.get("config")
        if not isinstance(began, dict):
            return {}
        before, now = config_leaves(translate_config(began)), config_leaves(self.config)
        return {name: (before.get(name), now.get(name)) for name in {**before, **now}
                if name != "steps" and before.get(name) != now.get(name)}

    def rows(self, name: str, after: int = 0, most: int = -1) -> tuple[list[JsonDict], int]:
        """The complete rows behind byte `after` of a log, and the cursor for the next call.

        most: bytes to read at most (-1: all). After a rewind, a cursor that is no longer at the start of a
        line begins again at 0: replace rows by their step.
        """
        assert name in LOGS, name
        rows, cursor = read_log(self.folder / f"{name}.jsonl", after, most)
        return [row for row in rows if row["step"] is not None or name == "events"], cursor

    def at(self, name: str, step: int) -> tuple[list[JsonDict], int | None, int | None]:
        """The rows of the newest logged step up to `step`, and the logged steps before and after it, by
        bisection: a long log is not read through."""
        assert name in LOGS, name
        return read_step(self.folder / f"{name}.jsonl", step)

    def curve(self, name: str) -> tuple[list[int], list[float]]:
        """Steps and values of a metric, from the metrics, else from the evaluations."""
        for log in ("metrics", "evals"):
            points = [(row["step"], number(row[name])) for row in self.rows(log)[0] if name in row]
            if points:
                return [s for s, _ in points], [v for _, v in points]
        return [], []

    def frame(self) -> dict[str, list[float]]:
        """The figures of all steps as columns, those of evaluations as eval/NAME; nan where a step has none.

        pandas.DataFrame(run.frame()), polars.DataFrame(run.frame()), numpy.array(run.frame()["reward"])
        """
        return as_columns(merge_steps(self.rows("metrics")[0], self.rows("evals")[0]))

    def checkpoints(self) -> dict[int, Path]:
        """step -> folder, oldest first, not verified."""
        return disk.checkpoint_folders(self.folder / "checkpoints")

    def best(self, *steps: int) -> tuple[int, str, float] | None:
        """(step, figure, value) of the checkpoint with the best evaluation, the later of equals.

        steps: to choose among, by default those of the checkpoints. None where none of them was evaluated.
        """
        among, (name, sign, values) = set(steps or self.checkpoints()), self.figures()
        found = [(value, step) for step, value in values.items() if step in among and value > -math.inf]
        return (max(found)[1], name, sign * max(found)[0]) if found else None

    def figures(self) -> tuple[str, int, dict[int, float]]:
        """(name, sign, {step: sign * value}) of the figure that decides which evaluation is best, the larger
        the better: evaluation.metric, else held-out pass@1, accuracy, reward or loss, the first that the run
        has. -inf where an evaluation lacks it."""
        rows = self.rows("evals")[0]
        there = (name for name in BEST for row in rows if math.isfinite(number(row.get(name))))
        name = self._evaluation("metric") or next(there, BEST[0])
        sign = -1 if name in LOWER else 1
        values = {row["step"]: sign * number(row.get(name)) for row in rows}
        return name, sign, {step: x if math.isfinite(x) else -math.inf for step, x in values.items()}

    def worn_out(self) -> str:
        """A sentence where evaluation.patience evaluations in a row were no better than the best before
        them; else ""."""
        (name, sign, values), patience = self.figures(), self._evaluation("patience") or 0
        best = max(values, key=values.__getitem__, default=0)  # the first of equals
        if not patience or not values or len(values) - 1 - [*values].index(best) < patience:
            return ""
        return (f"early stop: no better {name} in {patience} evaluations, the best is "
                f"{sign * values[best]:.3g} at step {best}")

    def _evaluation(self, name: str) -> Any:
        """A setting of the run's evaluations; None where it has none."""
        evaluation = self.config.get("evaluation")
        return evaluation.get(name) if isinstance(evaluation, dict) else None

    def checkpoint_sentence(self) -> str:
        """The newest checkpoint and the best, and how they are named; "" where there is none."""
        place, steps, best = os.path.relpath(self.folder), [*self.checkpoints()], self.best()
        if not steps:
            return ""
        newest = f"checkpoints: {', '.join(map(str, steps))}, the newest is {place}"
        return newest + (f", the best {place}@best (step {best[0]}, {best[1]} {best[2]:.3g})" if best else "")

    def verify(self, step: int) -> Path:
        """The checkpoint's folder, after the size and sha256 of every file are checked."""
        folders = self.checkpoints()
        if step not in folders:
            raise ValueError(f"{self.folder} has no checkpoint of step {step}; it has "
                             f"{list(folders) or 'none'}")
        disk.check_checkpoint(folders[step], step)
        return folders[step]

    def alive(self) -> bool:
        """Whether a process is training here now, by the lock: a process id may be reused."""
        return self._lock is not None or disk.is_held(self.folder / "lock")

    def _status(self) -> JsonDict:
        try:
            return read_json(self.folder / "status.json")
        except ValueError:
            return {"state": "unknown", "pid": None, "step": 0, "steps": self.info.get("steps"),
                    "updated": None, "error": None}

    def state(self) -> JsonDict:
        """status.json; "running" without a process reads "interrupted"."""
        status = self._status()
        return ({**status, "state": "interrupted"} if status.get("state") == "running" and not self.alive()
                else status)

    def summary(self, points: int = 32) -> JsonDict:
        """One row of the list of runs; `series`: the reward, accuracy or loss at up to `points` steps."""
        status, (rows, _), (evals, _) = self.state(), self.rows("metrics"), self.rows("evals")
        main = next((n for n in ("reward", "accuracy", "loss") if any(n in row for row in rows)), None)
        series = [number(row[main]) for row in rows if main in row] if main else []
        every = max(1, math.ceil(len(series) / points))
        passed = [row["pass@1"] for row in evals if "pass@1" in row]

        def text(value: object) -> str | None:
            return None if value is None else str(value)

        return {
            "name": self.folder.name,
            **{key: text(self.info.get(key)) for key in ("recipe", "method", "model", "task")},
            "created": created if math.isfinite(created := number(self.info.get("created"))) else None,
            "state": text(status.get("state")), "error": text(status.get("error")),
            "updated": status.get("updated"),
            "step": rows[-1]["step"] if rows else 0, "steps": self.info.get("steps"),
            "seconds": sum(x for row in rows if math.isfinite(x := number(row.get("time/step")))),
            "reward": next((number(row["reward"]) for row in reversed(rows) if "reward" in row), None),
            "pass@1": number(passed[-1]) if passed else None,
            "series_name": main, "series": [x for x in series[::-1][::every][::-1] if math.isfinite(x)],
        }

    def __repr__(self) -> str:
        """Run(runs/words: grpo, finished, step 40 of 40, best pass@1 0.61 at step 30)"""
        state, rows, evaluated = self.state().get("state"), self.rows("metrics")[0], self.figures()[2]
        words = [str(self.info.get("method") or self.info.get("recipe")),
                 "finished" if state == "done" else str(state),
                 f"step {rows[-1]['step'] if rows else 0} of {self.info.get('steps')}"]
        if best := self.best(*evaluated):
            words.append(f"best {best[1]} {best[2]:.3g} at step {best[0]}")
        return f"{type(self).__name__}({os.path.relpath(self.folder)}: {', '.join(words)})"

    # the lock

    def _own(self) -> None:
        """Before every write: the lock is held, and the folder is the one it was taken in."""
        if self._lock_id is not None and disk.file_id(self.folder / "lock") != self._lock_id:
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
            # another process may have written since the last read
            self._lock, self._lock_id, self._next = lock, disk.file_id(lock), None

    def stop(self) -> int:
        """Sends SIGTERM to the process that trains here: it saves and ends; a second SIGTERM ends it at once.
        -> its id."""
        pid = disk.holder(self.folder / "lock") or self._status().get("pid")
        if not self.alive() or not isinstance(pid, int) or pid < 2:
            raise ValueError(f"nobody is training in {self.folder}: there is nothing to stop.")
        if pid == os.getpid():
            raise ValueError(f"{self.folder} is trained by this very process: end it where it was started.")
        os.kill(pid, signal.SIGTERM)
        return pid

    def close(self) -> None:
        """Releases the lock; the run can still be read."""
        self._close_logs()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _close_logs(self) -> None:
        for fd in self._files.values():
            os.close(fd)
        self._files = {}

    @contextmanager
    def locked(self) -> Iterator[Self]:
        """Holds the lock for a block: with run.locked(): train(...)"""
        self._own()
        try:
            yield self
        finally:
            self.close()

    def __del__(self) -> None:
        if hasattr(self, "_files"):
            self.close()

    # writing

    @property
    def next_step(self) -> int:
        """The step after the last one in the metrics."""
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
        """An event. With a step it is removed by a rewind to before that step; without, it stays."""
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
        """Replaces status.json. step: by default the last logged one. Any state but "running" releases the
        lock."""
        assert state in ("running", "done", "stopped", "failed"), state
        self._own()
        text = dumps({"state": state, "pid": os.getpid(),
                      "step": self.next_step - 1 if step is None else step, "steps": self.info.get("steps"),
                      "updated": time.time(), "error": error})
        self._replace("status.json", text)
        if state != "running":
            self.close()

    def set_steps(self, steps: int) -> None:
        """Changes the number of steps, in run.json and config.json."""
        self._own()
        self.config, self.info = self.config | {"steps": steps}, self.info | {"steps": steps}
        self._replace("config.json", dumps(self.config, indent=1))
        self._replace("run.json", dumps(self.info, indent=1))

    def _replace(self, name: str, text: str) -> None:
        try:
            write_text(self.folder / name, text + "\n")
        except DiskFull as fault:
            disk.raise_disk_error(self.folder, fault.__cause__ or fault, name, len(text))

    # checkpoints

    def save(self, step: int, write: Callable[[Path], None], keep: float = 2, keep_steps: Iterable[int] = (),
             size: int | None = None) -> Path:
        """A checkpoint: `write` fills a temporary folder, which is hashed, synced and renamed into place.

        The rows logged so far reach the disk first, so that a checkpoint is never ahead of the metrics.
        keep: newest checkpoints that stay (inf: all), besides keep_steps. size: expected bytes, for the
        error when the disk is full.
        """
        self._own()
        assert keep >= 1 and self.next_step > step, (
            f"save({step}, keep={keep}) where step {self.next_step} is next")
        home = self.folder / "checkpoints"
        target, temp = home / f"{step:06d}", home / f".tmp-{step:06d}-{os.getpid()}"
        before = self.checkpoints()
        try:
            shutil.rmtree(temp, ignore_errors=True)
            temp.mkdir(parents=True)
            write(temp)
            disk.seal(temp, step, log_sums(self.folder, step))
            for name in LOGS:
                disk.fsync(self.folder / f"{name}.jsonl")
            self._own()  # the folder may have been replaced during the write
            disk.publish(temp, target)
        except BaseException as error:
            self._own()
            last = max((disk.folder_bytes(path) for path in before.values()),
                       default=0) if is_full(error) else 0
            needed = size or max(last, disk.folder_bytes(temp))
            shutil.rmtree(temp, ignore_errors=True)
            disk.put_back(home)
            disk.raise_disk_error(self.folder, error, f"checkpoints/{target.name}", needed)
        older, stay = [s for s in before if s < step], set(keep_steps)
        for s in older[: int(max(0, len(older) - keep + 1))]:
            if s not in stay:
                disk.discard(before[s])
        return target

    def latest(self, among: Collection[int] | None = None) -> Path | None:
        """The newest checkpoint that verifies, of these steps. A damaged one is skipped, with an event if
        this process writes."""
        for step in [step for step in reversed(self.checkpoints()) if among is None or step in among]:
            try:
                return self.verify(step)
            except DamagedCheckpoint as error:
                if self._lock is not None and step not in self.damaged:
                    self.event("damaged", str(error), checkpoint=step)
                self.damaged[step] = str(error)
        return None

    def resume(self) -> Path | None:
        """Rewinds to the newest checkpoint that verifies; None: there is none, start from the first step."""
        path = self.newest()
        self.go_back(path)
        return path

    def newest(self, among: Collection[int] | None = None) -> Path | None:
        """The checkpoint to resume from, of these steps, after the remains of a kill are removed; nothing is
        rewound."""
        self._own()
        home = self.folder / "checkpoints"
        home.mkdir(exist_ok=True)
        disk.put_back(home)
        for left in [*home.glob(".tmp-*"), *self.folder.glob(".*.tmp*")]:
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        path = self.latest(among)
        if path is None and among is None and self.checkpoints():
            raise DamagedCheckpoint(f"every checkpoint in {home} is damaged (see events.jsonl): restore one "
                                    "from a copy, or start a new run from its config.json")
        sums = read_json(path / "manifest.json").get("logs") if path else None
        self.changed_logs = changed_logs(self.folder, sums)
        for sentence in self.changed_logs:
            self.event("damaged", sentence)
        return path

    def go_back(self, path: Path | None) -> None:
        """Rewinds to a checkpoint that `newest` gave, or to the beginning; the state is "running" again."""
        step = int(path.name) if path else None
        lost = self.rewind(-1 if step is None else step)
        self.event("resumed", f"resumed after step {step}" if path
                   else "no checkpoint: started again from the first step", checkpoint=step, dropped=lost)
        self.status("running")

    def rewind(self, step: int) -> dict[str, int]:
        """Removes the rows and checkpoints after `step`, and a torn last line; -> rows removed, by log.

        -1 removes the evaluations of step 0 too. The other lines stay byte for byte. After a kill on the way
        the run can be rewound again: newer checkpoints go first, then each log is replaced atomically.
        """
        self._own()
        steps = [row["step"] for row in self.rows("metrics")[0] if row["step"] <= step]
        if steps != list(range(1, step + 1)):
            odd = next((i + 1 for i, s in enumerate(steps) if s != i + 1), len(steps) + 1)
            raise ValueError(f"{self.folder / 'metrics.jsonl'} should hold each step from 1 to {step} once, "
                             f"and does not at step {odd}: restore the file, or go back to a checkpoint "
                             "before that step")
        for s, path in self.checkpoints().items():
            if s > step:
                disk.discard(path)
        self._close_logs()
        lost = {}
        for name in LOGS:
            try:
                lost[name] = cut_log(self.folder / f"{name}.jsonl", step)
            except OSError as error:
                disk.raise_disk_error(self.folder, error, f"{name}.jsonl",
                                      (self.folder / f"{name}.jsonl").stat().st_size)
        disk.fsync(self.folder)
        self._next = max(step, 0) + 1
        return lost


# A forked child must not keep its parent's run locked after the parent's death, nor write in it.
_OPEN: weakref.WeakSet[Run] = weakref.WeakSet()


def _close_in_child() -> None:
    for run in list(_OPEN):
        run.close()


os.register_at_fork(after_in_child=_close_in_child)


class Follower:
    """The run of a rank that does not write: what a training asks of its Run, without a file.

    done: steps of the run so far.
    """

    config: Mapping[str, object] = {}

    def __init__(self, folder: str | Path, done: int = 0):
        self.folder, self.next_step = Path(folder), done + 1

    @contextmanager
    def locked(self) -> Iterator[Self]:
        yield self

    def log(self, step: int, row: Mapping[str, object]) -> None:
        assert step == self.next_step, f"step {step} came where step {self.next_step} was next"
        self.next_step = step + 1

    def event(self, kind: str, text: str, step: int | None = None, **data: object) -> None:
        """Logged by the rank that writes."""

    def status(self, state: str, *, step: int | None = None, error: str | None = None) -> None:
        """Written by the rank that writes."""


def config_leaves(tree: JsonDict, prefix: str = "") -> JsonDict:
    """{"optim": {"lr": 0.1}} -> {"optim.lr": 0.1}"""
    return {name: leaf for key, value in tree.items()
            for name, leaf in (config_leaves(value, f"{prefix}{key}.").items() if isinstance(value, dict)
                               else [(f"{prefix}{key}", value)])}


def list_runs(folder: str | Path) -> list[JsonDict]:
    """Summaries of the runs in a folder, newest first; one that cannot be read is "broken", with the
    reason."""
    runs: list[JsonDict] = []
    for path in Path(folder).glob("*/run.json"):
        try:
            disk.check_name(path.parent.name)
            runs.append(Run.open(path.parent).summary())
        except Exception as error:  # one broken run must not hide the others
            runs.append({"name": path.parent.name, "state": "broken", "created": None, "series": [],
                         "error": str(error) or type(error).__name__})
    return sorted(runs, key=lambda run: (-(run["created"] or 0), run["name"]))

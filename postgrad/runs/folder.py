"""One run in one folder: create, open, save, resume, rewind; and the list of runs.

Left out on purpose: reading (`reader`), the lock and the rows (`writer`), how a file reaches the disk whole
(`disk`) and what a line looks like (`rows`).
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Self

from postgrad.runs import disk
from postgrad.runs.disk import DamagedCheckpoint
from postgrad.runs.rows import LOGS, JsonDict, cut_log, dumps
from postgrad.runs.writer import Writer
from postgrad.system.files import is_full


class Run(Writer):
    """One training run in one folder. Readers open it freely; the first write takes the lock.

    run = Run.create("runs/first", recipe="grpo", config={"lr": 1e-4}, steps=100, method="grpo",
        model="embedded")
    run.log(1, {"loss": 0.7}); run.save(1, lambda folder: (folder / "weights").write_bytes(b"..."))
    Save last in a step: rows of a step that follow its save may be missing after a kill.
    """

    def __init__(self, folder: str | Path, lock: int | None = None):
        super().__init__(folder, lock)
        self.passed_over: dict[int, str] = {}  # damaged checkpoints that `latest` met, and what is wrong

    @classmethod
    def create(cls, folder: str | Path, *, recipe: str, config: Mapping[str, object], steps: int,
               bring: Mapping[str, Path] | None = None, **facts: object) -> Run:
        """A new run. It is built beside the folder and renamed into place,
        so that no half-written run can exist.

        bring: folders that move into it, by the name they get there.
        """
        folder = Path(os.path.abspath(folder))
        disk.check_name(folder.name)
        disk.refuse_if_taken(folder)
        now = time.time()
        run = {"recipe": recipe, "steps": steps, "command": shlex.join(sys.argv),
               "python": platform.python_version(), "created": now, **facts}
        status = {"state": "running", "pid": os.getpid(), "step": 0, "steps": steps, "updated": now,
                  "error": None}
        texts = {"run.json": dumps(run, indent=1), "config.json": dumps(config, indent=1),
                 "status.json": dumps(status)}
        return cls(folder, disk.build_run_folder(folder, texts, LOGS, bring or {}))

    @classmethod
    def open(cls, folder: str | Path) -> Self:
        """An existing run, to read or (after `resume`) to go on with."""
        folder = Path(os.path.abspath(folder))
        disk.refuse_if_none(folder)
        return cls(folder)

    def save(self, step: int, write: Callable[[Path], None], keep: int = 2, keep_steps: Iterable[int] = (),
             size: int | None = None) -> Path:
        """A checkpoint: `write` fills a temp folder; hashed, synced and renamed,
        it becomes visible whole or not at all.

        The rows logged so far reach the disk before the rename,
        so that a checkpoint never knows more than the metrics.
        keep: newest checkpoints that stay, besides keep_steps. size:
        expected bytes, for the sentence when the disk is full.
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
            disk.seal(temp, step)
            for name in LOGS:
                disk.fsync(self.folder / f"{name}.jsonl")
            self._own()  # writing took its time
            disk.publish(temp, target)
        except BaseException as error:
            self._own()
            last = max((disk.folder_bytes(path) for path in before.values()),
                       default=0) if is_full(error) else 0
            needed = size or max(last, disk.folder_bytes(temp))
            shutil.rmtree(temp, ignore_errors=True)
            disk.put_back(home)
            if not is_full(error):
                raise
            disk.raise_disk_error(self.folder, error, f"checkpoints/{target.name}", needed)
        older, stay = [s for s in before if s < step], set(keep_steps)
        for s in older[: max(0, len(older) - keep + 1)]:
            if s not in stay:
                disk.discard(before[s])
        return target

    def latest(self) -> Path | None:
        """The newest checkpoint that verifies.

        A damaged one is skipped, and told in the events if this process writes.
        """
        for step in reversed(self.checkpoints()):
            try:
                return self.verify(step)
            except DamagedCheckpoint as error:
                if self._lock is not None and step not in self.passed_over:
                    self.event("damaged", str(error), checkpoint=step)
                self.passed_over[step] = str(error)
        return None

    def resume(self) -> Path | None:
        """Clean up, find the newest good checkpoint, go back to it.

        None: there was none, start from the first step.
        """
        path = self.newest()
        self.go_back(path)
        return path

    def newest(self) -> Path | None:
        """The checkpoint to go on from, after clearing away what a kill left; the run stays as it is."""
        self._own()
        home = self.folder / "checkpoints"
        home.mkdir(exist_ok=True)
        disk.put_back(home)
        for left in [*home.glob(".tmp-*"), *self.folder.glob(".*.tmp*")]:
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        path = self.latest()
        if path is None and self.checkpoints():
            raise DamagedCheckpoint(f"every checkpoint in {home} is damaged (see events.jsonl): restore one "
                                    "from a copy, or start a new run from its config.json")
        return path

    def go_back(self, path: Path | None) -> None:
        """To a checkpoint that `newest` gave, or to the beginning: from here on the run is running again."""
        step = int(path.name) if path else None
        lost = self.rewind(-1 if step is None else step)
        self.event("resumed", f"resumed after step {step}" if path
                   else "no checkpoint: started again from the first step", checkpoint=step, dropped=lost)
        self.status("running")

    def rewind(self, step: int) -> dict[str, int]:
        """Go back to the end of `step`: rows and checkpoints after it are removed. -> rows dropped, by file.

        A torn last line goes too. -1 goes back before the evaluations of step 0. Kept lines stay byte for
        byte. A kill on the way leaves a run that can be rewound again: newer checkpoints go first, then each
        file is replaced at one stroke.
        """
        self._own()
        seen = [row["step"] for row in self.rows("metrics")[0] if row["step"] <= step]
        if seen != list(range(1, step + 1)):
            odd = next((i + 1 for i, s in enumerate(seen) if s != i + 1), len(seen) + 1)
            raise ValueError(f"{self.folder / 'metrics.jsonl'} should hold each step from 1 to {step} once, "
                             f"and does not at step {odd}: restore the file, or go back to a checkpoint "
                             "before that step")
        for s, path in self.checkpoints().items():
            if s > step:
                disk.discard(path)
        for fd in self._files.values():
            os.close(fd)
        self._files = {}
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


def list_runs(folder: str | Path) -> list[JsonDict]:
    """Summaries of the runs in a folder, newest first.

    A run that can't be read is listed as "broken" with the reason.
    """
    found = []
    for path in Path(folder).glob("*/run.json"):
        try:
            disk.check_name(path.parent.name)
            found.append(Run.open(path.parent).summary())
        except Exception as error:  # whatever is wrong with one run, the others are listed
            found.append({"name": path.parent.name, "state": "broken", "created": None, "series": [],
                          "error": str(error) or type(error).__name__})
    return sorted(found, key=lambda run: (-(run["created"] or 0), run["name"]))

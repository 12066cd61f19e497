"""The runs in a folder, as the studio reads them: which there are, and each one's numbers,
read once and then by cursor.

A run's id is its path under the runs folder: "grpo-words-1", or "demo/rl" for a run that a
pipeline or the demo made.
Left out on purpose: what a run folder looks like (`postgrad.runs`),
and any state that a restart of the server would lose.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import sys
import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import NamedTuple, cast
from urllib.parse import quote

from postgrad.runs import Run, check_name, dumps, number
from postgrad.runs.disk import is_held
from postgrad.runs.notes import NOTES, RunNote, read_note
from postgrad.runs.report import extremes
from postgrad.runs.rows import open_to_read, parse_row
from postgrad.studio.json_types import JsonDict
from postgrad.studio.runs.samples import safe_text
from postgrad.system.throughput import RECENT

DEEPEST = 3             # folders down: runs/pipeline/stage, and one more
HELD = 10_000_000       # points kept in memory, of all traces together
EVALS = "evals/"
LARGEST = 2**53 - 1     # a step that a browser can count
EVERYTHING = 2**60      # bytes

SEARCHED = 16 << 20     # bytes of a log of samples that are read at once, or looked through for pairs
TEXT = rb'"[^"\\]*(?:\\.[^"\\]*)*"'
BEGINS = re.compile(rb'\{"step": (\d{1,15}), "id": %b, "prompt": (%b)[,}]' % (TEXT, TEXT))  # of a sample


class NoSuchRun(ValueError):
    """There is no such run in the runs folder."""


def run_id_parts(name: str) -> list[str]:
    """The parts of a run's id; what could lead out of the runs folder is refused."""
    parts = name.split("/")
    if len(parts) > DEEPEST:
        raise NoSuchRun(f"no run has an id of {len(parts)} parts: at most {DEEPEST}, e.g. demo/rl.")
    try:
        return [check_name(part) for part in parts]
    except ValueError as error:
        raise NoSuchRun(str(error)) from None


def run_folder(root: Path, name: str) -> Path:
    """Where the run of this id is, or would be: always inside the runs folder, links followed."""
    folder = root.joinpath(*run_id_parts(name))
    if not folder.resolve().is_relative_to(root.resolve()):
        raise NoSuchRun(f"{name} leads out of the runs folder.")
    return folder


def existing_run_folder(root: Path, name: str) -> Path:
    """The folder of a run that exists."""
    folder = run_folder(root, name)
    if not (folder / "run.json").is_file():
        raise NoSuchRun(f"there is no run {name} in {root}.")
    return folder


def run_address(name: str) -> str:
    """The page of a run. Two names are taken by pages of the studio."""
    return quote(f"/runs/-/at/{name}" if name in ("new", "compare") else f"/runs/{name}", errors="replace")


def find_runs(root: Path, prefix: str = "", depth: int = DEEPEST) -> Iterator[str]:
    """The ids of all runs under a folder.

    Links are not followed; what cannot name a run is listed too, and reads as broken.
    """
    try:
        entries = sorted(os.scandir(root), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    for entry in entries:
        if entry.name.startswith(".") or not entry.is_dir(follow_symlinks=False):
            continue
        if os.path.exists(os.path.join(entry.path, "run.json")):
            yield prefix + entry.name
        elif depth > 1:
            yield from find_runs(Path(entry.path), f"{prefix}{entry.name}/", depth - 1)


def finite_or_none(value: object) -> float | None:
    """A number from a file that somebody else may have written, or None."""
    return found if math.isfinite(found := number(value)) else None


class LogTail:
    """The rows that are appended to a log.

    A resume that went back puts another file in its place: all of it is new then.
    """

    def __init__(self, run: Run, log: str, at: int = 0):
        self.run, self.log, self.at = run, log, at
        self.file: int | None = None  # its inode

    def new(self) -> tuple[list[JsonDict], bool]:
        """The rows since the last look, and whether they stand for the whole log."""
        try:
            file: int | None = os.stat(self.run.folder / f"{self.log}.jsonl").st_ino
        except FileNotFoundError:
            file = None
        again, self.file = self.file not in (None, file), file
        before = 0 if again else self.at
        rows, self.at = self.run.rows(self.log, before)
        return rows, again or self.at < before


def as_floats(values: Sequence[object]) -> array[float]:
    """Logged values as floats, at once where all of them are numbers."""
    try:
        return array("d", cast("Sequence[float]", values))
    except (TypeError, OverflowError):
        return array("d", map(number, values))


def optional_text(value: object) -> str | None:
    """A text from such a file, or None."""
    return None if value is None else safe_text(value)


class Sample(NamedTuple):
    """A logged sample without its tokens. group, place: which prompt of its step, which of its answers."""

    step: int
    prompt: str
    text: str
    score: float | None
    adv: float | None
    finished: bool
    reason: str
    group: int
    place: int


class SampleIndex:
    """The samples of a run, read by cursor."""

    def __init__(self, run: Run):
        self.run, self.lock = run, threading.Lock()
        self.at, self.file = 0, 0  # what was read of the log, and its inode
        self.found: list[Sample] = []
        self.groups: dict[str, int] = {}  # of the newest step: prompt -> answers so far
        # of a version of the log
        self.prompts: tuple[object, dict[str, list[int]], int | None] = None, {}, None

    def refresh(self) -> SampleIndex:
        """Reads what was appended; all of it after a resume that went back, which leaves another file."""
        with self.lock:
            while True:
                file = log_version(self.run)[0]
                rows, at = self.run.rows("samples", self.at if file == self.file else 0, SEARCHED)
                if file != self.file or at < self.at:
                    self.found, self.groups = [], {}
                elif at == self.at:
                    return self
                self.at, self.file = at, file
                for row in rows:
                    self._add(row)

    def _add(self, row: JsonDict) -> None:
        step, prompt = row["step"], safe_text(row.get("prompt", ""))
        if not isinstance(step, int):
            return
        if self.found and self.found[-1].step != step:
            self.groups = {}
        place = self.groups[prompt] = self.groups.get(prompt, -1) + 1
        self.found.append(Sample(
            step, sys.intern(prompt), safe_text(row.get("text", "")),
            finite_or_none(row.get("score")), finite_or_none(row.get("adv")),
            row.get("finished") is not False, safe_text(row.get("reason") or ""),
            list(self.groups).index(prompt), place))

    def by_prompt(self) -> tuple[dict[str, list[int]], int | None]:
        """The steps at which each prompt was sampled, and the last of them where the log goes on behind what
        is read. Of a row as runs write it the beginning alone is parsed."""
        version = log_version(self.run)
        if self.prompts[0] != version:
            try:
                with open_to_read(self.run.folder / "samples.jsonl") as log:
                    data = log.read(SEARCHED)
            except FileNotFoundError:
                data = b""
            steps: dict[str, dict[int, None]] = {}
            texts: dict[bytes, str] = {}
            for line in data.split(b"\n")[:-1]:
                if (begins := BEGINS.match(line)) and line.endswith(b"}"):
                    step, text = int(begins[1]), begins[2]
                    if text not in texts:
                        texts[text] = safe_text(json.loads(text))
                    steps.setdefault(texts[text], {})[step] = None
                elif (row := parse_row(line)) and row["step"] is not None:
                    steps.setdefault(safe_text(row.get("prompt", "")), {})[row["step"]] = None
            last = max((step for some in steps.values() for step in some), default=0)
            self.prompts = (version, {prompt: [*some] for prompt, some in steps.items()},
                            last if version[1] > SEARCHED else None)
        return self.prompts[1:]


def log_version(run: Run) -> tuple[int, int, int]:
    """What changes when the log of a run's samples does: its inode, size and time."""
    try:
        stats = os.stat(run.folder / "samples.jsonl")
    except FileNotFoundError:
        return 0, 0, 0
    return stats.st_ino, stats.st_size, stats.st_mtime_ns


# a row of the list, all unknown
FACTS = ("recipe", "method", "model", "task")
ROW: JsonDict = (dict.fromkeys(("id", *FACTS, "state", "error", "created", "steps", "updated", "seconds",
                                "pace", "reward", "kl", "pass@1", "series_name", "seed", "twin"))
                 | {"step": 0, "series": (), "note": RunNote()})
FILES = ("run.json", "metrics.jsonl", "evals.jsonl", "status.json", "config.json", NOTES)

SIZES = 3, 6  # of metrics and evals, in the stamp


Stamp = tuple[object, ...]


def folder_stamp(folder: str, files: Sequence[str] = FILES) -> Stamp:
    """What changes when a run does: its files' sizes and times, and whether a process holds it."""
    seen: list[object] = []
    for name in files:
        try:
            stats = os.stat(f"{folder}/{name}")
            seen += (stats.st_size, stats.st_ino, stats.st_mtime_ns)
        except OSError:
            seen += (None, None, None)
    return *seen, is_held(f"{folder}/lock")


def run_stamps(root: Path) -> dict[str, Stamp]:
    """All runs of a folder, with the stamps of theirs."""
    return {name: folder_stamp(f"{root}/{name}") for name in find_runs(root)}


def run_facts(name: str, run: Run) -> JsonDict:
    """The part of a row that needs none of the run's logs. twin: the same of runs that differ in their seed
    alone."""
    info, state = run.info, run.state()
    facts = {key: optional_text(info.get(key)) for key in FACTS}
    config = {key: value for key, value in run.config.items() if key != "seed"}
    return ROW | facts | {
        "id": name, "samples_text": facts["recipe"] == "rollouts",
        "state": optional_text(state.get("state")), "error": optional_text(state.get("error")),
        "created": finite_or_none(info.get("created")), "steps": finite_or_none(info.get("steps")),
        "updated": finite_or_none(state.get("updated")), "note": read_note(run.folder),
        "seed": optional_text(run.config.get("seed")),
        "twin": hashlib.sha256(dumps([facts, config], sort_keys=True).encode()).hexdigest()[:16]}


class Trace:
    """The numbers of one run. `columns`: metric -> (steps, values); `evals`: the rows of the evaluations,
    whose numbers go by the names evals/pass@1 and so on: a training step and an evaluation may
    both have a reward."""

    def __init__(self, folder: Path):
        self.run, self.lock = Run.open(folder), threading.RLock()
        self.tails = {log: LogTail(self.run, log) for log in ("metrics", "evals")}
        self.columns: dict[str, tuple[array[int], array[float]]] = {}
        self.evals: list[JsonDict] = []
        self.samples, self.points = SampleIndex(self.run), 0  # of all columns

    @property
    def cursor(self) -> list[int]:
        """The bytes of metrics and evals that were read."""
        return [tail.at for tail in self.tails.values()]

    def refresh(self) -> Trace:
        """Read what was appended. A step that comes again, after a resume, replaces what stood from it on."""
        with self.lock:
            rows, whole = self._new("metrics")
            self._forget(0 if whole else rows[0]["step"] if rows else LARGEST)
            # whole columns at once: thousands of rows are read in no time
            for names, alike in groupby(rows, key=tuple):
                table = dict(zip(names, zip(*(row.values() for row in alike), strict=True), strict=True))
                for name in names:
                    if name != "step":
                        steps, values = self.columns.setdefault(name, (array("q"), array("d")))
                        steps.extend(table["step"])
                        values.extend(as_floats(table[name]))
            rows, whole = self._new("evals")
            first = 0 if whole else rows[0]["step"] if rows else LARGEST
            self.evals = [row for row in self.evals if row["step"] < first] + rows
            self.points = sum(len(steps) for steps, _ in self.columns.values())
        return self

    def _new(self, log: str) -> tuple[list[JsonDict], bool]:
        rows, whole = self.tails[log].new()
        return [row for row in rows if isinstance(row["step"], int) and 0 <= row["step"] < LARGEST], whole

    def _forget(self, step: int) -> None:
        for steps, values in self.columns.values():
            while steps and steps[-1] >= step:
                steps.pop()
                values.pop()

    def column(self, name: str) -> tuple[Sequence[int], Sequence[float]]:
        """Steps and values of a metric."""
        if name.startswith(EVALS):
            key = name.removeprefix(EVALS)
            rows = [row for row in self.evals if key in row]
            return [row["step"] for row in rows], [number(row[key]) for row in rows]
        with self.lock:
            steps, values = self.columns.get(name, ((), ()))
            return steps[:], values[:]

    def last(self, name: str) -> float | None:
        values = self.column(name)[1]
        return values[-1] if values else None

    def names(self) -> list[str]:
        """Every metric that was logged as a number, those of the evaluations last."""
        evaluated = [EVALS + k for row in self.evals[-1:] for k, v in row.items()
                    if k != "step" and not isinstance(v, list)]
        return [*self.columns, *evaluated]

    @property
    def step(self) -> int:
        return max((steps[-1] for steps, _ in self.columns.values() if steps), default=0)

    @property
    def size(self) -> int:
        return self.points + 8 * len(self.samples.found)

    def summary(self, name: str) -> JsonDict:
        """One row of the list of runs."""
        shown = next((n for n in ("reward", "accuracy", "loss") if n in self.columns), None)
        values, finite = self.column(shown or "")[1], [*filter(math.isfinite, self.column("time/step")[1])]
        return run_facts(name, self.run) | {
            "step": self.step, "seconds": sum(finite), "pace": fmean(finite[-RECENT:]) if finite else None,
            "reward": self.last("reward" if "reward" in self.columns else "evals/reward"),
            "kl": self.last("kl"), "pass@1": self.last("evals/pass@1"),
            "series_name": shown, "series": tuple(values[i] for i in extremes(values, 60)),
        }


class Traces:
    """The traces of the runs folder, the least used ones forgotten. Handlers call it from several threads."""

    def __init__(self, root: Path):
        self.root, self.lock = root, threading.Lock()
        self.held: OrderedDict[str, tuple[tuple[int, int], Trace]] = OrderedDict()
        self.rows: dict[str, tuple[Stamp, JsonDict]] = {}  # by the stamp of their folder

    def get(self, name: str) -> Trace:
        """The run's trace, up to date. A new folder under an old name is another run."""
        folder = existing_run_folder(self.root, name)
        seen = (folder / "run.json").stat()
        key = (seen.st_ino, seen.st_mtime_ns)
        with self.lock:
            before = self.held.pop(name, None)
            trace = before[1] if before and before[0] == key else Trace(folder)
            self.held[name] = (key, trace)
            while len(self.held) > 1 and sum(t.size for _, t in self.held.values()) > HELD:
                self.held.popitem(last=False)
        return trace.refresh()

    def row(self, name: str, budget: list[int] | None = None, stamp: Stamp = ()) -> JsonDict:
        """The row of a run, from its files as they are. budget: bytes of logs that may still be read, counted
        down; a run over it has the row that its settings alone give, until `row` is asked with more. stamp:
        of its folder, where that was just made."""
        budget = [EVERYTHING] if budget is None else budget
        folder = os.path.join(self.root, name)
        stamp = stamp or folder_stamp(folder)
        held, made = self.rows.get(name, (None, ROW))
        unread = held is None or "unread" in made
        if held == stamp and not unread:
            return made
        try:
            run_folder(self.root, name)  # a name that could lead elsewhere
            size = sum(size for at in SIZES if isinstance(size := stamp[at], int)) if unread else 0
            if size > budget[0]:  # of a run that was read before, only what was added is
                made = made if held == stamp else run_facts(name, Run.open(folder)) | {"unread": True}
            else:
                budget[0] -= size
                made = self.get(name).summary(name)
        except Exception as error:  # whatever is wrong with one run, the others are listed
            made = ROW | {"id": safe_text(name), "state": "broken", "error": safe_text(error)}
        self.rows[name] = stamp, made
        return made

    def summaries(self, stamps: Mapping[str, Stamp], budget: int = EVERYTHING) -> list[JsonDict]:
        """A row for each of these runs, newest first; a run that can't be read is listed as "broken" with the
        reason. budget: bytes of logs to read at most; a row that lacks its numbers is marked unread."""
        left = [budget]
        found = [self.row(name, left, stamp) for name, stamp in stamps.items()]
        return sorted(found, key=lambda run: (-(run["created"] or 0), run["id"]))

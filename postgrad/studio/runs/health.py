"""The doctor and the guard on the runs of a folder: looked at once, and again when a run has gone on.

A verdict is a function of the run's files alone; it is kept until they change, and of a run that is being
trained until it has a twentieth more steps. A thread looks at what a list shows, so that no page waits.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path

from postgrad.runs import Run
from postgrad.runs.doctor import MINOR, Chart, Diagnosis, NamedFinding, diagnose
from postgrad.runs.doctor.guard import Guard, Trouble
from postgrad.runs.rows import JsonDict
from postgrad.studio.runs.samples import safe_text
from postgrad.studio.runs.traces import Traces, existing_run_folder, folder_stamp

WHOLE = 8 << 20  # bytes of samples that are read whole; of a longer log, those of STEPS steps
STEPS = 100
FEW = 8          # runs that wait and are looked at here; more, in a process of their own
MORE = 0.05      # of its steps that a run has to gain before it is looked at again
SMALL = frozenset(symptom.name for symptom in MINOR)


@dataclass(frozen=True, kw_only=True)
class Health:
    """What is wrong with a run, worst first, and what the guard would have named, in order of time."""

    diagnosis: Diagnosis
    alerts: tuple[Trouble, ...]
    reward: float | None

    @property
    def grave(self) -> list[NamedFinding]:
        return [found for found in self.diagnosis.findings if found.symptom not in SMALL]

    @property
    def level(self) -> str:
        """"bad", "minor" (samples or time are wasted), "well"; "early" where nothing could be looked for."""
        if self.grave or self.alerts:
            return "bad"
        return "minor" if self.diagnosis.findings else "well" if self.diagnosis.clear else "early"

    @property
    def word(self) -> str:
        """The worst of it in few words."""
        first = [*self.grave, *self.diagnosis.findings][:1]
        return (first[0].symptom if first and (self.grave or not self.alerts)
                else f"alert: {self.alerts[0].name}" if self.alerts else "")

    @property
    def view(self) -> JsonDict:
        """For the page."""
        one = self.diagnosis
        return {"level": self.level, "word": safe_text(self.word), "steps": one.steps, "absent": one.clear,
                "not_looked": one.not_looked, "alerts": self.alerts,
                "findings": [{"symptom": name, "minor": name in SMALL, "steps": found.steps,
                              **{part: safe_text(getattr(found, part))
                                 for part in ("evidence", "consequence", "remedy")}}
                             for name, found in one.findings]}


def run_chart(run: Run) -> Chart:
    """The chart of a run; of a long log of samples, steps that lie evenly."""
    metrics, evals = run.rows("metrics")[0], run.rows("evals")[0]
    return Chart(info=run.info, config=run.config, status=run.state(), metrics=metrics, evals=evals,
                 samples=some_samples(run, [row["step"] for row in metrics]))


def some_samples(run: Run, steps: list[int]) -> list[JsonDict]:
    path = run.folder / "samples.jsonl"
    if not path.exists() or path.stat().st_size <= WHOLE or not steps:
        return run.rows("samples")[0]
    wanted = sorted({steps[k * (len(steps) - 1) // (STEPS - 1)] for k in range(STEPS)})
    found = {rows[0]["step"]: rows for step in wanted if (rows := run.at("samples", step)[0])}
    return [row for rows in found.values() for row in rows]


def guard_alerts(chart: Chart) -> tuple[Trouble, ...]:
    """The troubles that the guard names over the rows of a run, each the first time."""
    guard, found = Guard(str(chart.row.get("kind", "supervised"))), dict[str, Trouble]()
    rows = [(int(row["step"]), 0, row) for row in chart.metrics] + [(int(row["step"]), 1, row)
                                                                    for row in chart.evals]
    for step, evaluated, row in sorted(rows, key=lambda at: at[:2]):
        trouble = guard.on_eval(step, row) if evaluated else guard.on_step(step, row)
        if trouble:
            found.setdefault(trouble.name, trouble)
    return tuple(found.values())


def examine(folder: Path) -> Health:
    chart = run_chart(Run.open(folder))
    paid = chart.curve("reward")
    return Health(diagnosis=diagnose(chart), alerts=guard_alerts(chart), reward=paid[-1][1] if paid else None)


@contextmanager
def examiner() -> Iterator[Callable[[Path], Health]]:
    """`examine` in another process: a page that asks for thousands of files would wait for the interpreter's
    lock after each of them while this one computes."""
    spawn = multiprocessing.get_context("spawn")
    here, there = spawn.Pipe()
    process = spawn.Process(target=answer_folders, args=(there,), daemon=True)
    process.start()
    there.close()

    def ask(folder: Path) -> Health:
        here.send(folder)
        found = here.recv()
        if isinstance(found, Health):
            return found
        raise ValueError(found)

    try:
        yield ask
    finally:
        here.close()
        process.join()


def answer_folders(there: Connection) -> None:
    """The other process, until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the studio, and with it this
    os.nice(10)
    while True:
        try:
            folder = there.recv()
        except EOFError:
            return
        try:
            found: Health | str = examine(folder)
        except Exception:
            found = traceback.format_exc()
        there.send(found)


class Clinic:
    """The health of the runs of a folder. version: counts what a list would show otherwise."""

    def __init__(self, traces: Traces):
        self.traces, self.version = traces, 0
        self.found: dict[str, tuple[tuple[object, ...], Health | None]] = {}  # None: it cannot be read
        self.unread: dict[str, None] = {}   # runs that wait to be read for the list, in order
        self.waiting: dict[str, None] = {}  # and those to look at then
        self.lock = threading.Lock()
        self.thread: threading.Thread | None = None

    def known(self, name: str) -> Health | None:
        """The last verdict."""
        held = self.found.get(name)
        return held[1] if held else None

    def due(self, name: str, stamp: tuple[object, ...] = ()) -> bool:
        """Whether a run has to be looked at: never yet, or it has gone on since. stamp: of its folder, where
        that was just made."""
        held = self.found.get(name)
        if held is None or held[0] == (stamp or folder_stamp(os.path.join(self.traces.root, name))):
            return held is None
        if held[1] is None:
            return True
        before, trace = held[1].diagnosis, self.traces.get(name)
        state = str(trace.run.state().get("state"))
        return (state, state) != (before.state, "running") or not (
            before.steps <= trace.step <= before.steps * (1 + MORE))

    def look(self, name: str, examine: Callable[[Path], Health] = examine) -> Health:
        """The verdict on a run, made again where it is due."""
        folder, before = existing_run_folder(self.traces.root, name), self.known(name)
        if before is not None and not self.due(name):
            return before
        stamp = folder_stamp(str(folder))
        self.found[name] = stamp, None
        now = examine(folder)
        self.found[name] = stamp, now
        self.version += before is None or (before.level, before.word) != (now.level, now.word)
        return now

    def ask(self, names: Iterable[str], look: bool = True) -> None:
        """Has a thread read these runs for the list, and look at them."""
        with self.lock:
            asked = dict.fromkeys(names)
            self.unread |= asked
            self.waiting |= asked if look else {}
            if asked and self.thread is None:
                self.thread = threading.Thread(target=self._work, daemon=True)
                self.thread.start()

    def _work(self) -> None:
        with ExitStack() as ending:
            doctor: Callable[[Path], Health] | None = None
            while True:
                with self.lock:
                    if not self.unread and not self.waiting:
                        self.thread = None
                        return
                    many, look = len(self.waiting) > FEW, not self.unread
                    name = next(iter(self.unread or self.waiting))
                    del (self.waiting if look else self.unread)[name]
                try:
                    if not look:
                        before = self.traces.rows.get(name)
                        self.version += self.traces.row(name) is not (before and before[1])
                        continue
                    if many and doctor is None:
                        doctor = ending.enter_context(examiner())
                    self.look(name, doctor or examine)
                except (EOFError, ConnectionError):  # the other process was ended
                    doctor = examine
                    del self.found[name]
                    self.ask([name])
                except Exception as fault:  # of one run, and once; the others are looked at
                    traceback.print_exception(fault, file=sys.stderr)

"""Sends a run to a tracker of another package, out of its folder: beside the training, or afterwards.

The run folder is only read. What a tracker already has, it is asked for when it is opened, so that a process
that was killed goes on there: nothing is sent twice, nothing is missing. A step is sent when nothing more
comes for it: when the next one has begun, or the run has ended.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from postgrad.runs import disk
from postgrad.runs.backends import Backend, TrackedRun, open_backend
from postgrad.runs.folder import Run, config_leaves
from postgrad.runs.frame import merge_steps
from postgrad.runs.rows import JsonDict

COMPLETE = ("done", "stopped")  # states in which the last step has all its rows
FOLLOWED = ("metrics", "evals", "samples")
PLACE = "trackers"  # in the run folder: a lock and the output of each process that sends it


@dataclass(frozen=True, kw_only=True)
class Arrivals:
    """What a run has logged since the last look, by step. rewound: the run was resumed meanwhile, and
    everything comes again from its first step."""

    figures: dict[int, dict[str, float]]
    rollouts: dict[int, list[JsonDict]]
    state: str
    rewound: bool = False


@dataclass(kw_only=True)
class RunTail:
    """The logs of a run, read on from a cursor in each."""

    run: Run
    cursors: dict[str, int] = field(default_factory=dict)
    rows: dict[str, list[JsonDict]] = field(default_factory=dict)  # of steps that may not be complete
    next_step: int = 1

    def __post_init__(self) -> None:
        self.cursors["events"] = self.run.rows("events")[1]
        self._restart()

    def _restart(self) -> None:
        self.cursors |= dict.fromkeys(FOLLOWED, 0)
        self.rows, self.next_step = {name: [] for name in FOLLOWED}, 1

    def read(self) -> Arrivals:
        """The steps that are complete by now and were not before."""
        before = self.run.state()
        events, self.cursors["events"] = self.run.rows("events", self.cursors["events"])
        rewound = any(row.get("kind") == "resumed" for row in events)
        if rewound:
            self._restart()
        for name in FOLLOWED:  # metrics first: an evaluation stands before the next step's metrics
            rows, self.cursors[name] = self.run.rows(name, self.cursors[name])
            if name == "metrics" and rows and rows[0]["step"] != self.next_step:
                self._restart()  # the file was cut, and the event is not written yet
                rows, self.cursors[name] = self.run.rows(name)
            if name == "metrics" and rows:
                self.next_step = rows[-1]["step"] + 1
            self.rows[name] += rows
        state = str(before.get("state"))
        ended = state in COMPLETE and self.run.state() == before
        newest = self.next_step - 1
        sampled = min(newest, self.rows["samples"][-1]["step"] if self.rows["samples"] else 0)
        ready = {name: self._take(name, None if ended else sampled if name == "samples" else newest)
                 for name in FOLLOWED}
        rollouts: dict[int, list[JsonDict]] = {}
        for row in ready["samples"]:
            rollouts.setdefault(row["step"], []).append(row)
        return Arrivals(figures=merge_steps(ready["metrics"], ready["evals"]), rollouts=rollouts,
                        state=state, rewound=rewound)

    def _take(self, name: str, before: int | None) -> list[JsonDict]:
        """The rows of steps before this one (None: all), which are not held any longer."""
        rows = self.rows[name]
        self.rows[name] = [row for row in rows if before is not None and row["step"] >= before]
        return [row for row in rows if before is None or row["step"] < before]


def tracked_run(run: Run) -> TrackedRun:
    """What a tracker is told of a run before its steps. The id stays when the run is resumed or renamed."""
    key = f"{run.info.get('created')} {run.info.get('command')} {run.info.get('seed')}"
    facts = {name: value for name, value in run.info.items() if isinstance(value, str | int | float)}
    return TrackedRun(id=hashlib.sha256(key.encode()).hexdigest()[:16], name=run.folder.name,
                      folder=run.folder, config={**facts, **config_leaves(run.config)})


def follow_run(run: Run, name: str, wait: Callable[[], object]) -> tuple[int, str]:
    """Sends a run to the tracker of this name until the run has ended. wait: between two looks.
    -> (steps sent, state of the run)"""
    (run.folder / PLACE).mkdir(exist_ok=True)
    try:
        lock = disk.take_lock(run.folder / PLACE / f"{name}.lock")
    except BlockingIOError:
        raise ValueError(f"another process sends {run.folder} to {name} now: let it, or end it "
                         "first.") from None
    try:
        with open_backend(name, tracked_run(run)) as backend:
            tail, sent = RunTail(run=run), 0
            while True:
                arrivals = tail.read()
                sent += send(arrivals, backend)
                if arrivals.state != "running":
                    backend.end(arrivals.state)
                    return sent, arrivals.state
                wait()
    finally:
        os.close(lock)


def send(arrivals: Arrivals, backend: Backend) -> int:
    """Sends what the tracker does not have yet; -> the steps whose figures were sent."""
    if arrivals.rewound:
        backend.rewind()
    steps = {step: figures for step, figures in arrivals.figures.items() if step > backend.last_step}
    for step, figures in steps.items():
        backend.log(step, figures)
        backend.last_step = step
    for step, rows in arrivals.rollouts.items():
        if step > backend.last_rollouts:
            backend.log_rollouts(step, rows)
            backend.last_rollouts = step
    return len(steps)


def log_file(folder: Path, name: str) -> Path:
    """Where a process that sends a run beside its training writes what it has to say."""
    return folder / PLACE / f"{name}.log"

"""Trackers: who is told of a run while it is trained.

A run has a list of them. The run folder is the first, the terminal's display another;
`fit(trackers=[...])` and `postgrad train --track FILE.py` add more; those of other packages, track=wandb,
read the folder from a process of their own (`follow`).

    class Best(Tracker):
        def on_eval(self, step, figures):
            print(step, figures["pass@1"])

A hook that returns "stop" ends the run after the step, with a checkpoint. A tracker that raises, or takes
longer than its `seconds`, ends it as failed, and the exception is passed on as it is. Of several processes
the first alone has trackers.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, runtime_checkable

from postgrad.runs.backends import BACKENDS, check_installed
from postgrad.runs.folder import Follower, Run
from postgrad.runs.follow import log_file
from postgrad.system.files import error_text
from postgrad.system.limit import TimeLimit, within_limit
from postgrad.system.plugins import Registry, is_file_spec, load_from_file
from postgrad.system.settings import suggest

Metrics = Mapping[str, float]
Row = Mapping[str, object]


@runtime_checkable
class Tracker(Protocol):
    """What a run tells. Subclass it and define the hooks you need; the others do nothing.

    Hooks are called in the training process, between two steps, in this order: on_start; on_eval of step 0;
    for each step on_step, on_samples (methods that sample), on_eval (where the step is evaluated); on_end.
    Each but the last may return "stop".
    """

    def on_start(self, config: Row) -> str | None:
        """Everything is built and checked. config: as in config.json; a resumed run starts again."""
        return None

    def on_step(self, step: int, metrics: Metrics) -> str | None:
        """An optimizer step has ended. metrics: its line in metrics.jsonl."""
        return None

    def on_eval(self, step: int, figures: Row) -> str | None:
        """An evaluation has ended; step 0 is before training. figures: its line in evals.jsonl."""
        return None

    def on_samples(self, step: int, rows: Sequence[Row]) -> str | None:
        """Every sample of a step: id, prompt, text, score, reason, parts, finished, token_ids,
        prompt_token_ids."""
        return None

    def on_event(self, kind: str, text: str, step: int | None, data: Row) -> str | None:
        """Something to tell besides numbers: a skipped step, a metric past its limit, a note on the data."""
        return None

    def on_end(self, state: str, error: str | None) -> None:
        """The run is done, stopped or failed; error says why it was not done."""
        return None


STOP, LIMIT = "stop", 300.0  # seconds of a hook
HOOKS = ("on_start", "on_step", "on_eval", "on_samples", "on_event", "on_end")


class CallbackTracker(Tracker):
    """callback(step, metrics) after each step."""

    def __init__(self, callback: Callable[[int, dict[str, float]], str | None]):
        self.callback = callback

    def on_step(self, step: int, metrics: Metrics) -> str | None:
        return self.callback(step, dict(metrics))


class FolderTracker(Tracker):
    """The run folder: metrics.jsonl, evals.jsonl, events.jsonl and status.json. (`SampleLog` writes
    samples.jsonl a step later, with what is known of each token.)"""

    def __init__(self, run: Run | Follower):
        self.run = run

    def on_start(self, config: Row) -> None:
        self.run.status("running")

    def on_step(self, step: int, metrics: Metrics) -> None:
        self.run.log(step, metrics)

    def on_eval(self, step: int, figures: Row) -> None:
        assert isinstance(self.run, Run), "the process that writes evaluates"
        self.run.log_eval(step, figures)

    def on_event(self, kind: str, text: str, step: int | None, data: Row) -> None:
        self.run.event(kind, text, step, **data)

    def on_end(self, state: str, error: str | None) -> None:
        self.run.status(state, error=error)


class SeparateTracker(Tracker):
    """A tracker of another package, in a process of its own that reads the run folder (`postgrad track`).

    Whatever happens to it, the training goes on; `postgrad track` sends the rest. seconds: how long the end
    of a run waits for what is still on its way.
    """

    folder: Path  # of the run, set by RunTrackers
    process: subprocess.Popen[bytes] | None = None

    def __init__(self, name: str, seconds: float = 60.0):
        check_installed(name)
        self.name, self.seconds = name, seconds

    def on_start(self, config: Row) -> None:
        file = log_file(self.folder, self.name)
        words = [sys.executable, "-m", "postgrad", "track", str(self.folder), "--to", self.name]
        try:
            file.parent.mkdir(exist_ok=True)
            with file.open("wb") as log:  # a session of its own: Ctrl-C is for the training
                self.process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                                start_new_session=True)
        except OSError as error:
            self._report(f"could not be started ({error_text(error)})")

    def on_end(self, state: str, error: str | None) -> None:
        if self.process is None:
            return
        try:
            if code := self.process.wait(self.seconds):
                self._report(f"ended with code {code} ({log_file(self.folder, self.name)} says why)")
        except subprocess.TimeoutExpired:
            self._report("is still sending, and goes on")

    def _report(self, what: str) -> None:
        print(f"{self.name} {what}; the run is complete in its folder, and `postgrad track {self.folder} "
              f"--to {self.name}` sends what is missing.", file=sys.stderr)


class RunTrackers:
    """The trackers of a run, its folder first, as the training loop logs to them.

    stop: who asked the run to stop; "" while nobody did.
    """

    def __init__(self, run: Run | Follower, trackers: Iterable[Tracker] = ()):
        self.run, self.stop = run, ""
        self.trackers: list[Tracker] = [FolderTracker(run), *trackers]
        for tracker in self.trackers:
            if isinstance(tracker, SeparateTracker):
                tracker.folder = run.folder

    @property
    def next_step(self) -> int:
        return self.run.next_step

    def start(self) -> None:
        self._tell("on_start", self.run.config)

    def log(self, step: int, metrics: Metrics) -> None:
        self._tell("on_step", step, metrics)

    def log_eval(self, step: int, figures: Row) -> None:
        self._tell("on_eval", step, figures)

    def log_samples(self, step: int, make_rows: Callable[[], Sequence[Row]]) -> None:
        """make_rows is called where a tracker listens: of hundreds of samples rows take their time."""
        if any(type(tracker).on_samples is not Tracker.on_samples for tracker in self.trackers):
            self._tell("on_samples", step, make_rows())

    def event(self, kind: str, text: str, step: int | None = None, **data: object) -> None:
        self._tell("on_event", kind, text, step, data)

    def repeat_event(self, kind: str, text: str) -> None:
        """An event that the folder has already, to the other trackers."""
        for tracker in self.trackers[1:]:
            _call(tracker, "on_event", kind, text, None, {})

    def end(self, state: str, error: str | None = None) -> None:
        """Every tracker is told, also where one of them raises."""
        raised: list[Exception] = []
        for tracker in self.trackers:
            try:
                _call(tracker, "on_end", state, error)
            except Exception as fault:  # noqa: BLE001 - raised below
                raised.append(fault)
        if raised:
            raise raised[0]

    def _tell(self, hook: str, *what: object) -> None:
        for tracker in self.trackers:
            if _call(tracker, hook, *what) == STOP:
                self.stop = self.stop or ("the callback" if isinstance(tracker, CallbackTracker)
                                          else f"{hook} of tracker {type(tracker).__name__}")


def _call(tracker: Tracker, hook: str, *what: object) -> object:
    try:
        answer = limited(tracker, hook, *what)
        if isinstance(answer, str) and answer != STOP:
            raise ValueError(f"it returned {answer!r:.40}, where a hook returns nothing, or {STOP!r} to end "
                             "the run")
        return answer
    except Exception as error:
        if not isinstance(tracker, FolderTracker):
            name = type(tracker).__name__
            error.add_note(f"raised by {hook} of tracker {name}: mend it, and resume the run")
        raise


def limited(tracker: Tracker, hook: str, *what: object) -> object:
    """The answer of a hook. One of the user's that does not come back within its limit, or ends the process,
    raises: its attribute `seconds`, else LIMIT."""
    call = partial(getattr(tracker, hook), *what)
    if isinstance(tracker, FolderTracker | SeparateTracker):
        return call()
    seconds = float(getattr(tracker, "seconds", LIMIT))
    try:
        return within_limit(seconds, call)
    except TimeLimit:
        raise TimeoutError(f"it took over {seconds:g} s; its attribute `seconds` allows more") from None
    except SystemExit as error:
        raise RuntimeError(f"it ended the process with {error.code!r:.40}") from None


# trackers by name

TRACKERS: Registry[Callable[[], Tracker] | Tracker] = Registry("tracker", frozenset(BACKENDS))


def register_tracker(name: str, tracker: Callable[[], Tracker] | Tracker) -> Callable[[], Tracker] | Tracker:
    """Adds a tracker by name: an object, or a class or function without arguments that makes one."""
    return TRACKERS.register(name, tracker)


def open_tracker(spec: object) -> Tracker:
    """A tracker by name, FILE.py (which defines `tracker`), FILE.py:NAME, or as an object or its class."""
    found = spec
    if isinstance(spec, str) and spec in BACKENDS:
        found = SeparateTracker(spec)
    elif isinstance(spec, str):
        found = load_from_file(spec, "tracker") if is_file_spec(spec) else TRACKERS.find(spec)
        if found is None:
            raise ValueError(f"there is no tracker {spec!r}: name {', '.join(BACKENDS)}, FILE.py, which "
                             "defines `tracker`, or one that a package registers."
                             f"{suggest(spec, [*BACKENDS, *TRACKERS])}")
    if isinstance(found, type) or callable(found) and not isinstance(found, Tracker):
        found = found()
    if missing := [hook for hook in HOOKS if not callable(getattr(found, hook, None))]:
        raise ValueError(f"tracker {spec!r:.80} has no {', '.join(missing)}: subclass postgrad.Tracker, "
                         "whose hooks do nothing, and define those you need.")
    assert isinstance(found, Tracker)
    return found

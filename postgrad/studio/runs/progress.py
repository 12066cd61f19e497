"""How a run stands, in words: its state, a resume on its way included, how far it is and how fast it goes."""

from __future__ import annotations

import math
import os
import time
from pathlib import Path

from postgrad.studio.json_types import JsonDict
from postgrad.studio.pages import dur, num
from postgrad.studio.runs import processes
from postgrad.studio.runs.traces import Trace, finite_or_none
from postgrad.system.throughput import RECENT, throughput_words

ENDED = ("stopped", "interrupted", "failed")


def current_state(root: Path, name: str, state: JsonDict) -> JsonDict:
    """The state of a run; "resuming" where it stands still and a process is on its way to go on with it.

    The process that left it there may live a moment longer, and has another id.
    """
    above = name.rpartition("/")[0]
    if state.get("state") in ENDED and any(
            processes.process_alive(root, place) and processes.last_pid(root, place) != state.get("pid")
            for place in filter(None, (name, above))):
        return state | {"state": "resuming", "error": None}
    return state


def progress_text(trace: Trace, state: str | None, now: float | None = None) -> str:
    """"step 12 of 40, 31 s so far, about 1 min 10 s to go, 412 tokens/s"; of a run that stands, how far it
    came and how long that took."""
    steps = finite_or_none(trace.run.info.get("steps"))
    far = f"step {num(trace.step)}" + (f" of {num(int(steps))}" if steps else "")
    spent = [x for x in trace.column("time/step")[1] if math.isfinite(x)]
    if state != "running":
        return ", ".join([far, *([dur(sum(spent))] if spent else [])])
    since = max(0.0, (time.time() if now is None else now) - last_log_time(trace))
    if not spent:
        return f"{far}, {dur(int(since))} in the first step"
    pace = sum(spent[-RECENT:]) / len(spent[-RECENT:])
    words = [far, f"{dur(int(sum(spent) + since))} so far"]
    if steps:
        words.append(f"about {dur(int(max(0.0, (steps - trace.step) * pace - since)))} to go")
    tokens = trace.column("tokens")[1][-RECENT:]
    if len(tokens) == len(spent[-RECENT:]) and pace > 0:
        words.append(f"{num(round(sum(tokens) / sum(spent[-RECENT:])))} tokens/s")
    return ", ".join(words)


def speed_text(trace: Trace) -> str:
    """Tokens a second, the parts of the time, the memory."""
    return throughput_words(lambda name: trace.column(name)[1])


def last_log_time(trace: Trace) -> float:
    """When the last row came, or when the run was begun or resumed if that was later."""
    times = trace.run.state().get("updated"), trace.run.info.get("created")
    begun = next(filter(None, map(finite_or_none, times)), time.time())
    return max(begun, os.stat(trace.run.folder / "metrics.jsonl").st_mtime) if trace.step else begun

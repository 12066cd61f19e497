"""Instrument 14, the ledger: what a run gained and lost on a panel of tasks, with intervals that the number
of problems decides. Recorded, or of a run of one's own that has a ledger."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from postgrad.studio.instruments.base import RUNS, ChoiceControl, Instrument, Slider
from postgrad.studio.json_types import JsonDict, Values
from postgrad.studio.recordings import recording

MEASURES = {"pass@1": "one try", "pass@4": "several tries", "different_replies": "different replies"}
MOST = 40  # problems of each task that were recorded
WORDS = {"gain": "gained on", "loss": "lost on", "more varied": "more varied on", "less varied":
         "less varied on", "collapse": "collapsed on", "not told": "not told apart from chance on"}
READ = {"gain": "read better than before", "loss": "read worse than before",
        "not told": "read as well as before, as far as can be told"}


@dataclass(frozen=True)
class State:
    measure: str = "pass@1"
    problems: int = MOST
    source: str = "zero"


@cache
def run_ledger(path: Path, changed: int) -> JsonDict | None:
    """A run's ledger with two entries or more; None where it cannot be read."""
    from postgrad.runs import ledger
    try:
        found = ledger.read_ledger(path)
    except (ValueError, OSError):
        return None
    return found if found and len(found["entries"]) > 1 else None


def ledger_books() -> dict[str, JsonDict]:
    kept = recording("ledger")
    found = {"zero": {"ledger": kept["ledger"], "command": kept["command"], "base": kept["base"]}}
    root = RUNS.get()
    for path in sorted(root.glob("*/ledger.json")) if root else ():
        if book := run_ledger(path.parent, path.stat().st_mtime_ns):
            found[f"run/{path.parent.name}"] = {"ledger": book, "command": "", "base": ""}
    return found


def controls(state: State) -> Values:
    names = [(key, key.partition("/")[2] or "recorded") for key in ledger_books()]
    return (
        ChoiceControl("measure", "Measured by", tuple(MEASURES.items())),
        Slider("problems", "Problems of each task", 4, MOST, 1),
        *[ChoiceControl("source", "Run", tuple(names)) for _ in names[1:2]],
    )


def settle(state: State) -> State:
    if state.source not in ledger_books():
        raise ValueError(f"source is one of {', '.join(ledger_books())}, not {state.source[:40]!r}.")
    return state


def first_problems(entry: JsonDict, count: int) -> JsonDict:
    """The entry as if so many problems had been asked."""
    return {**entry, "figures": {task: {name: values[:count] for name, values in figures.items()}
                                 for task, figures in entry["figures"].items()}}


def compute(state: State) -> JsonDict:
    from postgrad.runs import ledger

    book = ledger_books()[state.source]
    entries = book["ledger"]["entries"]
    first, last = (first_problems(entry, state.problems) for entry in (entries[0], entries[-1]))
    measures = {state.measure.replace("4", str(book["ledger"]["samples"])), "nats"}
    lines = [line for line in ledger.compare_entries(first, last) if line.measure in measures]
    rows = [{"task": line.task, "first": line.first[0], "last": line.last[0], "gain": line.gain[0],
             "low": line.gain[1], "high": line.gain[2], "verdict": line.verdict,
             "shown": ledger.table_row(line)}
            for line in lines if line.measure != "nats"]
    text = next((line for line in lines if line.measure == "nats"), None)
    return {
        "rows": rows, "text": {**ledger.table_row(text), "verdict": text.verdict} if text else None,
        "measure": state.measure, "name": MEASURES[state.measure], "problems": state.problems,
        "samples": book["ledger"]["samples"], "names": [first["name"], last["name"]],
        "command": book["command"], "base": book["base"], "all": book["ledger"]["problems"],
    }


def insight(numbers: JsonDict) -> str:
    rows, text = numbers["rows"], numbers["text"]
    parts = [f"{said} {', '.join(row['task'] for row in rows if row['verdict'] == verdict)}"
             for verdict, said in WORDS.items() if any(row["verdict"] == verdict for row in rows)]
    found = "; ".join(parts) if parts else "nothing was measured"
    tail = f" Held-out text is {READ[text['verdict']]}." if text else ""
    return f"With up to {numbers['problems']} problems of each task, by {numbers['name']}: {found}.{tail}"


INSTRUMENT = Instrument(
    name="ledger", number=14, title="What did a training gain, and what did it lose?",
    functions=("postgrad.runs.ledger.compare_measure", "postgrad.runs.ledger.verdict_on",
               "postgrad.maths.intervals.gain_interval"),
    state=State, controls=controls, compute=compute, insight=insight, settle=settle,
    about="One run on a panel of tasks that it was not all trained for: gains and losses with intervals.",
)

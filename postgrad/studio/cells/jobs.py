"""What a run of a cell or of an answer does, wherever it runs: in the process that `child` forks, or in the
page of a site without a server (`engine`).

A job is one JSON object; `say` takes the answers, in the order in which things are found out.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Callable
from dataclasses import fields
from typing import Any

CELL = "<cell>"
CLOSED = "cells have no network, no files and no other processes: a cell works with its arguments and prints"
Json = dict[str, Any]
Say = Callable[[Json], object]  # sends one answer
CHARTS, POINTS = 4, 2000  # of one run, of one line


def fault_text(fault: BaseException) -> str:
    """The fault in one line, with the last line of the cell that it came through."""
    if isinstance(fault, SyntaxError) and fault.filename == CELL:
        return f"line {fault.lineno}: {type(fault).__name__}: {fault.msg}"
    if isinstance(fault, SystemExit):
        return f"the cell called sys.exit({fault.code!r}), which ends the run"
    lines = [frame.lineno for frame in traceback.extract_tb(fault.__traceback__) if frame.filename == CELL]
    at = f"line {lines[-1]}: " if lines else ""
    if isinstance(fault, OSError):
        return f"{at}{CLOSED} ({type(fault).__name__}: {fault})"[:500]
    return f"{at}{type(fault).__name__}: {fault}"[:500]


def plotter(say: Say) -> Callable[..., None]:
    """plot(x, y, ...) of a cell: one chart, a line for each y."""
    drawn = []

    def plot(x: Any, *ys: Any) -> None:
        lines = [[float(v) for v in line] for line in (x, *ys)]
        if not ys or len(set(map(len, lines))) > 1 or not all(v - v == 0 for line in lines for v in line):
            raise ValueError("plot(x, y) takes lists of finite numbers that are equally long")
        drawn.append(x)
        if len(drawn) > CHARTS or len(lines[0]) > POINTS:
            raise ValueError(f"a cell draws at most {CHARTS} charts of {POINTS} points")
        say({"plot": lines})
    return plot


def load_cell(job: Json, say: Say) -> Json:
    """The edited functions by name, executed among the names of the module they come from, and `plot`."""
    space = dict(importlib.import_module(job["module"]).__dict__) | {"plot": plotter(say)}
    for name in job["names"]:
        del space[name]
    exec(compile(job["source"], CELL, "exec", dont_inherit=True), space)
    missing = [name for name in job["names"] if not callable(space.get(name))]
    if missing:
        raise NameError(f"the cell no longer defines {', '.join(missing)}")
    return {name: space[name] for name in job["names"]}


def run_checks(job: Json, edited: Json, say: Say) -> None:
    """Each invariant of the cell, green or red."""
    from postgrad.studio.cells.checks import CHECKS
    for check in CHECKS[job["cell"]]:
        try:
            check(edited[job["names"][-1]])
            say({"check": check.__name__, "ok": True, "message": ""})
        except AssertionError as fault:
            say({"check": check.__name__, "ok": False, "message": str(fault)[:500]})
        except Exception as fault:
            say({"check": check.__name__, "ok": False, "message": fault_text(fault)})


def drive_instrument(job: Json, edited: Json, say: Say) -> None:
    """An instrument's numbers, computed with the edited functions in place of the library's."""
    for name, function in edited.items():
        setattr(sys.modules[job["module"]], name, function)
    instrument = importlib.import_module(job["instrument"]).INSTRUMENT
    kinds = {field.name: type(field.default) for field in fields(instrument.state)}
    state = instrument.state(**{k: tuple(v) if kinds[k] is tuple else v for k, v in job["state"].items()})
    from postgrad.rewards.sandbox import codec  # plain JSON would turn tuples into lists
    say({"numbers": codec.encode(instrument.compute(state)).decode()})


def answer_names(source: str) -> Json:
    """What an answer to an exercise defines."""
    from postgrad.studio.exercises.watch import ANSWER
    space: Json = {"__name__": "answer"}
    exec(compile(source, ANSWER, "exec", dont_inherit=True), space)
    return space


def grade_answer(job: Json, say: Say) -> None:
    """An answer to an exercise: right, or what is wrong with it."""
    from postgrad.studio.exercises import exercise_named
    from postgrad.studio.exercises.grading import grade
    say({"verdict": grade(exercise_named(job["exercise"]), job["source"], answer_names).record()})


def run_job(job: Json, say: Say) -> None:
    try:
        if "exercise" in job:
            grade_answer(job, say)
        else:
            edited = load_cell(job, say)
            (drive_instrument if "instrument" in job else run_checks)(job, edited, say)
        say({"done": True})
    except BaseException as fault:  # sys.exit too: whatever the cell does is an answer
        say({"fault": fault_text(fault)})

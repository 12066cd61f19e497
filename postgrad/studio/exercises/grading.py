"""An answer, judged: run on the exercise's cases, held against the oracle; a wrong one is held against the
known mistakes on the same cases, and named where one of them gives the same.

Imported where answers run, in the jail. The answer stands in the same process as its judge, as in a notebook:
this keeps accidents out, not somebody who wants to be told that they are right.
"""

from __future__ import annotations

import copy
import io
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from random import Random

from postgrad.studio.exercises.base import AnswerVerdict, Exercise, Property, with_full_stop
from postgrad.studio.exercises.values import near, tame, to_plain, value_kind, value_text
from postgrad.studio.json_types import JsonDict, JsonList, Values

ANSWER = "<answer>"
CLOSED = ("an answer has no files, no network and no other processes: it works with its arguments and "
          "returns "
          "a value")
GREEDY = "it asked for more memory than an answer may have (1 GB)"
Load = Callable[[str], JsonDict]  # source text -> the names it defines


class Silence(io.TextIOBase):
    """Where prints go that nobody will read."""

    def write(self, text: str) -> int:
        return len(text)


class Raised:
    """What a call came to, where it raised."""

    def __init__(self, fault: BaseException):
        self.kind, self.says = type(fault).__name__, fault_in_words(fault)


def fault_in_words(fault: BaseException) -> str:
    """A fault in one line, with the line of the answer that it came through."""
    if isinstance(fault, SyntaxError):
        return f"line {fault.lineno}: {type(fault).__name__}: {fault.msg}"
    lines = [frame.lineno for frame in traceback.extract_tb(fault.__traceback__) if frame.filename == ANSWER]
    at = f"line {lines[-1]}: " if lines else ""
    if isinstance(fault, MemoryError) or "DefaultCPUAllocator" in str(fault):
        return at + GREEDY
    if isinstance(fault, OSError):
        return at + CLOSED
    if isinstance(fault, SystemExit):
        return f"{at}it called sys.exit, which ends the run"
    return f"{at}{type(fault).__name__}: {fault}"[:400]


def grade(exercise: Exercise, source: str, load: Load) -> AnswerVerdict:
    """What is to be said of an answer. load executes source text; it may raise whatever that raises."""
    try:
        answer = load(source).get(exercise.function)
    except BaseException as fault:
        return AnswerVerdict(passed=False,
                             says=with_full_stop(f"The answer does not run: {fault_in_words(fault)}"))
    if not callable(answer):
        return AnswerVerdict(passed=False, says=f"The answer defines no function {exercise.function}.")
    cases = list(exercise.cases(Random(exercise.name)))
    outcomes = [observe_answer(exercise, answer, cases[0])]
    with redirect_stdout(Silence()), redirect_stderr(Silence()):  # what it prints is shown of one case only
        return compare_outcomes(exercise, answer, load, cases, outcomes)


def compare_outcomes(exercise: Exercise, answer: Callable[..., object], load: Load, cases: list[Values],
                     outcomes: JsonList) -> AnswerVerdict:
    """An answer on all cases, the first of which it has answered already."""
    wanted = [to_plain(exercise.right(*copy.deepcopy(case))) for case in cases]
    outcomes = [*outcomes, *(observe_answer(exercise, answer, case) for case in cases[1:])]
    wrong = [i for i, (got, right) in enumerate(zip(outcomes, wanted, strict=True))
             if not outcome_is_right(got, right, exercise.tolerance)]
    checks = tuple((p.says, property_holds(exercise, answer, p, cases)) for p in exercise.properties)
    if not wrong and all(ok for _, ok in checks):
        return AnswerVerdict(passed=True, says=f"Right: {len(cases)} cases agree.", checks=checks)
    return name_fault(exercise, load, cases, outcomes, wanted, wrong, checks)


def name_fault(exercise: Exercise, load: Load, cases: JsonList, outcomes: JsonList, wanted: JsonList,
               wrong: list[int],
               checks: Values) -> AnswerVerdict:
    """A wrong answer: the known mistake that gives the same, else the first thing that can be said of it."""
    example = example_text(exercise, cases[wrong[0]], outcomes[wrong[0]], wanted[wrong[0]]) if wrong else ""
    for number, mistake in enumerate(exercise.mistakes if wrong else ()):
        theirs = load(mistake.applied(exercise.solution))[exercise.function]
        if all(same_outcome(observe_answer(exercise, theirs, case), got, exercise.tolerance)
               for case, got in zip(cases, outcomes, strict=True)):
            return AnswerVerdict(passed=False, says=mistake.says, example=example, mistake=number,
                                 checks=checks)
    return AnswerVerdict(passed=False, says=usual_fault(outcomes, wanted, wrong, checks), example=example,
                         checks=checks)


def usual_fault(outcomes: JsonList, wanted: JsonList, wrong: list[int], checks: Values) -> str:
    """What can be said without knowing the mistake: it raised, returned nothing or something of another
    shape; a property that fails; how many cases are wrong."""
    raised = [outcomes[i] for i in wrong if isinstance(outcomes[i], Raised)]
    if raised:
        return with_full_stop(f"It raised an error: {raised[0].says}")
    for i in wrong:
        if outcomes[i] is None and wanted[i] is not None:
            return "It returned nothing: is a `return` missing?"
        if value_kind(outcomes[i]) != value_kind(wanted[i]):
            return f"It returned {value_kind(outcomes[i])} where {value_kind(wanted[i])} should be."
    broken = [says for says, ok in checks if not ok]
    if broken:
        return f"This should hold and does not: {broken[0]}"
    return f"{len(wrong)} of {len(outcomes)} cases come out wrong, and by none of the usual mistakes."


def observe_answer(exercise: Exercise, answer: Callable[..., object], case: Values) -> object:
    """What an answer gives for these arguments, which it may change without harm."""
    try:
        return to_plain(exercise.observe(answer, *copy.deepcopy(case)))
    except (Exception, SystemExit) as fault:
        return Raised(fault)


def outcome_is_right(got: object, right: object, tolerance: float) -> bool:
    return not isinstance(got, Raised) and near(got, right, tolerance)


def same_outcome(one: object, other: object, tolerance: float) -> bool:
    """Whether two wrong answers came to the same; what raises in Python is nan or huge in an array."""
    if isinstance(one, Raised) and isinstance(other, Raised):
        return one.kind == other.kind
    broken = [isinstance(x, Raised) or not tame(x) for x in (one, other)]
    return all(broken) or not any(broken) and near(one, other, tolerance)


def property_holds(exercise: Exercise, answer: Callable[..., object], rule: Property,
                   cases: list[Values]) -> bool:
    """Whether a property holds in every case; a call that raises keeps nothing."""
    def look(*arguments: object) -> object:
        value = to_plain(exercise.observe(answer, *arguments))
        if value is None:
            raise TypeError("it returned nothing")
        return value
    try:
        return all(rule.holds(look, *copy.deepcopy(case)) for case in cases)
    except (Exception, SystemExit):
        return False


def example_text(exercise: Exercise, case: Values, got: object, right: object) -> str:
    came = f"raised {got.kind}" if isinstance(got, Raised) else f"gave {value_text(got)}"
    return (f"{exercise.function}({', '.join(value_text(x, 200) for x in case)}) {came}; "
            f"right is {value_text(right)}")

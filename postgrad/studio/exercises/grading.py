"""An answer, judged: run on the exercise's cases, held against the oracle; a wrong one is held against the
known mistakes on the same cases, and named where one of them gives the same.

Imported where answers run, in the jail. The answer stands in the same process as its judge, as in a notebook:
this keeps accidents out, not a person who wants a false verdict.
"""

from __future__ import annotations

import copy
import io
import sys
import traceback
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from random import Random
from typing import Any

from postgrad.studio.exercises.base import AnswerVerdict, Exercise, NamedBy, Property, with_full_stop
from postgrad.studio.exercises.symptoms import (
    CaseOutcome,
    error_symptom,
    kind_symptom,
    parts_standing,
    shape_symptom,
    value_symptom,
)
from postgrad.studio.exercises.values import near, tame, to_plain, value_text
from postgrad.studio.exercises.watch import ANSWER, Watch, copied_function, imported_library, watching
from postgrad.studio.json_types import JsonDict, JsonList, Values

PRINTED = 2000  # characters that are shown of what an answer prints
CLOSED = ("an answer has no files, no network and no other processes: it works with its arguments and "
          "returns a value")
GREEDY = "it asked for more memory than an answer may have (1 GB)"
Load = Callable[[str], JsonDict]  # source text -> the names it defines


class Prints(io.TextIOBase):
    """Lets so many characters through to where prints go, and counts the rest."""

    def __init__(self, to: io.TextIOBase | Any, most: int):
        self.to, self.left, self.dropped = to, most, 0

    def write(self, text: str) -> int:
        self.to.write(text[: self.left])
        self.dropped += max(0, len(text) - self.left)
        self.left = max(0, self.left - len(text))
        return len(text)

    def say_dropped(self) -> None:
        if self.dropped:
            self.to.write(f"\n... and {self.dropped:,} more characters\n")


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
    return " ".join(f"{at}{type(fault).__name__}: {fault}"[:300].split())


def grade(exercise: Exercise, source: str, load: Load) -> AnswerVerdict:
    """What is to be said of an answer. load executes source text; it may raise whatever that raises."""
    watch, prints = Watch(exercise.library), Prints(sys.stdout, PRINTED)
    cases = list(exercise.cases(Random(exercise.name)))
    try:
        if used := imported_library(source, exercise.library):
            return refused(f"Line {used[1]} names {used[0]}", exercise)
        with redirect_stdout(prints), redirect_stderr(prints), watching(watch, calls=True):
            answer = load(source).get(exercise.function)
        if not callable(answer):
            return AnswerVerdict(passed=False, says=f"The answer defines no function {exercise.function}.")
        with redirect_stdout(prints), redirect_stderr(prints), watching(watch, calls=True):
            first = observe_answer(exercise, answer, cases[0])
    except BaseException as fault:
        return AnswerVerdict(passed=False, named_by="error",
                             says=with_full_stop(f"The answer does not run: {fault_in_words(fault)}"))
    finally:
        prints.say_dropped()
    silent = Prints(sys.stdout, 0)  # what it prints is shown of one case only
    with redirect_stdout(silent), redirect_stderr(silent):
        with watching(watch, calls=False):
            outcomes = [first, *(observe_answer(exercise, answer, case) for case in cases[1:])]
            held = [property_held(exercise, answer, p, cases) for p in exercise.properties]
        if watch.library:
            return refused(f"It calls {watch.library[0]}", exercise)
        if watch.outside:
            return AnswerVerdict(passed=False, named_by="error", says=f"line {watch.outside[0]}: {CLOSED}.")
        verdict = compare_outcomes(exercise, load, cases, outcomes, held)
        if verdict.passed and (copied := copied_function(source, exercise.library)):
            return refused(f"The function at line {copied[1]} is {copied[0]}, but for its names", exercise)
        return verdict


def refused(what: str, exercise: Exercise) -> AnswerVerdict:
    """An answer that is the library's."""
    rest = f" What it may use of the library: {', '.join(exercise.library)}." if exercise.library else ""
    return AnswerVerdict(passed=False, named_by="library", says=
                         f"{what}: the library is what judges this answer, so right or wrong, nothing is "
                         f"shown by it. "
                         f"Write it yourself, with torch, numpy or plain Python.{rest}")


def compare_outcomes(exercise: Exercise, load: Load, cases: list[Values], outcomes: JsonList,
                     held: list[tuple[bool, str]]) -> AnswerVerdict:
    """What an answer gave in all cases, against what is right."""
    wanted = [to_plain(exercise.right(*copy.deepcopy(case))) for case in cases]
    wrong = [i for i, (got, right) in enumerate(zip(outcomes, wanted, strict=True))
             if not outcome_is_right(got, right, exercise.tolerance)]
    checks = tuple((p.says, ok) for p, (ok, _) in zip(exercise.properties, held, strict=True))
    if not wrong and all(ok for _, ok in checks):
        return AnswerVerdict(passed=True, says=f"Right: {len(cases)} cases agree.", checks=checks)
    if not wrong:
        says, example = next((p.says, example) for p, (ok, example) in
                             zip(exercise.properties, held, strict=True) if not ok)
        return AnswerVerdict(passed=False, says=f"This should hold and does not: {says}", example=example,
                             checks=checks, named_by="property")
    example = example_text(exercise, cases[wrong[0]], outcomes[wrong[0]],
                           f"right is {value_text(wanted[wrong[0]])}")
    number, says, by = name_fault(exercise, load, cases, outcomes, wanted, wrong)
    broken = [says for says, ok in checks if not ok]
    if not by:
        rows = [CaseOutcome(exercise.marks(case), *row)
                for case, *row in zip(cases, outcomes, wanted, strict=True)]
        standing = parts_standing(rows, exercise.parts, exercise.tolerance)
        count = f"{len(wrong)} of {len(cases)} cases come out wrong, and by none of the usual mistakes."
        if broken:
            says, by = f"This should hold and does not: {broken[0]}{standing}", "property"
        elif says := value_symptom(rows, exercise.parts, exercise.tolerance, strong=False):
            by = "where"
        else:
            says, by = count + standing, "count"
    return AnswerVerdict(passed=False, says=says, example=example, mistake=number, checks=checks, named_by=by)


def name_fault(exercise: Exercise, load: Load, cases: list[Values], outcomes: JsonList, wanted: JsonList,
               wrong: list[int]) -> tuple[int | None, str, NamedBy]:
    """The number of the known mistake that gives the same, the sentence, and what it goes by: a mistake, an
    error, a shape, a symptom, or "" where nothing is known."""
    known: list[JsonList] = []
    for number, mistake in enumerate(exercise.mistakes):
        theirs = load(mistake.applied(exercise.solution))[exercise.function]
        known.append([observe_answer(exercise, theirs, case) for case in cases])
        if all(same_outcome(their, got, exercise.tolerance)
               for their, got in zip(known[-1], outcomes, strict=True)):
            return number, mistake.says, "mistake"
    raised = [isinstance(got, Raised) for got in outcomes]
    marks = [exercise.marks(case) for case in cases]
    error = ""
    if any(raised):
        where = error_symptom(marks, raised)
        error = with_full_stop(f"It raised an error{where}: {outcomes[raised.index(True)].says}")
    for number, theirs in enumerate(known):
        if same_where_defined(theirs, outcomes, wrong, exercise.tolerance):
            besides = f" Besides: {error}" if error else ""
            return number, exercise.mistakes[number].says + besides, "mistake"
    if error:
        return None, error, "error"
    broken = [not tame(got) for got in outcomes]
    if any(broken):
        return None, f"It gives nan, or a number that has blown up{error_symptom(marks, broken)}.", "symptom"
    rows = [CaseOutcome(*row) for row in zip(marks, outcomes, wanted, strict=True)]
    if says := shape_symptom(rows, exercise.tolerance) or kind_symptom(rows):
        return None, says, "shape"
    if named := mistakes_by_part(exercise, known, outcomes, wanted):
        return named[0], " ".join(exercise.mistakes[i].says for i in named), "mistake"
    says = value_symptom(rows, exercise.parts, exercise.tolerance, strong=True)
    return None, says, "symptom" if says else ""


def same_where_defined(theirs: JsonList, outcomes: JsonList, wrong: list[int], tolerance: float) -> bool:
    """Whether two answers came to the same wherever both came to something: in two wrong cases at least, and
    in half of all."""
    both = [i for i, (one, other) in enumerate(zip(theirs, outcomes, strict=True))
            if not any(isinstance(x, Raised) or not tame(x) for x in (one, other))]
    return (2 * len(both) >= len(outcomes) and len({*both} & {*wrong}) >= 2
            and all(near(theirs[i], outcomes[i], tolerance) for i in both))


def mistakes_by_part(exercise: Exercise, known: list[JsonList], outcomes: JsonList,
                     wanted: JsonList) -> list[int]:
    """Where a value has parts: mistakes that together explain every part that is wrong, each touching no
    other."""
    def pick(values: JsonList, part: str) -> JsonList:
        return [exercise.parts[part](value) for value in values]

    def wrong_parts(values: JsonList) -> set[str]:
        return {part for part in exercise.parts
                if not near(pick(values, part), pick(wanted, part), exercise.tolerance)}

    named, left = [], set[str]()
    try:
        left = wrong_parts(outcomes)
        for number, theirs in enumerate(known):
            if any(isinstance(x, Raised) for x in theirs):
                continue
            mine = wrong_parts(theirs)
            if mine and mine <= left and all(
                    near(pick(theirs, part), pick(outcomes, part), exercise.tolerance) for part in mine):
                named.append(number)
                left -= mine
    except (LookupError, TypeError, AttributeError):  # another shape has no such parts
        return []
    return [] if left else named


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


def property_held(exercise: Exercise, answer: Callable[..., object], rule: Property,
                  cases: list[Values]) -> tuple[bool, str]:
    """Whether a property holds in every case; where not, the last call of the answer and what came of it. A
    call that raises keeps nothing."""
    asked: list[tuple[Values, object]] = []

    def look(*arguments: object) -> object:
        asked.append((copy.deepcopy(arguments), None))
        try:
            value = to_plain(exercise.observe(answer, *arguments))
        except (Exception, SystemExit) as fault:
            asked[-1] = asked[-1][0], Raised(fault)
            raise
        asked[-1] = asked[-1][0], value
        if value is None:
            raise TypeError("it returned nothing")
        return value
    for case in cases:
        try:
            holds = rule.holds(look, *copy.deepcopy(case))
        except (Exception, SystemExit):
            holds = False
        if not holds:
            return False, example_text(exercise, *asked[-1], rule.says) if asked else ""
        asked.clear()
    return True, ""


def example_text(exercise: Exercise, case: Values, got: object, rest: str) -> str:
    came = f"raised {got.kind}" if isinstance(got, Raised) else f"gave {value_text(got)}"
    return f"{exercise.function}({', '.join(value_text(x, 200) for x in case)}) {came}; {rest}"

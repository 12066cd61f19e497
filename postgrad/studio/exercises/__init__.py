"""Exercises that check: things to write, judged by oracles, and questions to think about.

base       Exercise, Mistake, Property, Verdict
coding/    the exercises, a file each: statement, starter, hints, solution, mistakes, cases, oracle
grading    an answer, judged; imported where answers run, in the jail
values     what an answer returned, as plain values: compared and shown
questions  conceptual and open questions, with model answers
progress   what this reader has solved and written, in a file of their own

No torch at import: a list of exercises is there at once. Who runs an answer is not here: the command and the
studio hand it to `studio.cells.runner`, the one jail that has torch.
"""

from __future__ import annotations

from difflib import get_close_matches

from postgrad.studio.exercises.base import AnswerVerdict, Exercise, Mistake, Property
from postgrad.studio.exercises.coding import EXERCISES
from postgrad.studio.exercises.questions import QUESTIONS, Question

__all__ = ["EXERCISES", "AnswerVerdict", "Exercise", "Mistake", "Property", "QUESTIONS", "Question",
           "exercise_named", "exercise_number"]


def exercise_named(which: str) -> Exercise:
    """An exercise by its number, from 1, or by its name."""
    names = list(EXERCISES)
    if which in EXERCISES:
        return EXERCISES[which]
    if which.isdecimal() and 1 <= int(which) <= len(names):
        return EXERCISES[names[int(which) - 1]]
    near = get_close_matches(which, names, 1, 0.5)
    hint = f"did you mean {near[0]}?" if near else "`postgrad exercise list` lists them."
    raise ValueError(f"there is no exercise {which!r}, only 1 to {len(names)} and their names; {hint}")


def exercise_number(exercise: Exercise) -> int:
    return list(EXERCISES).index(exercise.name) + 1

"""Answers to exercises (tests/assets/exercises), graded without a jail: the tests wrote them."""

import tomllib

from paths import ASSETS

from postgrad.studio.exercises import EXERCISES, exercise_named
from postgrad.studio.exercises.grading import grade
from postgrad.studio.exercises.watch import ANSWER


def read_answers(name, key="answer"):
    return tomllib.loads((ASSETS / "exercises" / f"{name}.toml").read_text())[key]


STRANGERS = [(row["exercise"], row["wrong"], row["source"]) for row in read_answers("strangers")]
STUDENTS = [(row["exercise"], row["wrong"], row["source"]) for row in read_answers("students")]
NAMED = {row["wrong"]: row["told"] for row in read_answers("students") if "told" in row}
OTHERWISE = {row["exercise"]: row["source"] for row in read_answers("right")}
RESTYLED = [tuple(row.values()) for row in read_answers("restyled", "mistake")]


def names_in(source):
    space = {"__name__": "answer"}
    exec(compile(source, ANSWER, "exec", dont_inherit=True), space)
    return space


def judged(name, source):
    return grade(exercise_named(name), source, names_in)


def planted():
    """(exercise, number of the mistake, whole wrong solution) of every planted one."""
    return [(exercise.name, number, mistake.applied(exercise.solution))
            for exercise in EXERCISES.values() for number, mistake in enumerate(exercise.mistakes)]

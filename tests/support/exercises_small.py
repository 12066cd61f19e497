"""Answers to exercises, judged without a jail: for text that the tests themselves wrote."""

from postgrad.studio.exercises import exercise_named
from postgrad.studio.exercises.grading import ANSWER, grade


def names_in(source):
    space = {"__name__": "answer"}
    exec(compile(source, ANSWER, "exec", dont_inherit=True), space)
    return space


def judged(name, source):
    return grade(exercise_named(name), source, names_in)


def planted():
    """(exercise, number of the mistake, whole wrong solution) of every planted one."""
    from postgrad.studio.exercises import EXERCISES
    return [(exercise.name, number, mistake.applied(exercise.solution))
            for exercise in EXERCISES.values() for number, mistake in enumerate(exercise.mistakes)]

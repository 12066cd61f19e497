"""The graders of the exercises, about a minute: planted mistakes, students' and strangers' wrong answers are
judged in this process, model solutions and hostile answers in the jail.

    python proofs/exercises.py
"""

from __future__ import annotations

import warnings
from collections import Counter
from pathlib import Path

from harness import Bars, Page, Tables, bar

BEFORE, BEFORE_STRANGERS = 54, 64  # of students' and strangers' answers, refused before any grader was mended
BEFORE_NAMED = 29  # of the planted mistakes in another style, named when they were first tried


def all_of(name: str, target: str, count: int, total: int, least: int = 0, more: str = "") -> dict:
    return bar(name, target, f"{count} of {total}{more}", count == total >= least)


def in_the_jail(folder: Path) -> Bars:
    from exercises_small import OTHERWISE

    from postgrad.studio.cells.runner import Runner
    from postgrad.studio.exercises import EXERCISES
    from tests.studio.exercises.exercises_test import HOSTILE
    runner, hostile, refused = Runner(), [*HOSTILE, ("while True: pass", "an endless loop?")], 0
    try:
        solved = sum(runner.grade(e, e.solution).passed for e in EXERCISES.values())
        others = sum(runner.grade(EXERCISES[name], source).passed for name, source in OTHERWISE.items())
        for source, says in hostile:
            verdict = runner.grade(EXERCISES["group-advantages"], source)
            refused += not verdict.passed and says in verdict.says and "\n" not in verdict.says
    finally:
        runner.close()
    return [all_of("exercises whose model solution passes", ">= 14, all", solved, len(EXERCISES), 14),
            all_of("right answers written otherwise (torch, numpy, loops) that pass", "all", others,
                   len(OTHERWISE)),
            all_of("hostile answers (endless loop, memory, files, network, processes) refused in a sentence",
                   "all", refused, len(hostile))]


def wrong_answers(folder: Path) -> tuple[Bars, Tables]:
    from exercises_small import NAMED, OTHERWISE, RESTYLED, STRANGERS, STUDENTS, judged, planted

    from postgrad.studio.exercises import EXERCISES
    warnings.simplefilter("ignore")  # numpy's, of answers that divide by 0
    count, refused, named = len(planted()), Counter(), Counter()
    for name, number, source in planted():
        verdict = judged(name, source)
        refused[name] += not verdict.passed
        named[name] += verdict.mistake == number
    theirs = [(wrong, judged(name, source)) for name, wrong, source in STUDENTS]
    known = [(wrong, v) for wrong, v in theirs if v.mistake is not None]
    rightly = sum(wrong in NAMED and v.says.startswith(NAMED[wrong]) for wrong, v in known)
    strange = sum(not judged(name, source).passed for name, _, source in STRANGERS)
    styled = sum(judged(name, OTHERWISE[name].replace(old, new)).says.startswith(says)
                 for name, old, new, says in RESTYLED)
    return [all_of("planted wrong solutions refused", ">= 70, all", refused.total(), count, 70),
            bar("planted wrong solutions refused by the right name", ">= 90 %",
                f"{named.total()} of {count} ({100 * named.total() / count:.0f} %)",
                named.total() >= 0.9 * count),
            bar("planted mistakes made in other right answers (torch, numpy), named", ">= 90 %",
                f"{styled} of {len(RESTYLED)}; {BEFORE_NAMED} at first", styled >= 0.9 * len(RESTYLED)),
            all_of("a second set of wrong answers, written after the graders, refused", ">= 30, all",
                   sum(not v.passed for _, v in theirs), len(STUDENTS), 30, f"; {BEFORE} before any mend"),
            all_of("wrong answers by someone who had not read the graders, refused", ">= 30, all", strange,
                   len(STRANGERS), 30, f"; {BEFORE_STRANGERS} before any mend"),
            bar("names given in the second set that are right", "all",
                f"{rightly} of {len(known)} named, the other {len(STUDENTS) - len(known)} told by shape, "
                "property or case", rightly == len(known))], {"By exercise": [
                    {"exercise": name, "planted": len(e.mistakes), "refused": refused[name],
                     "named": named[name], "second set": sum(n == name for n, _, _ in STUDENTS),
                     "strangers": sum(n == name for n, _, _ in STRANGERS)} for name, e in EXERCISES.items()]}


PAGE = Page("exercises", "Exercises that check: what was measured",
            {"jail": in_the_jail, "wrong": wrong_answers}, ["each exercise's name"])

if __name__ == "__main__":
    PAGE.main()

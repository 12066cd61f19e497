"""The graders of the exercises: what was to be shown, and what was measured.

    python proofs/exercises.py      writes docs/results/exercises.json and .md; about a minute

Planted mistakes, students' and strangers' wrong answers are judged in this process, model solutions and
hostile answers in the jail.
"""

from __future__ import annotations

import sys
import warnings
from collections import Counter
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), str(HERE / "tools"), str(HERE / "tests/support")]

import results  # noqa: E402
from exercises_small import (  # noqa: E402
    NAMED,
    OTHERWISE,
    RESTYLED,
    STRANGERS,
    STUDENTS,
    judged,
    planted,
)
from results import bar  # noqa: E402

from postgrad.studio.cells.runner import Runner  # noqa: E402
from postgrad.studio.exercises import EXERCISES  # noqa: E402
from tests.studio.exercises.exercises_test import HOSTILE  # noqa: E402

COMMAND = "python proofs/exercises.py"
BEFORE = 54  # of the students' answers, refused before any grader was mended
BEFORE_STRANGERS = 64  # of the strangers' answers, refused before any grader was mended
BEFORE_NAMED = 29  # of the planted mistakes in another style, named when they were first tried


def in_the_jail(runner: Runner) -> list[dict]:
    solved = sum(runner.grade(e, e.solution).passed for e in EXERCISES.values())
    others = sum(runner.grade(EXERCISES[name], source).passed for name, source in OTHERWISE.items())
    refused, hostile = 0, [*HOSTILE, ("while True: pass", "an endless loop?")]
    for source, says in hostile:
        verdict = runner.grade(EXERCISES["group-advantages"], source)
        refused += not verdict.passed and says in verdict.says and "\n" not in verdict.says
    return [
        bar("exercises whose model solution passes", ">= 14, all", f"{solved} of {len(EXERCISES)}",
            solved == len(EXERCISES) >= 14, COMMAND),
        bar("right answers written otherwise (torch, numpy, loops) that pass", "all",
            f"{others} of {len(OTHERWISE)}", others == len(OTHERWISE), COMMAND),
        bar("hostile answers (endless loop, memory, files, network, processes) refused in a sentence", "all",
            f"{refused} of {len(hostile)}", refused == len(hostile), COMMAND),
    ]


def wrong_answers() -> tuple[list[dict], list[dict]]:
    """The bars, and a row for each exercise."""
    count, refused, named = len(planted()), Counter(), Counter()
    for name, number, source in planted():
        verdict = judged(name, source)
        refused[name] += not verdict.passed
        named[name] += verdict.mistake == number
    theirs = [(wrong, judged(name, source)) for name, wrong, source in STUDENTS]
    others = sum(not verdict.passed for _, verdict in theirs)
    strange = sum(not judged(name, source).passed for name, _, source in STRANGERS)
    known = [verdict for _, verdict in theirs if verdict.mistake is not None]
    rightly = sum(wrong in NAMED and v.says.startswith(NAMED[wrong])
                  for wrong, v in theirs if v.mistake is not None)
    styled = sum(judged(name, OTHERWISE[name].replace(old, new)).says.startswith(says)
                 for name, old, new, says in RESTYLED)
    bars = [
        bar("planted wrong solutions refused", ">= 70, all", f"{refused.total()} of {count}",
            refused.total() == count >= 70, COMMAND),
        bar("planted wrong solutions refused by the right name", ">= 90 %",
            f"{named.total()} of {count} ({100 * named.total() / count:.0f} %)", named.total() >= 0.9 * count,
            COMMAND),
        bar("planted mistakes made in other right answers (torch, numpy), named", ">= 90 %",
            f"{styled} of {len(RESTYLED)}; {BEFORE_NAMED} at first", styled >= 0.9 * len(RESTYLED), COMMAND),
        bar("a second set of wrong answers, written after the graders, refused", ">= 30, all",
            f"{others} of {len(STUDENTS)}; {BEFORE} before any mend", others == len(STUDENTS) >= 30, COMMAND),
        bar("wrong answers by someone who had not read the graders, refused", ">= 30, all",
            f"{strange} of {len(STRANGERS)}; {BEFORE_STRANGERS} before any mend",
            strange == len(STRANGERS) >= 30, COMMAND),
        bar("names given in the second set that are right", "all",
            f"{rightly} of {len(known)} named, the other {len(STUDENTS) - len(known)} told by shape, "
            "property or case", rightly == len(known), COMMAND),
    ]
    return bars, [{"exercise": name, "planted": len(e.mistakes), "refused": refused[name],
                   "named": named[name], "second set": sum(n == name for n, _, _ in STUDENTS),
                   "strangers": sum(n == name for n, _, _ in STRANGERS)}
                  for name, e in EXERCISES.items()]


def main() -> None:
    warnings.simplefilter("ignore")  # numpy's, of answers that divide by 0
    runner = Runner()
    try:
        bars = in_the_jail(runner)
    finally:
        runner.close()
    more, rows = wrong_answers()
    print(results.write("exercises", "Exercises that check: what was measured", bars + more,
                        seeds=["each exercise's name"], tables={"By exercise": rows}))
    sys.exit(not all(row["holds"] for row in bars + more))


if __name__ == "__main__":
    main()

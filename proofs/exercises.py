"""The graders of the exercises: planted mistakes, wrong answers of students and strangers, model solutions
and hostile answers, as tests/studio/exercises/exercises_test.py judges them.

    python proofs/exercises.py [report=tests.xml]
"""

from __future__ import annotations

from harness import Page, rooms, tests

PAGE = Page("exercises", "Exercises that check: what was measured", {"tests": tests("exercises")},
            ["each exercise's name"], paths=rooms("studio"))

if __name__ == "__main__":
    PAGE.main()

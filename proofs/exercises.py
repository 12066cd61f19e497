"""The graders of the exercises: planted mistakes, wrong answers of students, strangers and a mutator, model
solutions, hostile answers, and answers that are the library's own.

    python proofs/exercises.py [tests] [report=tests.xml]
    python proofs/exercises.py mutants [seed=TEXT] [first=TEXT]
                                                       without a seed: the commit, so that nobody chose it
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from harness import UNCOMMITTED, Bars, Page, Tables, bar, commit, rooms, tests

COUNT, OTHERS = 12, 12
KINDS = ("mistake", "symptom", "shape", "where", "property", "count")


def mutants(folder: Path, seed: str = "", first: str = "") -> tuple[Bars, Tables]:
    """Each solution with one change, drawn by a seed: what the grader says of twelve that are wrong.

    first: what came of an earlier run, before a mend.
    """
    from mutants import wrong_answers

    from postgrad.studio.exercises import EXERCISES
    seed = seed or commit().removesuffix(UNCOMMITTED)
    rows, found = [], Counter[str]()
    for name in EXERCISES:
        made, same = wrong_answers(name, seed, COUNT, others=OTHERS)
        kinds = Counter("praised" if verdict.passed else verdict.named_by for *_, verdict in made)
        found.update(kinds)
        rows.append({"exercise": name, "wrong answers": len(made), **{kind: kinds[kind] for kind in KINDS},
                     "praised": kinds["praised"], "changes without effect": same})
        (folder / f"{name}.txt").write_text("".join(
            f"{what} | {verdict.named_by or 'praised'} | {verdict.says}\n{source}\n\n"
            for what, source, verdict in made))
    drawn = sum(found.values())
    named = drawn - found["count"] - found["praised"]
    told = found["mistake"] + found["symptom"] + found["shape"]
    command = f"python proofs/exercises.py mutants seed={seed}"
    return [
        bar("wrong answers made by a mutator after the messages were frozen, told more than 'wrong'",
            ">= 85 %", f"{named} of {drawn} ({named / drawn:.0%}): {told} by what was done or how the result "
            f"relates to the right one, {found['where']} by where it is wrong, {found['property']} by a "
            "property that breaks", named >= 0.85 * drawn, command, seeds=[seed]),
        bar("wrong answers made by a mutator that are praised", "0", "; ".join(filter(None, (
            f"{found['praised']} of {drawn}", first))), not found["praised"], command, seeds=[seed]),
    ], {"Wrong answers made by a mutator": rows}


PAGE = Page("exercises", "Exercises that check: what was measured",
            {"tests": tests("exercises"), "mutants": mutants}, ["each exercise's name"],
            paths=rooms("studio"))

if __name__ == "__main__":
    PAGE.main()

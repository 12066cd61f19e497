"""`postgrad exercise ...`: a list, a file to begin with, its check, hints, questions, progress."""

from __future__ import annotations

import json
from pathlib import Path

from postgrad.cli.output import say_json, table
from postgrad.runs.display import clean, figure, sparkline
from postgrad.studio.exercises import EXERCISES, QUESTIONS, exercise_named, exercise_number, progress
from postgrad.studio.exercises.base import AnswerVerdict, Exercise
from postgrad.system.files import read_text, write_text


def exercise(args) -> int:
    return ACTIONS[args.action](args) or 0


def state_of(name: str, kept: progress.Progress) -> str:
    if name in kept.solved:
        return "solved"
    tries = kept.tries.get(name, 0)
    return f"{tries} {'try' if tries == 1 else 'tries'}" if tries else ""


def show_list(args) -> None:
    kept = progress.load_progress()
    rows = [{"": exercise_number(e), "exercise": e.name, "chapter": e.chapter, "about": e.title,
             "state": state_of(e.name, kept)} for e in EXERCISES.values()]
    if args.json:
        asked = [{"question": name, "written": name in kept.written} for name in QUESTIONS]
        return say_json({"exercises": [{**row, "number": row.pop("")} for row in rows], "questions": asked})
    table(rows)
    print(f"\nSolved: {len(kept.solved)} of {len(rows)}. Questions answered: {len(kept.written)} of "
          f"{len(QUESTIONS)}. Begin: postgrad exercise start 1")


def start(args) -> None:
    """A file with the statement as its docstring, and the beginning of an answer."""
    chosen = exercise_named(args.exercise)
    file = Path(args.file or f"{chosen.name.replace('-', '_')}.py")
    if file.exists():
        raise ValueError(f"{file} exists: name another file, or move it away.")
    write_text(file, first_text(chosen))
    if args.json:
        return say_json({"exercise": chosen.name, "file": str(file)})
    number = exercise_number(chosen)
    if chosen.curves:
        show_curves(chosen.curves())
    print(f"{clean(chosen.statement)}\nWrite your answer into {file}, then: postgrad exercise check {number} "
          f"{file}\nStuck: postgrad exercise hint {number}")


def show_curves(runs: dict[str, dict[str, list[float]]]) -> None:
    table([{"run": run} | {name: f"{sparkline(values, 12)} {figure(values[0])} to {figure(values[-1])}"
                           for name, values in curves.items()} for run, curves in runs.items()])
    print()


def first_text(chosen: Exercise) -> str:
    statement = chosen.statement.replace("\\", "\\\\").strip()
    return f'"""Exercise {exercise_number(chosen)}: {chosen.title}\n\n{statement}\n"""\n\n\n{chosen.starter}'


def check(args) -> int:
    from postgrad.studio.cells.runner import Runner
    chosen, answer = exercise_named(args.exercise), read_text(args.file)
    kept, runner = progress.load_progress(), Runner()
    try:
        verdict = runner.grade(chosen, answer)
    finally:
        runner.close()
    kept.tried(chosen.name, answer, verdict.passed)
    progress.save_progress(kept)
    if args.json:
        say_json(verdict.record() | {"exercise": chosen.name,
                                     "solution": chosen.solution if verdict.passed else None})
    else:
        tell(chosen, verdict)
    return int(not verdict.passed)


def tell(chosen: Exercise, verdict: AnswerVerdict) -> None:
    if verdict.output:
        print(f"It printed:\n{clean(verdict.output)}")
    print(clean(verdict.says))
    if verdict.example:
        print(f"  {clean(verdict.example)}")
    for says, ok in verdict.checks:
        print(f"  {'holds ' if ok else 'broken'}  {says}")
    if verdict.passed:
        print(f"\nA model solution, to compare:\n\n{chosen.solution}")


def hint(args) -> None:
    chosen = exercise_named(args.exercise)
    if not 1 <= args.step <= len(chosen.hints):
        raise ValueError(f"there are hints 1 to {len(chosen.hints)}, not {args.step}.")
    told = chosen.hints[: args.step]
    if args.json:
        return say_json({"exercise": chosen.name, "hints": list(told)})
    for number, text in enumerate(told, 1):
        print(f"{number}. {text}")
    if args.step < len(chosen.hints):
        print(f"More: postgrad exercise hint {exercise_number(chosen)} --step {args.step + 1}")


def ask(args) -> None:
    """Without a name: all questions. With one and an own answer: the model answer."""
    kept = progress.load_progress()
    if args.question is None:
        rows = [{"question": q.name, "chapter": q.chapter, "kind": "open" if q.open else "", "asks": q.asks,
                 "answered": "yes" if q.name in kept.written else ""} for q in QUESTIONS.values()]
        return say_json(rows) if args.json else table(rows)
    if args.question not in QUESTIONS:
        raise ValueError(f"there is no question {args.question!r}, only {', '.join(QUESTIONS)}.")
    question = QUESTIONS[args.question]
    if args.answer:
        kept.written[question.name] = args.answer
        progress.save_progress(kept)
    own = kept.written.get(question.name)
    if args.json:
        return say_json({"question": question.name, "asks": question.asks, "own": own,
                         "answer": question.answer if own else None})
    print(question.asks if not own else f"{question.asks}\n\nYou: {clean(own)}\n\n"
          f"{'Nobody has the answer. ' if question.open else ''}{question.answer}")
    if not own:
        print(f'\nThe model answer follows your own: postgrad exercise ask {question.name} --answer "..."')


def export(args) -> None:
    """What is kept, as a file."""
    found = progress.load_progress().record()
    write_text(Path(args.out), json.dumps(found, indent=1) + "\n")
    if args.json:
        return say_json({"out": args.out, "solved": len(found["solved"]), "written": len(found["written"])})
    print(f"{args.out}: {len(found['solved'])} solved, {len(found['written'])} questions answered")


ACTIONS = {"list": show_list, "start": start, "check": check, "hint": hint, "ask": ask, "export": export}

"""`postgrad exercise ...`: a list, a file to begin with, its check, hints, questions, progress."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from postgrad.cli.options import Command, CommandOptions
from postgrad.cli.output import print_json, print_table
from postgrad.system.settings import setting

if TYPE_CHECKING:
    from postgrad.studio.exercises.base import AnswerVerdict, Exercise
    from postgrad.studio.exercises.progress import Progress


@dataclass(frozen=True, kw_only=True)
class ExerciseOptions(CommandOptions):
    exercise: str = setting(about="number or name of the exercise", metavar="N", positional=True)


@dataclass(frozen=True, kw_only=True)
class StartExerciseOptions(ExerciseOptions):
    file: str | None = setting(None, "file to write; default: the exercise's name", metavar="FILE.py")


@dataclass(frozen=True, kw_only=True)
class CheckExerciseOptions(ExerciseOptions):
    file: str = setting(about="your answer", metavar="FILE.py", positional=True)


@dataclass(frozen=True, kw_only=True)
class HintOptions(ExerciseOptions):
    step: int = setting(1, "number of hints: 1, 2 or 3")


@dataclass(frozen=True, kw_only=True)
class QuestionOptions(CommandOptions):
    question: str | None = setting(None, "name of a question; default: list all", metavar="NAME",
                                   positional=True)
    answer: str | None = setting(None, "your answer; the model answer is shown after it", metavar="TEXT")


@dataclass(frozen=True, kw_only=True)
class ExportProgressOptions(CommandOptions):
    out: str = setting(about="file to write", metavar="FILE.json", positional=True)


def exercise_state(name: str, record: Progress) -> str:
    if name in record.solved:
        return "solved"
    tries = record.tries.get(name, 0)
    return f"{tries} {'try' if tries == 1 else 'tries'}" if tries else ""


def list_exercises(options: CommandOptions) -> None:
    from postgrad.studio.exercises import EXERCISES, QUESTIONS, exercise_number, progress
    record = progress.load_progress()
    rows = [{"": exercise_number(e), "exercise": e.name, "chapter": e.chapter, "about": e.title,
             "state": exercise_state(e.name, record)} for e in EXERCISES.values()]
    if options.json:
        asked = [{"question": name, "written": name in record.written} for name in QUESTIONS]
        return print_json({"exercises": [{**row, "number": row.pop("")} for row in rows], "questions": asked})
    print_table(rows)
    return print(f"\nSolved: {len(record.solved)} of {len(rows)}. Questions answered: "
                 f"{len(record.written)} of {len(QUESTIONS)}. Begin: postgrad exercise start 1")


def start_exercise(options: StartExerciseOptions) -> None:
    """A file with the statement as its docstring, and the beginning of an answer."""
    from postgrad.runs.display import clean
    from postgrad.studio.exercises import exercise_named, exercise_number
    from postgrad.system.files import write_text
    chosen = exercise_named(options.exercise)
    file = Path(options.file or f"{chosen.name.replace('-', '_')}.py")
    if file.exists():
        raise ValueError(f"{file} exists: name another file, or move it away.")
    write_text(file, starter_file(chosen))
    if options.json:
        return print_json({"exercise": chosen.name, "file": str(file)})
    number = exercise_number(chosen)
    if chosen.curves:
        print_curves(chosen.curves())
    return print(f"{clean(chosen.statement)}\nWrite your answer into {file}, then: postgrad exercise check "
                 f"{number} {file}\nStuck: postgrad exercise hint {number}")


def print_curves(runs: dict[str, dict[str, list[float]]]) -> None:
    from postgrad.runs.display import figure, sparkline
    print_table([{"run": run} | {name: f"{sparkline(values, 12)} {figure(values[0])} to {figure(values[-1])}"
                                 for name, values in curves.items()} for run, curves in runs.items()])
    print()


def starter_file(chosen: Exercise) -> str:
    from postgrad.studio.exercises import exercise_number
    statement = chosen.statement.replace("\\", "\\\\").strip()
    return f'"""Exercise {exercise_number(chosen)}: {chosen.title}\n\n{statement}\n"""\n\n\n{chosen.starter}'


def check_exercise(options: CheckExerciseOptions) -> int:
    from postgrad.studio.cells.runner import Runner
    from postgrad.studio.exercises import exercise_named, progress
    from postgrad.system.files import read_text
    chosen, answer = exercise_named(options.exercise), read_text(options.file)
    record, runner = progress.load_progress(), Runner()
    try:
        verdict = runner.grade(chosen, answer)
    finally:
        runner.close()
    record.tried(chosen.name, answer, verdict.passed)
    progress.save_progress(record)
    if options.json:
        print_json(verdict.record() | {"exercise": chosen.name,
                                       "solution": chosen.solution if verdict.passed else None})
    else:
        print_verdict(chosen, verdict)
    return int(not verdict.passed)


def print_verdict(chosen: Exercise, verdict: AnswerVerdict) -> None:
    from postgrad.runs.display import clean
    print(clean(verdict.says))
    if verdict.example:
        print(f"  {clean(verdict.example)}")
    for says, ok in verdict.checks:
        print(f"  {'holds ' if ok else 'broken'}  {says}")
    if verdict.output:
        print(f"It printed:\n{clean(verdict.output)}")
    if verdict.passed:
        print(f"\nA model solution, to compare:\n\n{chosen.solution}")


def print_hints(options: HintOptions) -> None:
    from postgrad.studio.exercises import exercise_named, exercise_number
    chosen = exercise_named(options.exercise)
    if not 1 <= options.step <= len(chosen.hints):
        raise ValueError(f"there are hints 1 to {len(chosen.hints)}, not {options.step}.")
    hints = chosen.hints[: options.step]
    if options.json:
        return print_json({"exercise": chosen.name, "hints": list(hints)})
    for number, text in enumerate(hints, 1):
        print(f"{number}. {text}")
    if options.step < len(chosen.hints):
        print(f"More: postgrad exercise hint {exercise_number(chosen)} --step {options.step + 1}")
    return None


def ask_question(options: QuestionOptions) -> None:
    """Without a name: all questions. With one and an own answer: the model answer."""
    from postgrad.runs.display import clean
    from postgrad.studio.exercises import QUESTIONS, progress
    record = progress.load_progress()
    if options.question is None:
        rows = [{"question": q.name, "chapter": q.chapter, "kind": "open" if q.open else "", "asks": q.asks,
                 "answered": "yes" if q.name in record.written else ""} for q in QUESTIONS.values()]
        return print_json(rows) if options.json else print_table(rows)
    if options.question not in QUESTIONS:
        raise ValueError(f"there is no question {options.question!r}, only {', '.join(QUESTIONS)}.")
    question = QUESTIONS[options.question]
    if options.answer:
        record.written[question.name] = options.answer
        progress.save_progress(record)
    own = record.written.get(question.name)
    if options.json:
        return print_json({"question": question.name, "asks": question.asks, "own": own,
                           "answer": question.answer if own else None})
    print(question.asks if not own else f"{question.asks}\n\nYou: {clean(own)}\n\n"
          f"{'Nobody has the answer. ' if question.open else ''}{question.answer}")
    if not own:
        print(f'\nThe model answer follows your own: postgrad exercise ask {question.name} --answer "..."')
    return None


def write_progress(options: ExportProgressOptions) -> None:
    from postgrad.studio.exercises import progress
    from postgrad.system.files import write_text
    saved = progress.load_progress().record()
    write_text(Path(options.out), json.dumps(saved, indent=1) + "\n")
    if options.json:
        return print_json({"out": options.out, "solved": len(saved["solved"]),
                           "written": len(saved["written"])})
    return print(f"{options.out}: {len(saved['solved'])} solved, {len(saved['written'])} questions answered")


COMMANDS = (Command("exercise", "do the exercises of the book: start, check, hints, questions", actions=(
    Command("list", "list the exercises, and which you have solved", run=list_exercises),
    Command("start", "print an exercise, and write a file for your answer", StartExerciseOptions,
            start_exercise),
    Command("check", "check your answer: right, or what is wrong with it", CheckExerciseOptions,
            check_exercise, "The answer runs in a jail, without files and network. Exit status 0 where it is "
            "right, 1 where not."),
    Command("hint", "a hint; there are three", HintOptions, print_hints),
    Command("ask", "the questions; a model answer after your own", QuestionOptions, ask_question),
    Command("export", "your progress and your answers as a JSON file", ExportProgressOptions,
            write_progress),
)),)

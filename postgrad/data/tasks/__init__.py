"""A task is prompts, a verifier and gold examples, one small file each.

`load_task` finds one by name or by path.

base   what a task is, its splits, and the form that verdicts share        listed   tasks from a finite list
                                                                                    of prompts
made here              word_problems, arithmetic, countdown, questions, constraints
several as one         mixed (words+words-es+countdown)
over several turns     guess (a number), animals (a word), big_numbers (with a calculator); games plays them
told where to look     gsm8k, maths, code (MBPP, HumanEval), gym (reasoning-gym's generators)
elsewhere              adapters (env:trl:FILE.py:CLASS and other doors to environments that exist)
a user's own           user (a .py file), rows (a .jsonl file)             corpus   what the embedded models
                                                                                    were trained on
chain, tries           what the steps of a reply are worth                 reflection   how replies look back
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

from postgrad.data.tasks.base import SPLITS, Task, split_of

__all__ = ["SOURCED", "SPLITS", "TASKS", "Task", "load_task", "parts_of", "split_of"]

TASKS = {  # name -> the module whose load(name) makes it, imported when first asked for
    "words": "word_problems",
    "words-easy": "word_problems",
    "words-hard": "word_problems",
    "words-es": "word_problems",
    "arithmetic": "arithmetic",
    "arithmetic-hard": "arithmetic",
    "countdown": "countdown",
    "countdown-4": "countdown",
    "questions": "questions",
    "questions-biased": "questions",
    "constraints": "constraints",
    "constraints-hard": "constraints",
    "guess": "guess",
    "animals": "animals",
    "big-numbers": "big_numbers",
}
SOURCED = {  # the same for tasks that are told where their rows are, or which of many: gsm8k:FOLDER
    "gsm8k": "gsm8k",
    "math": "maths",
    "mbpp": "code",
    "mbpp-sanitized": "code",
    "humaneval": "code",
    "gym": "gym",
    "env": "adapters",
}


def parts_of(name: str) -> list[str]:
    """The tasks of a mixture: "words+countdown" -> ["words", "countdown"]; what is none is one name:
    "number+0.2*think:q.jsonl" names verifiers."""
    pieces = [piece.strip() for piece in name.split("+")]
    all_tasks = all(piece in TASKS or piece.partition(":")[0] in SOURCED or piece.endswith((".py", ".jsonl"))
                    for piece in pieces)
    return pieces if all_tasks and not Path(name).is_file() else [name]


def load_task(name: str | Path) -> Task:
    """A registered task by name, or a user's own: a .py file with `prompts` and `verify`,
    or a .jsonl file of questions.

    load_task("words"); load_task("gsm8k:data/gsm8k"); load_task("my_task.py"); load_task("q.jsonl");
    load_task("text:q.jsonl"); load_task("words+countdown") for a mixture
    """
    text = str(name)
    if len(parts := parts_of(text)) > 1:
        return import_module("postgrad.data.tasks.mixed").mix([load_task(part) for part in parts])
    kind, _, source = text.partition(":")
    if kind in SOURCED:
        return import_module(f"postgrad.data.tasks.{SOURCED[kind]}").load(kind, source)
    if text in TASKS:
        return import_module(f"postgrad.data.tasks.{TASKS[text]}").load(text)
    verifier, _, file = text.rpartition(":") if text.endswith(".jsonl") else ("", "", text)
    path = Path(file).expanduser()
    if path.suffix not in (".py", ".jsonl"):
        known = [*TASKS, *SOURCED]
        close = get_close_matches(kind, known, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"there is no task {text!r}: {hint}A task is one of {', '.join(known)}, "
                         "or a path to a .py or .jsonl file.")
    if not path.is_file():
        raise ValueError(f"there is no file {file!r}: give the path of a task file that exists, or one of "
                         f"{', '.join(TASKS)}.")
    if path.suffix == ".jsonl":
        return import_module("postgrad.data.tasks.rows").load(path, verifier or "number(lenient)")
    return import_module("postgrad.data.tasks.user").load(path)

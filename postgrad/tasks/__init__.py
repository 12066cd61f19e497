"""A task is prompts, a verifier and gold examples, one small file each. `load_task` finds one by name or by path."""

from __future__ import annotations

from difflib import get_close_matches
from importlib import import_module
from pathlib import Path

from postgrad.tasks.base import SPLITS, Task, split_of

__all__ = ["SPLITS", "TASKS", "Task", "load_task", "split_of"]

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
}


def load_task(name: str | Path, *, verifier: str | None = None) -> Task:
    """A registered task by name, or a user's own: a .py file with `prompts` and `verify`, or a .jsonl file of questions.

    load_task("words"); load_task("my_task.py"); load_task("gsm8k.jsonl", verifier="number")
    """
    text = str(name)
    if text in TASKS:
        if verifier is not None:
            raise ValueError(f"the task {text!r} has its own verifier: verifier={verifier!r} is for .jsonl files.")
        return import_module(f"postgrad.tasks.{TASKS[text]}").load(text)
    path = Path(text).expanduser()
    if path.suffix not in (".py", ".jsonl"):
        close = get_close_matches(text, TASKS, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(f"there is no task {text!r}: {hint}A task is one of {', '.join(TASKS)}, "
                         "or a path to a .py or .jsonl file.")
    if not path.is_file():
        raise ValueError(f"there is no file {text!r}: give the path of a task file that exists, or one of {', '.join(TASKS)}.")
    if path.suffix == ".jsonl":
        return import_module("postgrad.tasks.rows").load(path, verifier or "number")
    if verifier is not None:
        raise ValueError(f"{path.name} brings its own verify: verifier={verifier!r} is for .jsonl files.")
    return import_module("postgrad.tasks.user").load(path)

"""Tasks: prompts, a verifier and gold replies. `load_task` opens one by name or path.

A task is one file here that declares `NAMES = ("reverse", ...)` and defines `load(name) -> Task`: the name
works everywhere, is listed and is tested. A name with a colon, "gsm8k:FOLDER", takes a source: `load(name,
source)`. `register_task` adds a task from outside (system/plugins.py).

base                  the Task record, the splits, verdicts      listed   tasks from a finite list of prompts
generated             word_problems, arithmetic, countdown, questions, constraints
multi-turn            guess (guess, animals), big_numbers (with a calculator); games plays them
data sets             gsm8k, maths, code (MBPP, HumanEval), gym (reasoning-gym's generators)
environments          adapters (env:trl:FILE.py:CLASS and others)
user tasks            user (a .py file), rows (a .jsonl file)    mixed    words+words-es+countdown
chain                 labels of the steps of a reply             reflection   how replies revisit their steps
corpus, corpus_zero   the pretraining text of the embedded models
"""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from postgrad.data.rows import SUFFIXES, BadRows, hub_hint
from postgrad.data.sets import SETS
from postgrad.data.tasks.base import SPLITS, Task, did_you_mean, split_of
from postgrad.data.tasks.mixed import mix_tasks
from postgrad.system.plugins import Registry, declared_names

__all__ = ["SOURCED", "SPLITS", "TASKS", "Task", "is_task_name", "load_task", "mixture_parts",
           "register_task", "split_of"]

_DECLARED = declared_names(Path(__file__).parent)
# name -> module that defines load(name), and for those with a source load(name, source)
TASKS = {name: module for name, module in _DECLARED.items() if ":" not in name}
SOURCED = {name.partition(":")[0]: module for name, module in _DECLARED.items() if ":" in name}
_REGISTERED: Registry[Callable[[str], Task]] = Registry("task", frozenset([*TASKS, *SOURCED]))


def register_task(name: str, load: Callable[[str], Task]) -> Callable[[str], Task]:
    """Adds a task by name to this process. load(name) is called on first use."""
    return _REGISTERED.register(name, load)


def is_task_name(text: str) -> bool:
    """Whether a text names a built-in or registered task, with or without a source."""
    return text in TASKS or text.partition(":")[0] in SOURCED or text in _REGISTERED


def mixture_parts(name: str) -> list[str]:
    """mixture_parts("words+countdown") -> ["words", "countdown"]. Other texts are one name:
    "number+0.2*think:q.jsonl" names verifiers."""
    pieces = [piece.strip() for piece in name.split("+")]
    if len(pieces) == 1 or Path(name).is_file():
        return [name]
    all_tasks = all(piece.endswith((".py", *SUFFIXES)) or is_task_name(piece) for piece in pieces)
    return pieces if all_tasks else [name]


def load_task(name: str | Path, bad: BadRows | None = None) -> Task:
    """A task by name, or a user's own: a .py file with `prompts` and `verify`, or a .jsonl file of questions.

    load_task("words"); load_task("gsm8k:data/gsm8k"); load_task("my_task.py"); load_task("q.jsonl");
    load_task("text:q.jsonl"); load_task("words+countdown") for a mixture
    """
    text = str(name)
    if len(parts := mixture_parts(text)) > 1:
        return mix_tasks([load_task(part, bad and BadRows(skip=bad.skip, hint=bad.hint)) for part in parts])
    kind, _, source = text.partition(":")
    if kind in SOURCED:
        return _load_from(SOURCED[kind], kind, source, *([bad] if kind in SETS else []))
    if text in TASKS:
        return _load_from(TASKS[text], text)
    verifier, _, file = text.rpartition(":") if text.endswith(SUFFIXES) else ("", "", text)
    if hub := re.fullmatch(r"(?:(.+):)?(hub:.+)", text):
        return _load_from("rows", hub[2], hub[1] or "number(lenient)", bad)
    path = Path(file).expanduser()
    if path.suffix != ".py" and not text.endswith(SUFFIXES):
        if load := _REGISTERED.find(text):
            return load(text)
        if path.is_dir():
            raise ValueError(f"{text} is a folder: a task is a .py or .jsonl file, or a name.")
        known = [*TASKS, *SOURCED, *_REGISTERED]
        raise ValueError(f"there is no task {text!r}: {did_you_mean(kind, known)}A task is one of "
                         f"{', '.join(known)}, or a path to a .py or .jsonl file{hub_hint(text)}.")
    if not path.is_file():
        raise ValueError(f"there is no file {file!r}: give the path of a task file that exists, or one of "
                         f"{', '.join(TASKS)}.")
    if path.suffix != ".py":
        return _load_from("rows", path, verifier or "number(lenient)", bad)
    return _load_from("user", path, bad)


def _load_from(module: str, *args: object) -> Task:
    task: Task = import_module(f"postgrad.data.tasks.{module}").load(*args)
    return task

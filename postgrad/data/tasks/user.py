"""Tasks from a user's Python file. It runs like any module that they import. Required names:

prompts   a list of Prompt or {"question", "answer"}, or a function of nothing or the split that returns one
verify    verify(prompt, completion) -> Verdict, float or bool
or play   play(prompt, rng): a generator that yields messages, is sent each reply, returns what verify does

Optional: name, best (the full score, 1.0), tokens (max_new_tokens of a reply), seconds (time limit of a
verdict, 60), gold(prompt) -> str (with play, gold(prompt, messages): the next reply of a perfect player),
demonstrations (like prompts; of Conversation or {"question", "reply"}), tools (functions that the model may
call), turns (the most replies of an episode, 8) and waits (play waits for other processes: many run in
threads).
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from postgrad.data.rows import BadRows, read_messages
from postgrad.data.tasks.base import SPLITS, Draw, Task
from postgrad.data.tasks.games import prove_play
from postgrad.data.tasks.listed import (
    Parts,
    TaskMeta,
    disjoint_splits,
    no_prompts,
    place_demonstrations,
    read_prompts,
    sample_lists,
    split_task,
)
from postgrad.models.chat.tools import tool_schema
from postgrad.records import Conversation, Prompt
from postgrad.rewards.base import check_verifier
from postgrad.rewards.function import own_verifier, takes_two
from postgrad.system.user_code import error_location, load_file, parse_source

PROVED = 8  # gold completions judged when a file is loaded
SETTINGS: dict[str, tuple[Callable[[object], bool], str]] = {  # name -> what a value must pass, and be
    "turns": (lambda x: x is None or isinstance(x, int) and x >= 1,
              "a whole number, the most replies of an episode"),
    "name": (lambda x: isinstance(x, str) and x != "", "a text"),
    "best": (lambda x: isinstance(x, int | float) and abs(x) <= sys.float_info.max,
             "a number, the full score"),
    "tokens": (lambda x: x is None or isinstance(x, int) and x >= 1, "a whole number, the most of a reply"),
    "isolate": (lambda x: isinstance(x, bool), "True or False, whether verify runs in the jail"),
    "seconds": (lambda x: x is None or isinstance(x, int | float) and x > 0,
                "a number above 0, the most that a verdict may take"),
}


def _line_of(path: Path, name: str) -> int | None:
    """The line where a file defines a name at its top level."""
    for node in parse_source(path.read_bytes()).body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", node)]
        if any(name in (getattr(target, "id", None), getattr(target, "name", None)) for target in targets):
            return node.lineno
    return None


def _place_of(path: Path | None, name: str) -> str:
    if path is None:
        return "make_task"
    line = _line_of(path, name)
    return f"{path.name}, line {line}" if line else path.name


def _required(path: Path, module: ModuleType, name: str, example: str) -> Any:
    if not hasattr(module, name):
        raise ValueError(f"{path.name}, line 1: the file defines no `{name}`; add {example}.")
    return getattr(module, name)


def _rows(path: Path | None, name: str, source: object, split: str | None) -> list[Any]:
    """The rows of `prompts` or `demonstrations`."""
    at = _place_of(path, name)
    if callable(source):
        try:
            rows = source() if split is None else source(split)
            rows = list(rows) if rows is not None and not isinstance(rows, (str, Mapping)) else rows
        except (Exception, SystemExit) as error:
            place = error_location(path, error) if path else f"{at}: {type(error).__name__}: {error}"
            raise ValueError(f"{place}: `{name}` must return a list.") from error
    else:
        rows = list(source) if isinstance(source, tuple) else source
    if not isinstance(rows, list) or not rows:
        of = f" for the split {split!r}" if split else ""
        raise ValueError(f"{at}: `{name}` gave {'an empty list' if rows == [] else type(rows).__name__}{of}; "
                         f"expected a list with at least one row.")
    return rows


def _by_split(path: Path | None, name: str, source: object) -> bool:
    """Whether `prompts` or `demonstrations` is a function of the split."""
    if not callable(source):
        return False
    needed = [p for p in inspect.signature(source).parameters.values()
              if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if len(needed) > 1:
        raise ValueError(f"{_place_of(path, name)}: `{name}` takes {len(needed)} arguments; "
                         "it is a list, or a function of nothing or of the split.")
    return len(needed) == 1


def task_on(task: Task, source: object, path: Path | None = None,
            demonstrations: Callable[[Parts[Prompt]], Draw[Conversation]] | None = None,
            bad: BadRows | None = None) -> Task:
    """The task on prompts: a list, or a function of nothing or of the split, which then are its own splits.
    path: the task's file. bad: collects the bad rows."""
    at, bad = _place_of(path, "prompts"), bad or BadRows()
    if not _by_split(path, "prompts", source):
        rows = [{"question": row} if isinstance(row, str) else row
                for row in _rows(path, "prompts", source, None)]
        prompts = read_prompts(rows, lambda i: f"{at}: prompts[{i}]" if path else f"prompts[{i}]", bad=bad)
        task = replace(task, meta={**task.meta, "notes": bad.notes(task.name)})
        return split_task(task, prompts, demonstrations=demonstrations)
    parts, meta = _own_splits(path, source, at, bad)
    return replace(task, prompts=sample_lists(task.name, parts),
                   meta={**task.meta, **meta, "notes": bad.notes(task.name)},
                   demonstrations=demonstrations(parts) if demonstrations else None)


def _own_splits(path: Path | None, source: object, at: str,
                bad: BadRows) -> tuple[Parts[Prompt], TaskMeta]:
    def read(split: str) -> list[Prompt]:
        return read_prompts(_rows(path, "prompts", source, split), lambda i: f"{at}: prompts({split!r})[{i}]",
                            bad=bad)

    return disjoint_splits({split: read(split) for split in SPLITS})


def _demonstration(row: object, number: int, where: str) -> Conversation:
    if isinstance(row, Conversation):
        return row
    if isinstance(row, Mapping) and "messages" in row:
        messages = read_messages(row["messages"], where)
    elif isinstance(row, Mapping) and all(isinstance(row.get(name), str) for name in ("question", "reply")):
        messages = ({"role": "user", "content": row["question"]},
                    {"role": "assistant", "content": row["reply"]})
    else:
        raise ValueError(f"{where}: a demonstration is a Conversation, {{'question', 'reply'}} or "
                         "{'messages'}.")
    if messages[-1]["role"] != "assistant":
        raise ValueError(f"{where}: the last message must be the assistant's, the one to imitate.")
    return Conversation(id=str(row.get("id", f"demonstration/{number}")), messages=messages)


def _demonstrations(path: Path, source: object, parts: Parts[Prompt]) -> Parts[Conversation]:
    at = _place_of(path, "demonstrations")
    if _by_split(path, "demonstrations", source):
        return {split: [_demonstration(row, i, f"{at}: demonstrations({split!r})[{i}]")
                        for i, row in enumerate(_rows(path, "demonstrations", source, split))]
                for split in SPLITS}
    rows = _rows(path, "demonstrations", source, None)
    return place_demonstrations([_demonstration(row, i, f"{at}: demonstrations[{i}]") for i,
                                 row in enumerate(rows)], parts)


def load(path: Path, bad: BadRows | None = None) -> Task:
    path = path.resolve()
    module = load_file(path, "task")
    source = _required(path, module, "prompts", '`prompts = [{"question": "What is 2+3?", "answer": "5"}]`')
    gold, play = getattr(module, "gold", None), getattr(module, "play", None)
    verify = getattr(module, "verify", None) if play else _required(
        path, module, "verify", "`def verify(prompt, completion): return prompt.answer in completion`")
    for name, function in (("verify", verify), ("gold", gold), ("play", play)):
        if not callable(function) and (name == "verify" and not play or function is not None):
            raise ValueError(f"{_place_of(path, name)}: `{name}` must be a function, this is "
                             f"{type(function).__name__}.")
    if verify:
        takes_two(verify, f"{_place_of(path, 'verify')}: verify")
    for name, (fits, expected) in SETTINGS.items():
        if hasattr(module, name) and not fits(value := getattr(module, name)):
            raise ValueError(f"{_place_of(path, name)}: `{name}` must be {expected}; this is {value!r:.40}.")
    name, seconds = getattr(module, "name", path.stem), getattr(module, "seconds", None)
    examples = getattr(module, "demonstrations", None)
    about = " ".join((module.__doc__ or f"the task of {path.name}").split("\n\n")[0].split())
    task = Task(name=name, about=about, prompts=no_prompts,
                verify=own_verifier(verify, path, seconds) if verify else None, gold=gold, play=play,
                tools=_tools(path, module), turns=getattr(module, "turns", None),
                waits=bool(getattr(module, "waits", False)), best=float(getattr(module, "best", 1.0)),
                tokens=getattr(module, "tokens", None), meta={"file": str(path)})
    task = task_on(task, source, path, None if examples is None else
                   lambda parts: sample_lists(name, _demonstrations(path, examples, parts)), bad)
    prove_task(task, path)
    return task


def _tools(path: Path, module: ModuleType) -> tuple[Callable[..., object], ...]:
    tools = getattr(module, "tools", ())
    if not isinstance(tools, list | tuple) or not all(map(callable, tools)):
        raise ValueError(f"{_place_of(path, 'tools')}: `tools` must be a list of functions, this is "
                         f"{tools!r:.60}.")
    try:
        check_tools(tools)
    except (ValueError, TypeError, NameError) as error:
        raise ValueError(f"{_place_of(path, 'tools')}: {error}") from error
    return tuple(tools)


def check_tools(tools: Iterable[Callable[..., object]]) -> None:
    """Raises unless each tool has a schema and what it requires."""
    for tool in tools:
        tool_schema(tool)
        getattr(tool, "require", lambda: None)()


def prove_task(task: Task, path: Path | None = None) -> None:
    """Raises unless gold scores `best`; without gold, unless verify returns. path: the task's file."""
    prompts = task.prompts("train", PROVED, 0)
    if task.play is not None:
        try:
            return prove_play(task, prompts)
        except ValueError as error:
            raise ValueError(f"{_place_of(path, 'play')}: {error}" if path else str(error)) from None
    assert task.verify is not None
    if task.gold is None:
        verdict = task.verify(prompts[0], "")
        if verdict.error:
            raise ValueError(f"{verdict.error.removeprefix('infrastructure: ')}; verify must judge any text, "
                             "an empty one too.")
        return
    golds = [(prompt, _gold(path, task.gold, prompt)) for prompt in prompts]
    try:
        check_verifier(task.verify, golds, best=task.best)
    except ValueError as error:
        raise ValueError(f"{_place_of(path, 'verify')}: {error}" if path else str(error)) from None


def _gold(path: Path | None, gold: Callable[..., str], prompt: Prompt) -> str:
    try:
        text = gold(prompt)
    except (Exception, SystemExit) as error:
        raise ValueError(f"{error_location(path or Path('gold'), error)}: `gold` failed on prompt "
                         f"{prompt.id!r}.") from error
    if isinstance(text, str):
        return text
    raise ValueError(f"{_place_of(path, 'gold') if path else 'gold'}: `gold` returned {type(text).__name__} "
                     f"for prompt {prompt.id!r}; it must return the text of a completion.")

"""Whatever stands for a task becomes one: a Task, a name, a file, rows with or without a reward function."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Generator, Iterable, Mapping
from pathlib import Path
from typing import Any

from postgrad.data.rows import read_rows_file, source_files
from postgrad.data.tasks import SOURCED, Task, load_task, mixture_parts, user
from postgrad.data.tasks.listed import no_prompts, read_prompts, split_task
from postgrad.data.tasks.rows import task_of
from postgrad.records import Prompt, Verdict
from postgrad.resolve.rewards import parse_reward
from postgrad.rewards.function import own_verifier, takes_two
from postgrad.rewards.named import RewardFunction

DEFAULT_VERIFIER = "number(lenient)"
Play = Callable[[Prompt, random.Random], Generator[Any, Any, Verdict]]


def open_task(task: Task | str | Path | Iterable[object], reward: object = None, *,
              judged: bool = True) -> Task:
    """Rows are prompts: texts, Prompt records, dicts or a `datasets` table; those with answers are judged by
    the number, unless the run has a reward of its own, which then judges evaluations too. judged False:
    prompts alone will do, from rows or from a .jsonl file, and the task has no verifier then.

    open_task("words"); open_task("mytask.py"); open_task([{"question": "2+3?", "answer": "5"}])
    """
    if isinstance(task, Task):
        return task
    if isinstance(task, str | Path):
        alone = [] if judged else unanswered_rows(Path(task))
        return prompts_alone(alone, reward, Path(task).stem) if alone else load_task(task)
    rows = [{"question": row} if isinstance(row, str) else row for row in task]
    if not rows:
        raise ValueError("task has no rows: give at least one prompt.")
    placed: list[tuple[str, Any]] = [(f"task[{i}]", row) for i, row in enumerate(rows)]
    if reward is None and any(has_answer(row) for row in rows):
        return task_of(placed, DEFAULT_VERIFIER, name="rows")
    if reward is None and judged:
        raise ValueError("task has prompts without answers: say who judges with reward=, a function of "
                         "(prompt, text), or give each row an answer.")
    return prompts_alone(placed, reward, "rows")


def prompts_alone(rows: list[tuple[str, object]], reward: object, name: str) -> Task:
    """A task from (place, prompt) of each row, judged by the reward where it is a verifier, else by none."""
    prompts = read_prompts([row for _, row in rows], [place for place, _ in rows].__getitem__)
    return split_task(Task(name=name, about=f"{len(rows):,} prompts", prompts=no_prompts,
                           verify=parse_reward(reward).verifier), prompts)


def unanswered_rows(path: Path) -> list[tuple[str, object]]:
    """The rows of a .jsonl file without any answer; else none."""
    rows = read_rows_file(path) if path.suffix == ".jsonl" and path.is_file() else []
    return [] if any(has_answer(row) for _, row in rows) else [*rows]


def has_answer(row: object) -> bool:
    """Whether a row has an answer to be judged by; what is no prompt at all is not found out here."""
    if isinstance(row, Prompt):
        return row.answer is not None
    return not isinstance(row, Mapping) or row.get("answer") is not None


def make_task(prompts: Iterable[object] | Callable[..., Iterable[object]],
              verify: RewardFunction | None = None, *, name: str = "own",
              gold: Callable[..., str] | None = None, best: float = 1.0, tokens: int | None = None,
              seconds: float | None = None, play: Play | None = None,
              tools: Iterable[Callable[..., object]] = (), turns: int | None = None,
              waits: bool = False) -> Task:
    """A task of one's own, from objects: what a task file holds. prompts: rows, or a function of the split
    ("train", "validation", "test") that returns them. `verify` is guarded: if it raises, or takes
    over `seconds` (60), the sample is an error. play: an environment in its place, a generator."""
    if verify is None and play is None:
        raise ValueError("a task needs who judges: verify, a function of (prompt, text), or play, a "
                         "generator.")
    tools = tuple(tools)
    user.check_tools(tools)
    if verify is not None:
        takes_two(verify, "verify")
    rows = prompts if callable(prompts) else list(prompts)
    if rows == []:
        raise ValueError("prompts has no rows: give at least one prompt.")
    about = f"{len(rows):,} prompts" if isinstance(rows, list) else "prompts of its own splits"
    task = Task(name=name, about=about, prompts=no_prompts,
                verify=own_verifier(verify, seconds=seconds) if verify else None, gold=gold, best=best,
                tokens=tokens, play=play, tools=tools, turns=turns, waits=waits)
    task = user.task_on(task, rows)
    user.prove_task(task)
    return task


def files_in(name: object) -> list[Path]:
    """The files that a name of a task, of data, of a reward or of a row stands for: mytask.py, text:q.jsonl,
    json(schema.json):q.jsonl, mine.py:soft; of a task's folder, gsm8k:FOLDER, those in it."""
    if not isinstance(name, str | Path):
        return []
    if "hub:" in str(name):
        return [path for piece in str(name).split(",") for path in _hub_files(piece.strip())]
    named = [piece.partition(":") for piece in mixture_parts(str(name))]
    folders = [Path(source).expanduser() for kind, _, source in named if kind in SOURCED and source]
    inside = [path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir())
              if path.is_file()]
    for places in ([str(name)], [str(name).rpartition(":")[2]], re.split(r"[:()+*,]", str(name))):
        paths = [Path(place.strip()).expanduser() for place in places if place.strip()]
        if found := [path for path in paths if path.is_file()]:
            return found + inside
    return inside


def _hub_files(piece: str) -> list[Path]:
    """The files of one source, hub:OWNER/NAME:SPLIT, with a verifier before it or a weight after it."""
    _, hub, name = piece.rpartition("hub:")
    return source_files(hub + re.sub(r":[\d.]+$", "", name)) if hub else files_in(name)


def task_label(task: object) -> str:
    """What a task is called in lists: its name."""
    return task.name if isinstance(task, Task) else str(task) if isinstance(task, str | Path) else "rows"



"""Whatever stands for a task becomes one: a Task, a name, a file, rows with or without a reward function."""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from postgrad.data.rows import SUFFIXES, BadRows, read_prompt_rows, source_files
from postgrad.data.tasks import SOURCED, SPLITS, Task, load_task, mixture_parts, user
from postgrad.data.tasks.listed import (
    check_answers,
    disjoint_splits,
    no_prompts,
    read_prompts,
    sample_lists,
    split_task,
)
from postgrad.data.tasks.rows import task_of
from postgrad.records import Prompt, Verdict
from postgrad.resolve.rewards import parse_reward
from postgrad.rewards.format import MARK
from postgrad.rewards.function import own_verifier, takes_two
from postgrad.rewards.named import RewardFunction
from postgrad.rewards.number import exact_number
from postgrad.system.hub import is_dataset
from postgrad.system.user_code import record

DEFAULT_VERIFIER = "number(lenient)"
Play = Callable[[Prompt, random.Random], Generator[Any, Any, Verdict]]


def open_task(task: Task | str | Path | SplitRows | Iterable[object], reward: object = None, *,
              judged: bool = True, bad: BadRows | None = None) -> Task:
    """Rows are prompts: texts, Prompt records, dicts or a `datasets` table, or one for each split; those with
    answers are judged by the number, unless the run has a reward of its own, which then judges evaluations
    too. judged False: prompts alone will do, and the task has no verifier then.
    bad: collects the bad rows.

    open_task("words"); open_task("mytask.py"); open_task([{"question": "2+3?", "answer": "5"}])
    """
    bad = bad or BadRows()
    if isinstance(task, Task):
        return task
    if isinstance(task, str | Path):
        alone = rows_alone(task, reward, bad) if reward is not None or not judged else []
        if not alone:
            return load_task(task, bad)
        return prompts_alone(alone, reward, Path(task).stem, bad, counted=True)
    return open_rows(task, reward, judged, bad)


def open_rows(task: SplitRows | Iterable[object], reward: object, judged: bool, bad: BadRows) -> Task:
    if isinstance(task, SplitRows):
        return task_with_splits({split: open_task(rows, reward, judged=judged, bad=bad)
                                 for split, rows in task.parts.items()})
    rows = [{"question": row} if isinstance(row, str) else row for row in task]
    if not rows:
        raise ValueError("task has no rows: give at least one prompt.")
    placed: list[tuple[str, Any]] = [(f"task[{i}]", row) for i, row in enumerate(rows)]
    if reward is None and any(has_answer(row) for row in rows):
        bad.rows += len(placed)
        return task_of(placed, DEFAULT_VERIFIER, bad, name="rows")
    if reward is None and judged:
        raise ValueError("task has prompts without answers: say who judges with reward=, a function of "
                         "(prompt, text), or give each row an answer.")
    return prompts_alone(placed, reward, "rows", bad)


def prompts_alone(rows: list[tuple[str, object]], reward: object, name: str, bad: BadRows, *,
                  counted: bool = False) -> Task:
    """A task from (place, prompt) of each row, judged by the reward where it is a verifier, else by none."""
    spec = parse_reward(reward)
    prompts = read_prompts([row for _, row in rows], [place for place, _ in rows].__getitem__,
                           partial(check_answered, spec.by_answer), bad, counted=counted)
    for check in spec.checks:
        prompts = check_answers(prompts, check, bad)
    return split_task(Task(name=name, about=f"{len(rows):,} prompts", prompts=no_prompts,
                           verify=spec.verifier, meta={"notes": bad.notes(name)}), prompts)


def check_answered(verifiers: Sequence[str], prompt: Prompt) -> Prompt:
    """The prompt; raises ValueError where verifiers ask for an answer that it does not have."""
    if verifiers and prompt.answer is None:
        columns = ", ".join(prompt.meta) or "none but the prompt"
        raise ValueError(f"{prompt.place}: {verifiers[0]} judges by the row's answer, and there is none: "
                         f"name the column of the answers `answer` (other columns: {columns}).")
    return prompt


def rows_alone(source: str | Path, reward: object, bad: BadRows) -> list[tuple[str, object]]:
    """The rows of a file, or of a data set on the hub, that number does not judge: none has an answer, or a
    reward judges and not every answer is a number; else none."""
    if not is_dataset(source) and not (str(source).endswith(SUFFIXES) and Path(source).is_file()):
        return []
    own = BadRows(skip=bad.skip, hint=bad.hint)
    rows = read_prompt_rows(source, own)
    of_number = reward is None or parse_reward(reward).of_task
    if any(has_answer(row) for _, row in rows) if of_number else all(has_number(row) for _, row in rows):
        return []
    bad.rows, bad.count, bad.first = bad.rows + own.rows, bad.count + own.count, [*bad.first, *own.first]
    return [*rows]


@dataclass(frozen=True)
class SplitRows:
    """Rows of prompts by split, as a `DatasetDict` has them: train, and validation or test or both."""

    parts: Mapping[str, Iterable[object]]

    def record(self) -> object:
        return record([row for split in SPLITS for row in self.parts.get(split, ())])


def task_with_splits(parts: Mapping[str, Task]) -> Task:
    """The task of the split "train", with the prompts of the others as they are."""
    lists = {split: task.with_holdout(0).prompts("train", sys.maxsize, 0) for split, task in parts.items()}
    kept, meta = disjoint_splits({split: lists.get(split, []) for split in SPLITS})
    held_out = kept["validation"] or kept["test"]
    kept = {**kept, "validation": held_out, "test": kept["test"] or held_out}
    task = parts["train"]
    if not held_out:
        return task
    return replace(task, prompts=sample_lists(task.name, kept), meta={**task.meta, **meta}, holdout=None,
                   demonstrations=None)


def has_answer(row: object) -> bool:
    """Whether a row has an answer to be judged by; what is no prompt at all is not found out here."""
    if isinstance(row, Prompt):
        return row.answer is not None
    return not isinstance(row, Mapping) or row.get("answer") is not None


def has_number(row: object) -> bool:
    """Whether a row's answer is a number, or ends in one as GSM8K's do."""
    try:
        exact_number(str(row.get("answer")).rpartition(MARK)[2] if isinstance(row, Mapping) else None)
    except ValueError:
        return False
    return True


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



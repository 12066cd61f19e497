"""Mixtures of tasks: words+words-es+countdown. Prompts alternate, each judged by its own task.

A score is divided by its task's best, so all parts weigh the same. `correct` of each part is also a part of
its own (words/correct).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest

from postgrad.data.tasks.base import Draw, RecordT, Task, keep_changes
from postgrad.data.tasks.listed import task_notes
from postgrad.records import Prompt, Verdict
from postgrad.rewards.base import TASK


def part_of(prompt: Prompt) -> str:
    """The task of a prompt of a mixture; "" outside one."""
    return str(prompt.meta.get(TASK, ""))


def in_turn(lists: Sequence[Sequence[RecordT]]) -> list[RecordT]:
    """[[1, 2, 3], [4]] -> [1, 4, 2, 3]"""
    return [x for row in zip_longest(*lists) for x in row if x is not None]


def draw_in_turn(split: str, count: int, seed: int, *,
                 makers: Sequence[Draw[RecordT]]) -> list[RecordT]:
    """Up to count in all, evenly; the first makers give one more if it does not divide."""
    each, over = divmod(count, len(makers))
    return in_turn([make(split, each + (i < over), seed) for i, make in enumerate(makers)])


def named_prompts(task: Task, split: str, count: int, seed: int) -> list[Prompt]:
    return [replace(prompt, id=f"{task.name}/{prompt.id.removeprefix(f'{task.name}/')}",
                    meta={**prompt.meta, TASK: task.name})
            for prompt in task.prompts(split, count, seed)]


def verify(prompt: Prompt, text: str, *, parts: Mapping[str, Task]) -> Verdict:
    task = parts[part_of(prompt)]
    assert task.verify is not None
    verdict = task.verify(prompt, text)
    share = verdict.score / task.best
    right = verdict.parts.get("correct", share)
    return replace(verdict, score=share, parts={**verdict.parts, f"{task.name}/correct": right})


def mix_tasks(tasks: Sequence[Task]) -> Task:
    """One task of several; it has gold, steps, demonstrations or preferences only if all parts do."""
    parts = {task.name: task for task in tasks}
    if len(parts) < len(tasks):
        raise ValueError(f"a mixture names each task once, this one is {' + '.join(t.name for t in tasks)}: "
                         "leave out what stands twice.")
    for task in tasks:
        if task.plays:
            raise ValueError(f"task {task.name} plays over several turns, so it is no part of a mixture: "
                             "train on it by itself.")
        if task.verify is None:
            raise ValueError(f"task {task.name} has no verifier, so it is no part of a mixture: give it one.")
    golds = {task.name: task.gold for task in tasks if task.gold}
    steps = {task.name: task.steps for task in tasks if task.steps}
    demonstrations = [task.demonstrations for task in tasks if task.demonstrations]
    preferences = [task.preferences for task in tasks if task.preferences]
    made = Task(
        name="+".join(parts),
        about="; ".join(f"{task.name}: {task.about}" for task in tasks),
        prompts=partial(draw_in_turn, makers=[partial(named_prompts, task) for task in tasks]),
        verify=partial(verify, parts=parts),
        tokens=max((task.tokens for task in tasks if task.tokens), default=None),
        waits=any(task.waits for task in tasks),
        meta={"parts": tuple(parts), "notes": tuple(note for task in tasks for note in task_notes(task))},
        gold=(lambda prompt: golds[part_of(prompt)](prompt)) if len(golds) == len(tasks) else None,
        steps=((lambda prompt, text: steps[part_of(prompt)](prompt, text)) if len(steps) == len(tasks)
               else None),
        demonstrations=(partial(draw_in_turn, makers=demonstrations)
                        if len(demonstrations) == len(tasks) else None),
        preferences=partial(draw_in_turn, makers=preferences) if len(preferences) == len(tasks) else None,
    )
    if not any(task.holdout for task in tasks):
        return made
    return replace(made, holdout=partial(mix_with_holdout, made, tasks))


def mix_with_holdout(made: Task, tasks: Sequence[Task], mixed: Task, share: float) -> Task:
    return keep_changes(mixed, made, mix_tasks([task.with_holdout(share) for task in tasks]))

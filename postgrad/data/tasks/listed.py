"""Tasks from a finite list of prompts: rows as prompts, and the splits."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

from postgrad.data.rows import BadRows, DataRow, found_columns, read_messages
from postgrad.data.tasks.base import (
    FIFTH,
    HOLDOUT,
    SPLITS,
    Draw,
    Task,
    check_split,
    generator,
    keep_changes,
    split_of,
)
from postgrad.records import Conversation, Message, Pair, Prompt

RecordT = TypeVar("RecordT", Prompt, Conversation, Pair)
Parts = dict[str, list[RecordT]]  # split -> its prompts, conversations or pairs
TaskMeta = dict[str, object]
REPEATED = "the prompt stands before too, and is asked as often as it stands"


def read_prompt(row: object, where: str) -> Prompt:
    """A Prompt from a row {"prompt" or "messages" or "question", "answer", "id"?, "system"?}; the first of
    the three is asked, and the rest is meta, which rewards are handed by name."""
    if isinstance(row, Prompt):
        return row
    if not isinstance(row, Mapping):
        raise ValueError(f"{where}: a prompt is a Prompt or a dict with a question, this is "
                         f"{type(row).__name__}.")
    fields = dict(row)
    asked = asked_column(fields)
    if asked is None:
        raise ValueError(f"{where}: expected one of question, prompt or messages, found none among "
                         f"{found_columns(fields)}.")
    plain = isinstance(fields[asked], str)
    messages = _turns(fields.pop(asked), asked, where)
    system, name, answer = fields.pop("system", None), fields.pop("id", None), fields.pop("answer", None)
    if system is not None and not isinstance(system, str):
        raise ValueError(f"{where}: system must be a text, this is {type(system).__name__}.")
    messages = ({"role": "system", "content": system}, *messages) if system else messages
    before = "\n".join(turn["content"] for turn in messages[:-1]) or None
    id = Prompt.ask(messages[-1]["content"], system=before).id if name is None else str(name)
    return Prompt(id=id, messages=messages, answer=answer, meta=fields, where=where,
                  conversational=not plain)


def asked_column(row: Mapping[str, object]) -> str | None:
    """The column of a row that is the prompt."""
    return next((name for name in ("prompt", "messages", "question") if row.get(name) is not None), None)


def _turns(asked: object, field: str, where: str) -> tuple[Message, ...]:
    """The messages of a question; the last is the user's."""
    if field == "messages" or (field == "prompt" and isinstance(asked, list)):
        messages = read_messages(asked, where)
        if messages[-1]["role"] != "user":
            raise ValueError(f"{where}: the last message must be the user's, this is the "
                             f"{messages[-1]['role']}'s.")
        return messages
    if not isinstance(asked, str) or not asked.strip():
        raise ValueError(f"{where}: the {field} must be a text that is not empty, this is {asked!r:.80}.")
    return ({"role": "user", "content": asked},)


def read_prompts(rows: Iterable[object], where: Callable[[int], str],
                 check: Callable[[Prompt], Prompt] = lambda prompt: prompt, bad: BadRows | None = None, *,
                 counted: bool = False) -> list[Prompt]:
    """Prompts from rows, with distinct ids: one that stands several times is asked as often, as ID, ID#2, ...

    where(i) names row i. check: raises ValueError, or returns the prompt to use. bad: collects the bad rows,
    and what was understood; counted: it has counted the rows.
    """
    prompts, seen, bad = list[Prompt](), dict[str, tuple[int, str, int]](), bad or BadRows()
    bad.understood.unused = "handed to the reward by name"
    for i, row in enumerate(rows):
        with bad.row(counted):
            prompt = read_prompt(row, where(i))
            text = question_text(prompt)
            first, before, times = seen.get(prompt.id, (i, text, 0))
            if before != text:
                raise ValueError(f"{where(i)} has the id {prompt.id!r} of {where(first)}, and asks something "
                                 "else: give each its own id.")
            prompts.append(check(replace(prompt, id=f"{prompt.id}#{times + 1}") if times else prompt))
            seen[prompt.id] = first, text, times + 1
            if isinstance(row, Mapping):
                asked = asked_column(row)
                bad.understood.add(f"{asked}", row, (str(asked), "answer", "id", "system", "reply"),
                                   len(prompt.messages), *([REPEATED] if times else []))
    bad.settle("the prompts")
    return prompts


def read_each(rows: Sequence[tuple[str, DataRow]], read: Callable[[DataRow, str], Prompt],
              bad: BadRows) -> list[Prompt]:
    """read(row, where) of each row. bad: has counted the rows, and collects the bad ones."""
    prompts = []
    for where, row in rows:
        with bad.row(counted=True):
            prompts.append(replace(read(row, where), where=where))
    bad.settle("the rows")
    return prompts


def check_answers(prompts: list[Prompt], check: Callable[[list[object]], None], bad: BadRows,
                  hint: str = "") -> list[Prompt]:
    """The prompts whose answers pass; checks all together, and one by one only where that raises. bad: has
    counted the rows, and collects the bad ones. hint: a further remedy."""
    try:
        check([prompt.answer for prompt in prompts])
        return prompts
    except ValueError:
        good = []
        for prompt in prompts:
            with bad.row(counted=True):
                _check_answer(prompt, check)
                good.append(prompt)
        bad.settle("the answers", hint)
        if len(good) == len(prompts):
            raise
        return good


def _check_answer(prompt: Prompt, check: Callable[[list[object]], None]) -> None:
    try:
        check([prompt.answer])
    except ValueError as fault:
        raise ValueError(f"{prompt.place}: {fault}") from None


def split_list(prompts: list[Prompt], key: Callable[[Prompt], str] | None = None,
               share: float = FIFTH) -> tuple[Parts[Prompt], TaskMeta]:
    """Disjoint splits by a hash of the ids, none empty, and the task's meta. share: of validation and test.

    Fewer than three prompts are shared by all splits; the meta has a warning. So are all where the share is
    0: nothing is held out. key: as of `disjoint_splits`.
    """
    if not share:
        parts, meta = disjoint_splits({"train": prompts, "validation": [], "test": []}, key or question_text)
        whole = parts["train"]
        return ({split: list(whole) for split in SPLITS},
                {**meta, "shared_splits": True, "sizes": dict.fromkeys(SPLITS, len(whole))})
    if len(prompts) < 3:
        warning = f"{len(prompts)} prompts cannot be split: train, validation and test are the same prompts"
        return ({split: list(prompts) for split in SPLITS},
                {"shared_splits": True, "warning": warning, "sizes": dict.fromkeys(SPLITS, len(prompts))})
    first, same = dict[str, str](), key or question_text  # a prompt that is repeated stays in one split
    home = [split_of(first.setdefault(same(p), p.id), share) for p in prompts]
    parts = {split: [p for p, its in zip(prompts, home, strict=True) if its == split] for split in SPLITS}
    for split in SPLITS:
        if not parts[split]:
            largest = max(parts.values(), key=len)
            moved = min(largest, key=lambda prompt: zlib.crc32(prompt.id.encode()))
            largest.remove(moved)
            parts[split].append(moved)
    return disjoint_splits(parts, key or question_text)


def split_task(task: Task, prompts: list[Prompt], key: Callable[[Prompt], str] | None = None,
               demonstrations: Callable[[Parts[Prompt]], Draw[Conversation]] | None = None, name: str = "",
               share: float = HOLDOUT) -> Task:
    """The task on a list of prompts, a share of them held out; `with_holdout` gives it with another share.
    demonstrations: of the splits. name: that the draws are seeded by."""
    parts, meta = split_list(prompts, key, share)
    made = replace(task, prompts=sample_lists(name or task.name, parts), meta={**task.meta, **meta},
                   demonstrations=demonstrations(parts) if demonstrations else task.demonstrations)
    again = partial(split_task, task, prompts, key, demonstrations, name)
    return replace(made, holdout=partial(_split_again, made, again))


def _split_again(made: Task, again: Callable[[float], Task], task: Task, share: float) -> Task:
    return keep_changes(task, made, again(share))


def no_prompts(split: str, count: int, seed: int) -> list[Prompt]:
    """The draw of a task that `split_task` gives its prompts."""
    return []


def task_notes(task: Task) -> tuple[str, ...]:
    """What was understood of a task's rows, those that were left out, and what is held out."""
    notes = task.meta.get("notes", ())
    return (*(notes if isinstance(notes, tuple) else ()), *holdout_note(task))


def holdout_note(task: Task) -> tuple[str, ...]:
    """What is trained and held out of a list of prompts."""
    sizes = task.meta.get("sizes")
    if task.holdout is None or not isinstance(sizes, Mapping):
        return ()
    if task.meta.get("shared_splits"):
        return (f"{task.name}: all {sizes['train']:,} prompts are trained, none is held out; an evaluation "
                "on them measures what was trained",)
    return (f"{task.name}: {sizes['train']:,} prompts are trained, {sizes['validation']:,} are held out as "
            f"validation and {sizes['test']:,} as test (evaluation.holdout_prompts)",)


def hold_out(parts: Parts[Prompt]) -> Parts[Prompt]:
    """Published train and test splits; a tenth of train, by a hash of the ids, becomes validation."""
    held = {split: [p for p in parts["train"]
                    if (zlib.crc32(p.id.encode()) % 10 == 0) == (split == "validation")]
            for split in ("train", "validation")}
    return {**held, "test": parts["test"]}


def question_text(prompt: Prompt) -> str:
    """The text of all messages without case and spacing: equal if two prompts ask the same."""
    return " ".join(" ".join(turn["content"] for turn in prompt.messages).split()).casefold()


def disjoint_splits(parts: Parts[Prompt], key: Callable[[Prompt], str] = question_text,
                    ) -> tuple[Parts[Prompt], TaskMeta]:
    """The splits without repeated questions, and the task's meta.

    A question in two splits stays in the one held out longest (test, then validation); a repeat under the
    same id in one split is dropped. meta["repeats"] counts both. Different questions under one id raise.
    """
    named, home = dict[str, str](), dict[str, str]()
    kept: dict[str, dict[str, Prompt]] = {split: {} for split in SPLITS}
    for split in reversed(SPLITS):
        for prompt in parts[split]:
            text = key(prompt)
            if named.setdefault(prompt.id, text) != text:
                raise ValueError(f"two different prompts have the id {prompt.id!r}: give each its own.")
            if home.setdefault(text, split) == split:
                kept[split].setdefault(prompt.id, prompt)
    sizes = {split: len(kept[split]) for split in SPLITS}
    for split in SPLITS:
        if parts[split] and not kept[split]:
            raise ValueError(f"every question of the split {split} is asked in another split too: give it "
                             "its own questions.")
    repeats = sum(map(len, parts.values())) - sum(sizes.values())
    return ({split: list(kept[split].values()) for split in SPLITS},
            {"shared_splits": False, "repeats": repeats, "sizes": sizes})


def sample_lists(name: str, parts: Parts[RecordT],
                 instead: str = "") -> Draw[RecordT]:
    """Draws up to count rows of a split, shuffled by the seed. instead: the remedy, where a split may be
    empty; drawing from it raises."""
    def draw(split: str, count: int, seed: int) -> list[RecordT]:
        check_split(split)
        if instead and not parts[split]:
            raise ValueError(f"{name} has no {split} split: {instead}.")
        rows = list(parts[split])
        generator(name, split, seed).shuffle(rows)
        return rows[:count]

    return draw


def place_demonstrations(conversations: list[Conversation], parts: Parts[Prompt]) -> Parts[Conversation]:
    """Each demonstration in the split of the prompt that it answers, else in train."""
    home = {prompt.question: split for split in reversed(SPLITS) for prompt in parts[split]}
    placed: Parts[Conversation] = {split: [] for split in SPLITS}
    for made in conversations:
        asked = next((turn["content"] for turn in reversed(made.messages) if turn["role"] == "user"), "")
        placed[home.get(asked, "train")].append(made)
    return placed

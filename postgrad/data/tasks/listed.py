"""Tasks from a finite list of prompts: rows as prompts, and the list split into train,
validation and test."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from postgrad.data.rows import BadRows, DataRow
from postgrad.data.tasks.base import SPLITS, check_split, generator, split_of
from postgrad.records import Conversation, Message, Pair, Prompt

RecordT = TypeVar("RecordT", Prompt, Conversation, Pair)
Parts = dict[str, list[RecordT]]  # split -> its prompts, conversations or pairs
TaskMeta = dict[str, object]
ROLES = ("system", "user", "assistant")


def messages_of(rows: object, where: str) -> tuple[Message, ...]:
    """Messages as they must be: a list of {"role", "content"} with known roles and texts."""
    if not isinstance(rows, Sequence) or isinstance(rows, str) or not rows:
        raise ValueError(f"{where}: messages must be a list of {{'role', 'content'}}, this is "
                         f"{type(rows).__name__}.")
    for row in rows:
        if (not isinstance(row, Mapping) or row.get("role") not in ROLES
                or not isinstance(row.get("content"), str)):
            raise ValueError(f"{where}: a message needs a role ({', '.join(ROLES)}) and a text content, this "
                             f"is {row!r:.80}.")
    return tuple({"role": row["role"], "content": row["content"]} for row in rows)


def read_prompt(row: object, where: str) -> Prompt:
    """A Prompt, or a row {"question" or "prompt" or "messages", "answer", "id"?, "system"?} as one;
    the rest becomes meta."""
    if isinstance(row, Prompt):
        return row
    fields = dict(row) if isinstance(row, Mapping) else None
    if fields is None:
        raise ValueError(f"{where}: a prompt is a Prompt or a dict with a question, this is "
                         f"{type(row).__name__}.")
    asked = [name for name in ("question", "prompt", "messages") if name in fields]
    if len(asked) != 1:
        raise ValueError(f"{where}: expected one of question, prompt or messages, found "
                         f"{' and '.join(asked) or 'none'} among "
                         f"{', '.join(map(str, fields)) or 'no fields'}.")
    messages = _turns(fields.pop(asked[0]), asked[0], where)
    system, name, answer = fields.pop("system", None), fields.pop("id", None), fields.pop("answer", None)
    if system is not None and not isinstance(system, str):
        raise ValueError(f"{where}: system must be a text, this is {type(system).__name__}.")
    messages = ({"role": "system", "content": system}, *messages) if system else messages
    before = "\n".join(turn["content"] for turn in messages[:-1]) or None
    id = Prompt.ask(messages[-1]["content"], system=before).id if name is None else str(name)
    return Prompt(id=id, messages=messages, answer=answer, meta=fields, where=where)


def _turns(asked: object, field: str, where: str) -> tuple[Message, ...]:
    """What is asked as messages, the user's last."""
    if field == "messages" or (field == "prompt" and isinstance(asked, list)):
        messages = messages_of(asked, where)
        if messages[-1]["role"] != "user":
            raise ValueError(f"{where}: the last message must be the user's, this is the "
                             f"{messages[-1]['role']}'s.")
        return messages
    if not isinstance(asked, str) or not asked.strip():
        raise ValueError(f"{where}: the {field} must be a text that is not empty, this is {asked!r:.80}.")
    return ({"role": "user", "content": asked},)


def read_prompts(rows: Iterable[object], where: Callable[[int], str],
                 check: Callable[[Prompt], Prompt] = lambda prompt: prompt) -> list[Prompt]:
    """Prompts from rows; where(i) names row i. Two rows with one id are refused:
    they would be counted as two problems. check: what else a prompt must pass; it may give another."""
    prompts, seen, bad = list[Prompt](), dict[str, int](), BadRows()
    for i, row in enumerate(rows):
        with bad.row():
            prompt = read_prompt(row, where(i))
            if prompt.id in seen:
                raise ValueError(f"{where(i)} has the id {prompt.id!r} of {where(seen[prompt.id])}: "
                                 "remove one of the two, or give each its own id (without one, the id is a "
                                 "hash of the text).")
            seen[prompt.id] = i
            prompts.append(check(prompt))
    bad.settle("the prompts")
    return prompts


def read_each(rows: Sequence[tuple[str, DataRow]], read: Callable[[DataRow, str], Prompt]) -> list[Prompt]:
    """What `read` makes of (place, row) of each row of a data set; all its faults at once."""
    prompts, bad = [], BadRows()
    for where, row in rows:
        with bad.row():
            prompts.append(replace(read(row, where), where=where))
    bad.settle("the rows")
    return prompts


def split_list(prompts: list[Prompt],
               key: Callable[[Prompt], str] | None = None) -> tuple[Parts[Prompt], TaskMeta]:
    """A list in disjoint splits by a hash of the ids, 80/10/10, and the meta of the task.

    Three prompts or more give each split at least one. Fewer cannot be parted:
    all splits share them, and the meta says so. key: as in `disjoint`.
    """
    if len(prompts) < 3:
        warning = f"{len(prompts)} prompts cannot be split: train, validation and test are the same prompts"
        return {split: list(prompts) for split in SPLITS}, {"shared_splits": True, "warning": warning}
    parts = {split: [prompt for prompt in prompts if split_of(prompt.id) == split] for split in SPLITS}
    for split in SPLITS:
        if not parts[split]:
            largest = max(parts.values(), key=len)
            moved = min(largest, key=lambda prompt: zlib.crc32(prompt.id.encode()))
            largest.remove(moved)
            parts[split].append(moved)
    return disjoint_splits(parts, key or question_text)


def hold_out(parts: Parts[Prompt]) -> Parts[Prompt]:
    """Published train and test, with a tenth of the training prompts, by a hash of their ids, as the
    validation split."""
    held = {split: [p for p in parts["train"]
                    if (zlib.crc32(p.id.encode()) % 10 == 0) == (split == "validation")]
            for split in ("train", "validation")}
    return {**held, "test": parts["test"]}


def question_text(prompt: Prompt) -> str:
    """What a prompt asks, for telling whether two ask the same: all its messages;
    case and spacing do not count."""
    return " ".join(" ".join(turn["content"] for turn in prompt.messages).split()).casefold()


def disjoint_splits(parts: Parts[Prompt], key: Callable[[Prompt], str] = question_text,
                    ) -> tuple[Parts[Prompt], TaskMeta]:
    """The check that every finite task goes through: no problem stands in two splits.

    Gives the parts, and the task's meta.

    A question that is asked in two splits stays where it is held out longest (test, then validation) and is
    taken out of the other; one that stands twice in a split under one id is kept once. Both are counted in
    meta["repeats"]. Different questions under one id raise.
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
                 instead: str = "") -> Callable[[str, int, int], list[RecordT]]:
    """The function of (split, count, seed) over lists: shuffled by the seed, up to count.

    instead: where a split may have no prompts at all, what to do then; asking for that split raises.
    """

    def draw(split: str, count: int, seed: int) -> list[RecordT]:
        check_split(split)
        if instead and not parts[split]:
            raise ValueError(f"{name} has no {split} split: {instead}.")
        rows = list(parts[split])
        generator(name, split, seed).shuffle(rows)
        return rows[:count]

    return draw


def place_demonstrations(conversations: list[Conversation], parts: Parts[Prompt]) -> Parts[Conversation]:
    """Demonstrations, each in the split of the prompt that it answers;
    those of no known prompt are for training."""
    home = {prompt.question: split for split in reversed(SPLITS) for prompt in parts[split]}
    placed: Parts[Conversation] = {split: [] for split in SPLITS}
    for made in conversations:
        asked = next((turn["content"] for turn in reversed(made.messages) if turn["role"] == "user"), "")
        placed[home.get(asked, "train")].append(made)
    return placed

"""Import to and export from the preference store, and items sampled from a model."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

from postgrad.data.preferences import answers_of, drop_nulls, preference_report, read_pair_row
from postgrad.data.rows import DataRow, gather_rows
from postgrad.data.store import Item, Label, Store, check_labeller
from postgrad.maths.noise import seed_of
from postgrad.records import Message, Pair, Prompt, Sampler, Sampling
from postgrad.system.files import write_text

FORMATS = ("pairs", "singles")
BLOCK = 32   # prompts that are sampled together
ROUNDS = 4   # draws of two answers, before a prompt is given up


def read_items(path: Path, labeller: str | None = None) -> tuple[list[Item], list[Label], dict[str, Any]]:
    """The items and labels of a file, and a report of the labelled rows.

    Rows as of `read_pairs`, labelled by their "labeller" or the argument; or {"prompt", "answers": [...]}, to
    be labelled. The store has no margins: they are dropped and counted. The pairs of a ranking become items
    of equal weight, also counted.
    """
    path, pairs = Path(path), list[Pair]()
    items, labels = list[Item](), list[Label]()
    counts = {"rows": 0, "rankings": 0, "margins": 0}

    def read(number: str, where: str, row: DataRow) -> list[str]:
        row = drop_nulls(row)
        counts["rows"] += 1
        if "answers" in row and not {"ranking", "ranks"} & row.keys():
            messages, answers = answers_of(row, where)
            items.extend(Item.of(messages, two, path.name) for two in combinations(answers, 2))
            return [number]
        judged_pairs = read_pair_row(row, str(row.get("id", number)), where)
        if not all(isinstance(side, str) for pair in judged_pairs for side in (pair.chosen, pair.rejected)):
            raise ValueError(f"{where}: an answer has several turns or tool calls, and labellers judge "
                             "single replies: train on the file as it is, or leave the row out.")
        who = row.get("labeller", labeller)
        if not isinstance(who, str):
            raise ValueError(f"{where}: it is labelled, but by whom? Name the labeller with --labeller NAME.")
        check_labeller(who, f"{where}: ")
        pairs.extend(judged_pairs)
        counts["rankings"] += "answers" in row
        counts["margins"] += judged_pairs[0].margin != 0
        judged = {item.uid: (item, choice)
                  for item, choice in (judgement(pair, path.name) for pair in judged_pairs)}
        items.extend(item for item, _ in judged.values())
        labels.extend(Label(item=item.uid, labeller=who, choice=choice) for item, choice in judged.values())
        return [number]

    gather_rows(path, read)
    return items, labels, counts | preference_report(pairs)


def judgement(pair: Pair, origin: str = "") -> tuple[Item, str]:
    """A pair as an item and a choice; both halves of a tie give the same."""
    (_, chosen), (_, rejected) = pair.replies
    item = Item.of(pair.messages, (chosen, rejected), origin)
    return item, "tie" if pair.tie else "a" if item.a == chosen else "b"


def export_store(store: Store, path: Path, *, form: str = "pairs", labeller: str | None = None,
                 how: str = "majority") -> dict[str, int]:
    """Writes the store's judgements as rows for `read_pairs` or `read_singles`. -> counts."""
    if form not in FORMATS:
        raise ValueError(f"there is no format {form!r}: choose {' or '.join(FORMATS)}.")
    judged = store.judged(labeller, how)
    left = len(store.items()) - len({item.uid for item, _, _ in judged})
    ties = sum(choice == "tie" for _, choice, _ in judged)
    rows = [row for one in judged for row in (pair_rows if form == "pairs" else single_rows)(*one)]
    if not rows:
        raise ValueError(f"{store.path} has no judgements to write: label some with `postgrad label ask`.")
    write_jsonl(path, rows, not_over=store.path)
    return {"rows": len(rows), "judgements": len(judged), "ties": ties, "unjudged": left}


def pair_rows(item: Item, choice: str, labeller: str | None) -> list[DataRow]:
    """{"id", "prompt", "chosen", "rejected", "tie"?, "labeller"?}"""
    won, lost = (item.b, item.a) if choice == "b" else (item.a, item.b)
    prompt, chosen, rejected = as_plain(item.messages, won, lost)
    return [{"id": item.uid, "prompt": prompt, "chosen": chosen, "rejected": rejected}
            | ({"tie": True} if choice == "tie" else {}) | ({"labeller": labeller} if labeller else {})]


def single_rows(item: Item, choice: str, labeller: str | None) -> list[DataRow]:
    """{"id", "prompt", "completion", "label"} of winner and loser; none of a tie."""
    if choice == "tie":
        return []
    prompt, *two = as_plain(item.messages, item.a, item.b)
    name = f"{item.uid}/{labeller}" if labeller else item.uid
    return [{"id": f"{name}/{side}", "prompt": prompt, "completion": text, "label": side == choice}
            for side, text in zip("ab", two, strict=True)]


def as_plain(messages: Sequence[Message], *answers: str) -> tuple[Any, ...]:
    """Prompt and answers as texts if the prompt is one question, else as messages."""
    if [m["role"] for m in messages] == ["user"]:
        return messages[0]["content"], *answers
    return list(messages), *([{"role": "assistant", "content": text}] for text in answers)


def write_jsonl(path: Path, rows: Sequence[DataRow], not_over: Path) -> None:
    """Writes a JSONL file atomically."""
    path = Path(path)
    if path.resolve() == Path(not_over).resolve():
        raise ValueError(f"{path} is the store itself: give the file another name.")
    if path.is_dir() or not path.parent.is_dir():
        raise ValueError(f"cannot write {path}: name a file in a folder that exists.")
    try:
        write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    except OSError as error:
        raise ValueError(f"cannot write {path} ({error.strerror}): choose a place "
                         "you can write to.") from error


def draw_items(sampler: Sampler, prompts: Sequence[Prompt], settings: Sampling, seed: int,
               origin: str) -> tuple[list[Item], int]:
    """Two different answers to each prompt, and the number of prompts given up. Answers that are empty, or
    equal but for white space, are sampled again, up to ROUNDS times."""
    items = []
    for block in [prompts[i: i + BLOCK] for i in range(0, len(prompts), BLOCK)]:
        answers: list[dict[str, str]] = [{} for _ in block]  # stripped text -> text
        for turn in range(ROUNDS):
            missing = [i for i, texts in enumerate(answers) if len(texts) < 2]
            if not missing:
                break
            groups = sampler.sample([block[i] for i in missing], 2, settings, seed_of(seed, "label", turn))
            for i, group in zip(missing, groups, strict=True):
                for rollout in group:
                    if rollout.text.strip() and len(answers[i]) < 2:
                        answers[i].setdefault(rollout.text.strip(), rollout.text)
        items += [Item.of(prompt.messages, tuple(texts.values()), origin)
                  for prompt, texts in zip(block, answers, strict=True) if len(texts) == 2]
    return items, len(prompts) - len(items)

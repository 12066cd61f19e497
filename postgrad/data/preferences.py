"""Preference files: pairs of answers, one preferred. Faults are named with their line, contradictions are counted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from postgrad.data.rows import read_messages, read_rows
from postgrad.records import Message, Pair


def read_pairs(path: Path) -> list[Pair]:
    """{"prompt", "chosen", "rejected"} a line: texts, or lists of messages (the prompt may then stand inside both answers).

    Optional: "id", "margin" (how much better, in units of reward), "tie": true (half a win each way).
    """
    out: list[Pair] = []
    for number, row in read_rows(path):
        where = f"{path} line {number}"
        messages, chosen, rejected = _sides(row, where)
        if chosen == rejected:
            raise ValueError(f"{where}: chosen and rejected are the same text, so nothing is preferred: remove the line.")
        margin = row.get("margin", 0.0)
        if isinstance(margin, bool) or not isinstance(margin, int | float) or not math.isfinite(margin):
            raise ValueError(f"{where}: margin is {margin!r}; it must be a number.")
        name = str(row.get("id", number))
        pair = Pair(id=name, messages=messages, chosen=chosen, rejected=rejected, margin=float(margin))
        out += tie(pair) if row.get("tie") is True else [pair]
    if not out:
        raise ValueError(f"{path} has no rows.")
    return out


def tie(pair: Pair) -> list[Pair]:
    """Half a win each way."""
    half = {"messages": pair.messages, "weight": 0.5}
    return [Pair(id=f"{pair.id}=", chosen=pair.chosen, rejected=pair.rejected, **half),
            Pair(id=f"{pair.id}=swapped", chosen=pair.rejected, rejected=pair.chosen, **half)]


def _sides(row: dict, where: str) -> tuple[tuple[Message, ...], str, str]:
    for key in ("chosen", "rejected"):
        if not row.get(key):
            raise ValueError(f"{where}: {key!r} is missing or empty; a pair needs both answers.")
    if all(isinstance(row.get(key), str) for key in ("prompt", "chosen", "rejected")):
        if not row["prompt"]:
            raise ValueError(f"{where}: the prompt is empty.")
        return ({"role": "user", "content": row["prompt"]},), row["chosen"], row["rejected"]
    before = read_messages(row["prompt"], where) if isinstance(row.get("prompt"), list) else ()
    if isinstance(row.get("prompt"), str):
        before = ({"role": "user", "content": row["prompt"]},)
    ends = []
    for key in ("chosen", "rejected"):
        turns = read_messages(row[key], f"{where}, {key}")
        *lead, last = turns
        if last["role"] != "assistant" or not last["content"]:
            raise ValueError(f"{where}: {key} must end with an assistant's message that is not empty.")
        ends.append(((*before, *lead), last["content"]))
    if ends[0][0] != ends[1][0] or not ends[0][0]:
        raise ValueError(f"{where}: chosen and rejected must answer the same prompt, and there must be one.")
    return ends[0][0], ends[0][1], ends[1][1]


def contradictions(pairs: Sequence[Pair]) -> dict[str, int]:
    """How often a pair stands twice, and how often once each way (ties, which do so on purpose, are left out)."""
    whole = [p for p in pairs if p.weight == 1.0]
    seen = Counter((tuple((m["role"], m["content"]) for m in p.messages), p.chosen, p.rejected) for p in whole)
    repeats = sum(count - 1 for count in seen.values())
    both = sum(min(count, seen[ask, b, a]) for (ask, a, b), count in seen.items() if a < b and (ask, b, a) in seen)
    return {"pairs": len(pairs), "repeated": repeats, "contradicted": both}

"""Rows of a JSONL file as records. Every fault is named with its line; nothing is dropped without being said."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from postgrad.records import Conversation

ROLES = ("system", "user", "assistant")


def parse(raw: bytes, *, first: bool = True) -> object:
    """JSON in UTF-8, as a value; what would be read only in part is a ValueError. first: a byte order mark may stand here."""
    value = json.loads(raw.decode("utf-8-sig" if first else "utf-8"), object_pairs_hook=_once, parse_constant=_refuse)
    if b"\\u" in raw:
        json.dumps(value, ensure_ascii=False).encode()  # half a character, escaped: "\\ud83d" alone is no text
    return value


def _once(pairs: list[tuple[str, object]]) -> dict:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the field {next(n for n in names if names.count(n) > 1)!r} stands twice")
    return row


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON number")


def read_rows(path: Path) -> Iterator[tuple[int, dict]]:
    """(line number, object) of each line that is not blank."""
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"there is no file {path}: give the path of a JSONL file.")
    with path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = parse(line, first=number == 1)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"{path} line {number} is not JSON in UTF-8: {error}") from error
            if not isinstance(row, dict):
                raise ValueError(f"{path} line {number} is a {type(row).__name__}; each line must be an object in braces.")
            yield number, row


def read_messages(value, where: str) -> tuple[dict[str, str], ...]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"{where}: messages must be a list of {{role, content}}.")
    for message in value:
        good = isinstance(message, dict) and message.get("role") in ROLES and isinstance(message.get("content"), str)
        if not good:
            raise ValueError(f"{where}: {json.dumps(message)[:80]} is not a message: "
                             f"role must be one of {', '.join(ROLES)} and content text.")
    return tuple({"role": m["role"], "content": m["content"]} for m in value)


def read_conversations(path: Path) -> list[Conversation]:
    """{"messages": [...]} or {"prompt": "...", "completion": "..."} a line."""
    out = []
    for number, row in read_rows(path):
        where = f"{path} line {number}"
        if "messages" in row:
            messages = read_messages(row["messages"], where)
        elif isinstance(row.get("prompt"), str) and isinstance(row.get("completion"), str):
            messages = ({"role": "user", "content": row["prompt"]}, {"role": "assistant", "content": row["completion"]})
        else:
            raise ValueError(f"{where}: expected 'messages', or 'prompt' and 'completion' as text; "
                             f"found {', '.join(sorted(row)) or 'nothing'}.")
        if not any(m["role"] == "assistant" and m["content"] for m in messages):
            raise ValueError(f"{where}: no assistant message with text, so there is nothing to imitate.")
        if row.get("label") not in (None, True, False):
            raise ValueError(f"{where}: label is {json.dumps(row['label'])[:40]}; it must be true, false or left out.")
        out.append(Conversation(id=str(row.get("id", number)), messages=messages, label=row.get("label")))
    if not out:
        raise ValueError(f"{path} has no rows.")
    return out

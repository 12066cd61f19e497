"""Rows of a JSONL file, or rows that were handed in, as records. Every fault is named with its place; nothing
is dropped without being said.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from postgrad.records import Conversation
from postgrad.system.files import error_text

DataRow = dict[str, Any]  # a JSON object
ROLES = ("system", "user", "assistant")
LONGEST_LINE = 2**24  # bytes
RecordT = TypeVar("RecordT")


def parse_json_bytes(raw: bytes, *, first: bool = True) -> object:
    """JSON in UTF-8, as a value; what would be read only in part is a ValueError.

    first: a byte order mark may stand here.
    """
    value = json.loads(raw.decode("utf-8-sig" if first else "utf-8"), object_pairs_hook=_once,
                       parse_constant=_refuse)
    if b"\\u" in raw:
        # half a character, escaped: "\\ud83d" alone is no text
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _once(pairs: list[tuple[str, object]]) -> DataRow:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the field {next(n for n in names if names.count(n) > 1)!r} stands twice")
    return row


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON number")


Source = str | Path | Iterable[object]  # a JSONL file, or rows: dicts, records, a `datasets` table


def read_data_rows(source: Source) -> Iterator[tuple[str, str, DataRow]]:
    """(number, place, object) of each row; the first that is no object raises."""
    for number, where, read in unread_rows(source):
        yield number, where, read()


def unread_rows(source: Source) -> Iterator[tuple[str, str, Callable[[], DataRow]]]:
    """(number, place, how it is read) of each row: of each line of a file that is not blank,
    or of rows that were handed in."""
    if not isinstance(source, str | Path):
        for i, row in enumerate(source):
            yield str(i + 1), f"data[{i}]", partial(_handed_in, row, i)
        return
    path = Path(source)
    if not path.is_file():
        raise ValueError(f"there is no file {path}: give the path of a JSONL file.")
    with path.open("rb") as lines:
        for number, line in enumerate(iter(lambda: lines.readline(LONGEST_LINE + 1), b""), start=1):
            if len(line) > LONGEST_LINE:
                raise ValueError(f"{path} line {number} is longer than {LONGEST_LINE:,} bytes: is this a "
                                 "JSONL file, one object a line?")
            if line.strip():
                yield str(number), f"{path} line {number}", partial(_line, line, number, path)


def _handed_in(row: object, i: int) -> DataRow:
    if not isinstance(row, Mapping):
        raise ValueError(f"data[{i}] is a {type(row).__name__}; each row must be a dict, e.g. "
                         "{'messages': [...]}.")
    return dict(row)


def _line(line: bytes, number: int, path: Path) -> DataRow:
    try:
        row = parse_json_bytes(line, first=number == 1)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} line {number} is not JSON in UTF-8: {error_text(error)}") from error
    if not isinstance(row, dict):
        raise ValueError(f"{path} line {number} is a {type(row).__name__}; each line must be an "
                         "object in braces.")
    return row


def source_name(source: Source) -> str:
    """What a source is called in a sentence: its path, or "data"."""
    return str(source) if isinstance(source, str | Path) else "data"


def records_of_kind(source: Source, kind: type[RecordT]) -> list[RecordT] | None:
    """The rows as they are, where they are records of that kind already; else None."""
    if isinstance(source, str | Path) or not isinstance(source, Sequence):
        return None
    records = [row for row in source if isinstance(row, kind)]
    return records if records and len(records) == len(source) else None


def read_messages(value: object, where: str) -> tuple[dict[str, str], ...]:
    if not isinstance(value, list) or not value:
        raise ValueError(f"{where}: messages must be a list of {{role, content}}.")
    for message in value:
        good = (isinstance(message, dict) and message.get("role") in ROLES
                and isinstance(message.get("content"), str))
        if not good:
            raise ValueError(f"{where}: {json.dumps(message)[:80]} is not a message: "
                             f"role must be one of {', '.join(ROLES)} and content text.")
    return tuple({"role": m["role"], "content": m["content"]} for m in value)


def gather_rows(source: Source, read: Callable[[str, str, DataRow], list[RecordT]],
                bad: BadRows | None = None) -> list[RecordT]:
    """What read(number, place, row) makes of each row, at least one. bad: takes the faults of rows."""
    bad, out = bad or BadRows(), []
    for number, where, row in unread_rows(source):
        with bad.row():
            out += read(number, where, row())
    bad.settle(source_name(source))
    if not out:
        raise ValueError(f"{source_name(source)} has no rows.")
    return out


def read_conversations(source: Source, bad: BadRows | None = None) -> list[Conversation]:
    """{"messages": [...]} or {"prompt": ..., "completion": ...} a row;
    the latter as texts or as lists of messages."""
    return records_of_kind(source, Conversation) or gather_rows(source, _conversation, bad)


def _conversation(number: str, where: str, row: DataRow) -> list[Conversation]:
    if "messages" in row and (row["messages"] is not None or "prompt" not in row):
        messages = read_messages(row["messages"], where)
    elif all(isinstance(row.get(name), str | list) for name in ("prompt", "completion")):
        messages = tuple(m for name, role in (("prompt", "user"), ("completion", "assistant"))
                         for m in _turns(row[name], role, where))
    else:
        raise ValueError(f"{where}: expected 'messages', or 'prompt' and 'completion'; "
                         f"found {', '.join(sorted(row)) or 'nothing'}.")
    if not any(m["role"] == "assistant" and m["content"] for m in messages):
        raise ValueError(f"{where}: no assistant message with text, so there is nothing to imitate.")
    if row.get("label") not in (None, True, False):
        raise ValueError(f"{where}: label is {json.dumps(row['label'])[:40]}; it must be true, "
                         "false or left out.")
    return [Conversation(id=str(row.get("id", number)), messages=messages, label=row.get("label"),
                         where=where)]


def _turns(value: str | list[object], role: str, where: str) -> tuple[dict[str, str], ...]:
    return ({"role": role, "content": value},) if isinstance(value, str) else read_messages(value, where)


SHOWN = 20


@dataclass
class BadRows:
    """The faults of the rows of a source, gathered row by row.

    bad = BadRows()
    for row in rows:
        with bad.row():
            records.append(read(row))       # a ValueError is a fault of this row
    bad.settle("chats.jsonl")               # and here all of them are refused at once
    skip: they are left out instead, and `note` says how many. hint: what else can be done about them.
    """

    skip: bool = False
    hint: str = ""
    rows: int = 0
    count: int = 0
    first: list[str] = field(default_factory=list)

    @contextmanager
    def row(self) -> Iterator[None]:
        self.rows += 1
        try:
            yield
        except ValueError as fault:
            self.count += 1
            if len(self.first) < SHOWN:
                self.first.append(str(fault))

    def settle(self, name: str) -> None:
        """Refuses what was gathered. A single fault is its own sentence."""
        if not self.count or (self.skip and self.count < self.rows):
            return
        hint = f" {self.hint}" if self.hint and not self.skip else ""
        if self.count == 1:
            raise ValueError(self.first[0] + hint)
        more = f", the first {SHOWN} of them" if self.count > SHOWN else ""
        listed = "".join(f"\n  {fault}" for fault in self.first)
        raise ValueError(f"{name}: {self.count:,} of {self.rows:,} rows are bad{more}:{listed}"
                         + (f"\n{self.hint}" if hint else ""))

    def note(self, name: str) -> tuple[str, ...]:
        """What is said of rows that were left out."""
        if not self.count:
            return ()
        return (f"{name}: {self.count:,} of {self.rows:,} rows are bad and left out, the first: "
                f"{self.first[0]}",)

"""Rows of a JSONL file, or rows as objects, as records. Errors name the row; none is dropped silently."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, TypeVar

from postgrad.records import Conversation
from postgrad.system.files import error_text

DataRow = dict[str, Any]  # a JSON object
Source = str | Path | Iterable[object]  # a JSONL file, or rows: dicts, records, a `datasets` table
RecordT = TypeVar("RecordT")

ROLES = ("system", "user", "assistant")
LONGEST_LINE = 2**24  # bytes
SHOWN = 20            # bad rows in a message


def parse_json_bytes(raw: bytes, *, first: bool = True) -> object:
    """Strict JSON in UTF-8: repeated keys, NaN and lone surrogates raise ValueError. first: allows a byte
    order mark."""
    value = json.loads(raw.decode("utf-8-sig" if first else "utf-8"), object_pairs_hook=_once,
                       parse_constant=_refuse)
    if b"\\u" in raw:
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


def json_lines(file: IO[bytes] | gzip.GzipFile, place: str,
               longest: int = LONGEST_LINE) -> Iterator[tuple[str, str, Callable[[], DataRow]]]:
    """(number, where, parser) of each line that is not blank; where is place and number: "a.jsonl line 1"."""
    for number, line in enumerate(iter(lambda: file.readline(longest + 1), b""), start=1):
        where = f"{place} {number}"
        if len(line) > longest:
            raise ValueError(f"{where} is longer than {longest:,} bytes: is this a JSONL file, one object "
                             "a line?")
        if line.strip():
            yield str(number), where, partial(_parse_line, line, where, first=number == 1)


def _parse_line(line: bytes, where: str, *, first: bool) -> DataRow:
    try:
        row = parse_json_bytes(line, first=first)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not JSON in UTF-8: {error_text(error)}.") from error
    if not isinstance(row, dict):
        raise ValueError(f"{where} is a {type(row).__name__}; each line must be an object in braces.")
    return row


def read_data_rows(source: Source) -> Iterator[tuple[str, str, DataRow]]:
    """(number, where, row) of each row; the first bad one raises."""
    for number, where, parse in unread_rows(source):
        yield number, where, parse()


def unread_rows(source: Source) -> Iterator[tuple[str, str, Callable[[], DataRow]]]:
    """(number, where, parser) of each row."""
    if not isinstance(source, str | Path):
        for i, row in enumerate(source):
            yield str(i + 1), f"data[{i}]", partial(_as_dict, row, i)
        return
    path = Path(source)
    if not path.is_file():
        raise ValueError(f"there is no file {path}: give the path of a JSONL file.")
    with path.open("rb") as file:
        yield from json_lines(file, f"{path} line")


def _as_dict(row: object, i: int) -> DataRow:
    if not isinstance(row, Mapping):
        raise ValueError(f"data[{i}] is a {type(row).__name__}; each row must be a dict, e.g. "
                         "{'messages': [...]}.")
    return dict(row)


def source_name(source: Source) -> str:
    """A source in a message: its path, or "data"."""
    return str(source) if isinstance(source, str | Path) else "data"


def records_of_kind(source: Source, kind: type[RecordT]) -> list[RecordT] | None:
    """The rows, if they are records of that kind already."""
    if isinstance(source, str | Path) or not isinstance(source, Sequence):
        return None
    records = [row for row in source if isinstance(row, kind)]
    return records if records and len(records) == len(source) else None


def read_messages(value: object, where: str) -> tuple[dict[str, str], ...]:
    """[{"role", "content"}, ...], checked."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        raise ValueError(f"{where}: messages must be a list of {{role, content}}, not {value!r:.40}.")
    for message in value:
        if (not isinstance(message, Mapping) or message.get("role") not in ROLES
                or not isinstance(message.get("content"), str)):
            raise ValueError(f"{where}: {json.dumps(message, default=str)[:80]} is not a message: "
                             f"role must be one of {', '.join(ROLES)} and content text.")
    return tuple({"role": m["role"], "content": m["content"]} for m in value)


def gather_rows(source: Source, read: Callable[[str, str, DataRow], list[RecordT]],
                bad: BadRows | None = None) -> list[RecordT]:
    """The records of read(number, where, row) of each row, at least one. bad: collects the bad rows."""
    bad, records = bad or BadRows(), list[RecordT]()
    for number, where, parse in unread_rows(source):
        with bad.row():
            records += read(number, where, parse())
    bad.settle(source_name(source))
    if not records:
        raise ValueError(f"{source_name(source)} has no rows.")
    return records


def read_conversations(source: Source, bad: BadRows | None = None) -> list[Conversation]:
    """Rows {"messages": [...]} or {"prompt", "completion"}, the latter texts or lists of messages."""
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


@dataclass
class BadRows:
    """Collects the errors of bad rows, and raises them together.

    bad = BadRows()
    for row in rows:
        with bad.row():
            records.append(read(row))       # a ValueError marks this row as bad
    bad.settle("chats.jsonl")               # raises for all of them
    skip: bad rows are left out instead, and `note` counts them. hint: the remedy, for the message.
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
        """Raises ValueError with the first errors, unless bad rows are skipped."""
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
        """The message about skipped rows, if any."""
        if not self.count:
            return ()
        return (f"{name}: {self.count:,} of {self.rows:,} rows are bad and left out, the first: "
                f"{self.first[0]}",)

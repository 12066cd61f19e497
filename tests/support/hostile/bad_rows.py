"""JSONL files with one bad line, and such as only look odd: what a reader does with each.

    for case in cases(): case.fault(folder)    "" where it is refused by its line, and left out and counted

A file with a NUL byte in its first line is refused whole, as binary.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from postgrad.data.preferences import read_pairs, read_singles
from postgrad.data.rows import BadRows, read_conversations
from postgrad.data.tasks import load_task

ROWS = 6
HUGE = 100 * 2**20  # bytes of a line


def prompts(path: Path, bad: BadRows) -> list:
    task = load_task(str(path), bad)
    return [prompt for split in ("train", "validation", "test") for prompt in task.prompts(split, 99, 0)]


READERS: dict[str, Callable] = {"sft": read_conversations, "dpo": read_pairs, "kto": read_singles,
                                "task": prompts}


def good(form: str, n: int) -> dict:
    asked = f"What is {n} + {n}?"
    return {"sft": {"messages": [{"role": "user", "content": asked},
                                 {"role": "assistant", "content": f"{n}"}]},
            "dpo": {"prompt": asked, "chosen": f"{2 * n}.", "rejected": "No."},
            "kto": {"prompt": asked, "completion": f"{2 * n}.", "label": n % 2 == 0},
            "task": {"question": asked, "answer": str(2 * n)}}[form]


def spoilt(form: str, row: dict) -> Iterator[tuple[str, bytes]]:
    """(what, line): each no row."""
    line = json.dumps(row).encode()
    yield from {
        "bad UTF-8": line.replace(b"What", b"Wh\xff\xfe"), "Latin-1": line.replace(b"What", b"Wh\xe9t"),
        "half a character": line.replace(b"What", b"\xf0\x9f\x98"),
        "UTF-16": line.decode().encode("utf-16-le"),
        "NUL": b"\0" * 64, "NUL in a text": line.replace(b"What", b"Wh\0t"),
        "a tab in a text": line.replace(b"What", b"Wh\tt"),
        "a lone surrogate": line.replace(b"What", b"\\ud83d"),
        "a bad escape": line.replace(b"What", b"\\q"), "NaN": line[:-1] + b', "id": NaN}',
        "Infinity": line[:-1] + b', "id": Infinity}', "-Infinity": line[:-1] + b', "id": -Infinity}',
        "no end": line[:-7], "half a row": line[: len(line) // 2], "a brace": b"{", "an empty object": b"{}",
        "a list": b"[1]", "a number": b"3", "a text": b'"x"', "null": b"null", "true": b"true",
        "words": b"What is 1 + 1?", "two objects": line + b" " + line, "a comma after it": line + b",",
        "a comma before its end": line[:-1] + b",}", "single quotes": line.replace(b'"', b"'"),
        "a comment": line + b" // x", "brackets": b"[" * 100_000, "nested objects": b'{"a":' * 50_000,
        "a csv": b"question,answer",
        "a byte order mark inside": line[:1] + b"\xef\xbb\xbf" + line[1:]}.items()
    for key in row:
        twice = f"{json.dumps({key: row[key]})[:-1]}, ".encode() + line[1:]
        yield f"{key} twice", twice
        yield f"no {key}", json.dumps({k: v for k, v in row.items() if k != key}).encode()
        for what, value in {"null": None, "a list of lists": [[]], "an object": {"a": 1}}.items():
            yield f"{key} is {what}", json.dumps(row | {key: value}).encode()
    if form == "sft":
        for what, turns in {"no turns": [], "numbers": [1, 2],
                            "an unknown role": [{"role": "x", "content": "a"}],
                            "a role of lists": [{"role": [], "content": "a"}],
                            "a turn without content": [{"role": "user"}]}.items():
            yield f"messages of {what}", json.dumps({"messages": turns}).encode()


@dataclass(frozen=True)
class Case:
    """bad: the number of the bad line, 0 where every row is to be read. whole: one that no setting skips."""

    name: str
    form: str
    lines: Callable[[], list[bytes]]
    bad: int
    end: bytes = b"\n"
    begin: bytes = b""
    whole: bool = False

    @property
    def binary(self) -> bool:
        return self.bad == 1 and b"\0" in self.lines()[0]

    def fault(self, folder: Path) -> str:
        path, read = folder / "rows.jsonl", READERS[self.form]
        path.write_bytes(self.begin + self.end.join(self.lines()) + (b"" if self.bad == ROWS else self.end))
        said, skipping = "", BadRows.of_run(True)
        try:
            found = len(read(path, BadRows.of_run(False)))
            if self.bad or found != ROWS:
                return f"{found} rows were read of {ROWS - bool(self.bad)}"
        except ValueError as error:
            said = str(error)
            if self.binary and "is a binary file, with a NUL byte in line 1" in said:
                return ""
            if not self.bad or not re.search(rf"rows\.jsonl,? line {self.bad}\b", said) or len(said) > 2000:
                return f"it said: {said[:300]}"
        if not self.bad or self.whole:
            return ""
        left = len(read(path, skipping))
        return ("" if left == ROWS - 1 and skipping.count == 1
                else f"{left} rows left, {skipping.count} counted")


def cases() -> Iterator[Case]:
    for form in READERS:
        rows = [json.dumps(good(form, n)).encode() for n in range(1, ROWS + 1)]
        for turn, (what, line) in enumerate(spoilt(form, good(form, 9))):
            for at in {1 + turn % ROWS, ROWS}:
                yield Case(f"{form}: {what}, line {at}", form,
                           lambda line=line, at=at, rows=rows: [*rows[:at - 1], line, *rows[at:]], at)
        yield Case(f"{form}: a line of 100 MB", form,
                   lambda rows=rows: [*rows[:2], b'{"x": "' + b"x" * HUGE + b'"}', *rows[3:]], 3, whole=True)
        same = lambda rows=rows: rows  # noqa: E731
        yield Case(f"{form}: CRLF", form, same, 0, end=b"\r\n")
        yield Case(f"{form}: a byte order mark", form, same, 0, begin=b"\xef\xbb\xbf")
        yield Case(f"{form}: blank lines", form, same, 0, end=b"\n \n\n")
        yield Case(f"{form}: separators of lines in a text", form, lambda rows=rows: [
            row.replace(b"What", "\u2028".encode()) for row in rows], 0)

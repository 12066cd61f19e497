"""Rows that cannot be read: refused together, the first of them named, or left out and counted."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

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

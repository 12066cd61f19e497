"""Rows that wait to be written, the slots and places that are free for them and their prompts, and rows that
stay in their slots to go on."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

READ = 16_384  # tokens of waiting prompts that are read together
# rows of a step and tokens of a reading, filled up with some for no one: a matrix product of fewer may round
# in another way, and then a row would depend on how many stand beside it; not where an engine is independent
LEAST = 16


def filled_up(prompts: Sequence[list[int]], places: Sequence[int],
              nobody: int) -> tuple[list[list[int]], list[int]]:
    """Prompts to be read and their places; with one more for no one where they have few tokens."""
    if sum(map(len, prompts)) >= LEAST:
        return [*prompts], [*places]
    return [*prompts, [0] * LEAST], [*places, nobody]


@dataclass(eq=False)
class Row:
    """A row being written: its request, its prompt, of which the first `read` tokens are in a place and the
    other `shown` in its slot, and how many steps there were before its first."""

    request: int
    prompt: int
    place: int
    slot: int
    read: int
    shown: int = 0
    since: int = 0


@dataclass(frozen=True, eq=False)
class Kept:
    """A row that has ended and stays in its slot; the first `read` of all its tokens are in a place."""

    slot: int
    place: int
    read: int
    tokens: list[int]


class Written(NamedTuple):
    """One finished row: the number of its request, its tokens (the stop token included) with their
    log-probs, how it ended; kept: what its sampler still has of it, where it may go on."""

    request: int
    tokens: Sequence[int]
    logp: Sequence[float]
    finished: bool
    kept: Kept | None = None


class Queue:
    """Requests that wait, slots for rows and places for prompts that are free.

    going: rows that go on in their slots, by request. kept: rows that have ended and stay, by slot; they make
    way where a slot or a place is needed, the first that ended first.
    """

    def __init__(self, active, prompts: list[list[int]], group_size: int, seeds: Sequence[int],
                 going: Mapping[int, Kept]):
        self.active, self.prompts, self.group_size, self.seeds = active, prompts, group_size, seeds
        held, self.users = {row.slot for row in going.values()}, Counter(row.place for row in going.values())
        self.going, self.waiting = going, deque(i for i in range(len(seeds)) if i not in going)
        self.free = deque(slot for slot in range(active.rows) if slot not in held)
        self.spare = deque(place for place in range(active.engine.prompts) if place not in self.users)
        self.place: dict[int, int] = {}
        self.kept: dict[int, Kept] = {}

    def go_on(self) -> list[Row]:
        """The rows that go on, in the first columns."""
        rows = [Row(i, i, kept.place, kept.slot, kept.read, len(self.prompts[i]) - kept.read)
                for i, kept in self.going.items()]
        if rows:
            added = [self.prompts[i][len(kept.tokens):] for i, kept in self.going.items()]
            self.active.admit(rows, 0, self.seeds, self.active.append(rows, added))
        return rows

    def admit(self, at: int, now: int = 0) -> list[Row]:
        """Waiting rows take the free slots, in the columns from `at`, after so many steps."""
        rows = []
        while self.waiting and self.has_room(prompt := self.waiting[0] // self.group_size):
            if prompt not in self.place:
                self.read_ahead()
            rows.append(Row(self.waiting.popleft(), prompt, self.place[prompt], self.free.popleft(),
                            len(self.prompts[prompt]), since=now))
        if rows:
            slots = self.active.whole([row.slot for row in rows])
            places = self.active.whole([row.place for row in rows])
            self.active.engine.seat(slots, places)
            self.active.admit(rows, at, self.seeds, self.active.first[places])
        return rows

    def has_room(self, prompt: int) -> bool:
        """Whether there is a slot, and a place for this prompt; rows that were kept make way."""
        while not self.free or (prompt not in self.place and not self.spare):
            if not self.kept:
                return False
            self.leave([self.kept.pop(next(iter(self.kept)))])
        return True

    def read_ahead(self) -> None:
        """Reads the prompts that wait, as many as there are places for and a pass holds."""
        found: list[int] = []
        tokens = 0
        for i in dict.fromkeys(request // self.group_size for request in self.waiting):
            if len(found) == len(self.spare) or tokens >= READ:
                break
            found.append(i)
            tokens += len(self.prompts[i])
        for i in found:
            self.place[i] = self.spare.popleft()
            self.users[self.place[i]] = self.group_size
        self.active.read([self.prompts[i] for i in found], [self.place[i] for i in found])

    def stay(self, row: Row, tokens: Sequence[int]) -> Kept:
        """A row that has ended, with these tokens, stays in its slot."""
        whole = [*self.prompts[row.prompt], *tokens]
        self.kept[row.slot] = kept = Kept(row.slot, row.place, row.read, whole)
        return kept

    def leave(self, rows: Iterable[Row | Kept]) -> None:
        for row in rows:
            self.free.append(row.slot)
            self.users[row.place] -= 1
            if not self.users[row.place]:
                self.spare.append(row.place)

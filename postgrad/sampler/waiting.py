"""Rows that wait to be written, and the slots and places that are free for them and their prompts."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

READ = 16_384  # tokens of waiting prompts that are read together
# rows of a step and tokens of a reading, filled up with some for no one: a matrix product of fewer may round
# in another way, and then a row would depend on how many stand beside it
LEAST = 16


def filled_up(prompts: Sequence[list[int]], places: Sequence[int],
              nobody: int) -> tuple[list[list[int]], list[int]]:
    """Prompts to be read and their places; with one more for no one where they have few tokens."""
    if sum(map(len, prompts)) >= LEAST:
        return [*prompts], [*places]
    return [*prompts, [0] * LEAST], [*places, nobody]


@dataclass(eq=False)
class Row:
    """A row being written: its request, its prompt and where that was read to, its slot,
    and how many steps it was given."""

    request: int
    prompt: int
    place: int
    slot: int
    steps: int = 0


class Queue:
    """Requests that wait, slots for rows and places for prompts that are free."""

    def __init__(self, active, prompts: list[list[int]], group_size: int, seeds: list[int]):
        self.active, self.prompts, self.group_size, self.seeds = active, prompts, group_size, seeds
        self.waiting, self.free = deque(range(len(seeds))), deque(range(active.rows))
        self.spare = deque(range(active.engine.prompts))
        self.place: dict[int, int] = {}
        self.left: dict[int, int] = {}

    def admit(self, at: int) -> list[Row]:
        """Waiting rows take the free slots, in the columns from `at`."""
        rows = []
        while self.waiting and self.free:
            prompt = self.waiting[0] // self.group_size
            if prompt not in self.place and not self.read_from(prompt):
                break
            rows.append(Row(self.waiting.popleft(), prompt, self.place[prompt], self.free.popleft()))
        if rows:
            self.active.admit(rows, at, self.prompts, self.seeds)
        return rows

    def read_from(self, prompt: int) -> bool:
        """Reads this prompt and those after it, as many as there are places for and a pass holds."""
        last, tokens = prompt, 0
        while (last < len(self.prompts) and last - prompt < len(self.spare)
               and (last == prompt or tokens < READ)):
            tokens += len(self.prompts[last])
            last += 1
        for i in range(prompt, last):
            self.place[i], self.left[i] = self.spare.popleft(), self.group_size
        if last > prompt:
            self.active.read(self.prompts[prompt:last], [self.place[i] for i in range(prompt, last)])
        return last > prompt

    def leave(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.free.append(row.slot)
            self.left[row.prompt] -= 1
            if not self.left[row.prompt]:
                self.spare.append(row.place)

"""What the lines share: an endless shuffled deck, rows as padded columns, and a look at every row by a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from postgrad.maths.noise import seed_of
from postgrad.records import Batch, pad_rows


class Deck:
    """Items in an endless shuffled order, each once a round.

    The order is a function of (seed, round): the state is a number.
    """

    def __init__(self, items: Sequence, seed: int):
        if not items:
            raise ValueError("there is nothing to train on: the task or file gave no rows.")
        self.items, self.seed, self.at = items, seed, 0
        self._round, self._order = -1, []

    def take(self, count: int) -> list:
        return [self._draw() for _ in range(count)]

    def _draw(self):
        turn, place = divmod(self.at, len(self.items))
        if turn != self._round:
            shuffler = torch.Generator().manual_seed(seed_of(self.seed, "deck", turn))
            self._round, self._order = turn, torch.randperm(len(self.items), generator=shuffler).tolist()
        self.at += 1
        return self.items[self._order[place]]


class DeckLine:
    """A line that deals `per_step` items of a deck to every optimizer step; `batch` makes a Batch of them."""

    def __init__(self, items: Sequence, *, per_step: int, steps: int, seed: int, device="cpu"):
        self.deck, self.per_step, self.steps, self.step, self.device = Deck(items, seed), per_step, steps, 0, device

    def __iter__(self) -> Iterator[Batch]:
        while self.step < self.steps:
            self.step += 1
            yield self.batch(self.deck.take(self.per_step))

    def batch(self, items: list) -> Batch:
        raise NotImplementedError

    def state(self) -> dict:
        return {"step": self.step, "at": self.deck.at}

    def restore(self, state: dict) -> None:
        self.step, self.deck.at = state["step"], state["at"]


def assemble(ids: Sequence[str], tokens: Sequence[list[int]], masks: Sequence[list[bool]]) -> dict:
    """Rows of tokens and mask as the padded columns every batch has."""
    return {"ids": tuple(ids), "tokens": pad_rows(tokens), "mask": pad_rows(masks, fill=False, dtype=torch.bool),
            "lengths": torch.tensor([len(row) for row in tokens])}


@torch.no_grad()
def seen(look: Callable[[Batch], Tensor], batch: Batch, tokens_per_pass: int) -> Tensor:  # [B, T]
    """What a model says of every row, a few rows at a time."""
    out = torch.zeros(batch.tokens.shape, device=batch.tokens.device)
    start = 0
    for micro in batch.split(tokens_per_pass):
        out[start: start + len(micro), : micro.tokens.shape[1]] = look(micro)
        start += len(micro)
    return out

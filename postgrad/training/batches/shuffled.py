"""Shared by all batch sources: shuffled streams, padded columns, no-grad forwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from postgrad.maths.noise import seed_of
from postgrad.models.experts import replaying
from postgrad.models.protocols import LanguageModel
from postgrad.records import Batch, pad_rows
from postgrad.training.distributed.virtual_ranks import SINGLE_RANK, VirtualRanks

ItemT = TypeVar("ItemT")


class Shuffled(Generic[ItemT]):
    """An endless stream of items, shuffled in each epoch by (seed, epoch). `at` is its whole state."""

    def __init__(self, items: Sequence[ItemT], seed: int):
        if not items:
            raise ValueError("there is nothing to train on: the task or file gave no rows.")
        self.items = items
        self.seed = seed
        self.at = 0
        self._round = -1
        self._order: list[int] = []

    def take(self, count: int) -> list[ItemT]:
        return [self._draw() for _ in range(count)]

    def _draw(self) -> ItemT:
        turn, place = divmod(self.at, len(self.items))
        if turn != self._round:
            shuffler = torch.Generator().manual_seed(seed_of(self.seed, "deck", turn))
            self._round = turn
            self._order = torch.randperm(len(self.items), generator=shuffler).tolist()
        self.at += 1
        return self.items[self._order[place]]


class StreamMixture(Generic[ItemT]):
    """Shuffled streams mixed by share: the next item comes from the stream furthest behind its share. With
    shares 0.75 and 0.25, every four items hold three of the first. `at` is its whole state."""

    def __init__(self, sources: Sequence[Sequence[ItemT]], shares: Sequence[float], seed: int):
        self.streams = [Shuffled(items, seed_of(seed, "source", k)) for k, items in enumerate(sources)]
        self.shares = shares
        self.at = 0

    @property
    def at(self) -> int:
        return sum(stream.at for stream in self.streams)

    @at.setter
    def at(self, count: int) -> None:
        counts = [0] * len(self.streams)
        for _ in range(count):
            counts[self._behind(counts)] += 1
        for stream, at in zip(self.streams, counts, strict=True):
            stream.at = at

    def _behind(self, counts: Sequence[int]) -> int:
        """The stream furthest behind its share after so many items of each; the first of several."""
        missing = [share * (sum(counts) + 1) - at for share, at in zip(self.shares, counts, strict=True)]
        return missing.index(max(missing))

    def take(self, count: int) -> list[ItemT]:
        return [item for _ in range(count)
                for item in self.streams[self._behind([stream.at for stream in self.streams])].take(1)]


class ShuffledBatches(Generic[ItemT]):
    """A batch source of `per_step` shuffled items for each optimizer step; `batch` makes a Batch of them."""

    def __init__(self, items: Shuffled[ItemT] | StreamMixture[ItemT], *, per_step: int, steps: int,
                 device: str = "cpu"):
        self.items = items
        self.per_step = per_step
        self.steps = steps
        self.step = 0
        self.device = device

    def __iter__(self) -> Iterator[Batch]:
        while self.step < self.steps:
            self.step += 1
            yield self.batch(self.items.take(self.per_step))

    def batch(self, items: list[ItemT]) -> Batch:
        raise NotImplementedError

    def state(self) -> dict[str, Any]:
        return {"step": self.step, "at": self.items.at}

    def restore(self, state: dict[str, Any]) -> None:
        self.step = state["step"]
        self.items.at = state["at"]


def padded_columns(ids: Sequence[str], tokens: Sequence[list[int]],
                   masks: Sequence[list[bool]]) -> dict[str, Any]:
    """ids, tokens, mask and lengths of a batch, padded."""
    return {"ids": tuple(ids), "tokens": pad_rows(tokens),
            "mask": pad_rows(masks, fill=False, dtype=torch.bool),
            "lengths": torch.tensor([len(row) for row in tokens])}


@torch.no_grad()
def no_grad_forward(forward: Callable[[Batch], tuple[Tensor, ...]], batch: Batch, tokens_per_pass: int,
                    virtual_ranks: VirtualRanks = SINGLE_RANK) -> list[Tensor]:
    """Runs `forward` over micro-batches without gradients; one [B, T] for each tensor that it returns."""
    out: list[Tensor] = []
    start = 0
    for columns in virtual_ranks.map(forward, batch.split(tokens_per_pass), "gathered log-probs"):
        out = out or [torch.zeros(batch.tokens.shape, dtype=torch.promote_types(x.dtype, torch.float32),
                                  device=batch.tokens.device) for x in columns]
        rows, width = columns[0].shape
        for whole, part in zip(out, columns, strict=True):
            whole[start: start + rows, :width] = part
        start += rows
    return out


def model_logp(model: LanguageModel, batch: Batch, tokens_per_pass: int, temperature: float = 1.0,
               virtual_ranks: VirtualRanks = SINGLE_RANK) -> tuple[Tensor, Tensor]:  # [B, T] each
    """No-grad log-probs of the masked tokens under a model, and the entropy of its distributions."""
    def forward(micro: Batch) -> tuple[Tensor, Tensor]:
        with replaying(model, micro.routes, micro.packed):
            return model.logp(micro.tokens, micro.mask, temperature, packed=micro.packed)

    logp, entropy = no_grad_forward(forward, batch, tokens_per_pass, virtual_ranks)
    return logp, entropy

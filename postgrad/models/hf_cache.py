"""Keys and values of rows that a network of `transformers` writes, in three ways. The first that the network
understands is taken (`memory_of`).

Placed   A slot is as long as a prompt and its row: token p of a row stands in cell p, a step writes one cell
         of each row in place, and a mask says which cells count. All shapes stay, so that on a GPU a step can
         be captured as a graph. A prompt is read once and copied into the slots of its rows.
Laid     Rows are laid out anew at every step, without gaps and flush right, as `generate` has them for a
         left-padded batch: for networks that make positions or biases of the mask itself (ALiBi, say).
NoCache  Every row is read from its beginning: for networks that keep something else than keys and values
         (a state space, say).
"""

from __future__ import annotations

import inspect
from typing import NamedTuple

import torch
from torch import Tensor
from transformers.cache_utils import (
    Cache,
    CacheLayerMixin,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
)

ALIGNED = 16  # cells come in so many: kernels of attention take a mask as it is then
WIDER = 64    # a step sees as many cells as its longest row has, rounded up to so many


class NoCache:
    """Tokens of prompts and rows, and nothing else."""

    static = False

    def __init__(self, engine):
        self.asked = torch.zeros(engine.prompts + 1, engine.read, dtype=torch.int64, device=engine.device)
        self.written = torch.zeros(engine.rows + 1, engine.new, dtype=torch.int64, device=engine.device)

    def read(self, network, tokens: Tensor, place: Tensor) -> Tensor:  # [P, T], [P] -> [P, T, D]
        self.asked[place, : tokens.shape[1]] = tokens
        return network.run(tokens)

    def seat(self, slot: Tensor, place: Tensor) -> None:
        """A row's prompt is where it was read."""

    def step(self, network, token: Tensor, at: Tensor, slot: Tensor, prompt: Tensor,
             prompt_length: Tensor, longest: int | None = None) -> Tensor:  # -> [R, D]
        self.written[slot, at] = token
        last = prompt_length + at
        place = torch.arange(int(last.max()) + 1, device=last.device).expand(len(slot), -1)
        asked = self.asked[prompt].gather(1, place.clamp_max(self.asked.shape[1] - 1))
        later = place - prompt_length[:, None]
        mine = self.written[slot].gather(1, later.clamp(0, self.written.shape[1] - 1))
        states = network.run(torch.where(later < 0, asked, mine))
        return states[torch.arange(len(slot), device=last.device), last]


class PromptCache:
    """Keys and values of prompts, each in its place."""

    static = False

    def __init__(self, engine, like: list):
        self.last = engine.model.config.max_position_embeddings - 1
        self.prompts = empty_cache(like, engine.prompts + 1, engine.read)

    def read(self, network, tokens: Tensor, place: Tensor) -> Tensor:  # [P, T], [P] -> [P, T, D]
        cache = DynamicCache()
        states = network.run(tokens, past_key_values=cache)
        for mine, layer in zip(self.prompts, cache.layers, strict=True):
            for kept, fresh in zip(mine, (layer.keys, layer.values), strict=True):
                kept[place, :, : tokens.shape[1]] = fresh
        return states

    def positions(self, network, position: Tensor) -> dict:  # [R]
        """As an argument, of a network that takes one; a row that ended and waits to be seen may stand beyond
        the last."""
        known = "position_ids" in forward_arguments(network)
        return {"position_ids": position.clamp_max(self.last)[:, None]} if known else {}


class RepackedCache(PromptCache):
    """Rows with places of their own, brought together with their prompts at every step."""

    def __init__(self, engine, like: list):
        super().__init__(engine, like)
        self.rows = empty_cache(like, engine.rows + 1, engine.new)

    def seat(self, slot: Tensor, place: Tensor) -> None:
        """A row's prompt is where it was read."""

    def step(self, network, token: Tensor, at: Tensor, slot: Tensor, prompt: Tensor,
             prompt_length: Tensor, longest: int | None = None) -> Tensor:  # -> [R, D]
        length = prompt_length + at  # tokens before this one
        read, many = int(prompt_length.max()), int(length.max())
        # [R, S] in its row; below 0: nothing
        place = torch.arange(many, device=at.device) - (many - length)[:, None]
        index = torch.where(place < prompt_length[:, None], place,
                            place - prompt_length[:, None] + read).clamp_min(0)[:, None, :, None]
        cache, wrote = DynamicCache(), int(at.max())
        for layer, (prompts, rows) in enumerate(zip(self.prompts, self.rows, strict=True)):
            cache.update(*(torch.cat([p[prompt, :, :read], r[slot, :, :wrote]], 2)
                           .gather(2, index.expand(-1, p.shape[1], -1, p.shape[3]))
                           for p, r in zip(prompts, rows, strict=True)), layer)
        mask = torch.cat([place >= 0, torch.ones_like(place[:, :1], dtype=torch.bool)], 1).long()
        state = network.run(token[:, None], past_key_values=cache, attention_mask=mask,
                            **self.positions(network, length))
        for mine, layer in zip(self.rows, cache.layers, strict=True):
            for kept, fresh in zip(mine, (layer.keys, layer.values), strict=True):
                kept[slot, :, at] = fresh[:, :, -1]
        return state[:, -1]


class StepCells(NamedTuple):
    """Where the rows of a step write, and what they see: each one cell of a slot, and `width` cells.
    every: the slots are all there are, in their order, so that none is copied."""

    slot: Tensor
    cell: Tensor
    width: int
    every: bool

    def keep(self, kept: Tensor, fresh: Tensor) -> Tensor:  # [R, heads, 1, size] -> [R, heads, width, size]
        kept[self.slot, :, self.cell] = fresh[:, :, 0]
        seen = kept[:, :, : self.width]
        return seen if self.every else seen.index_select(0, self.slot)


class SlotLayer(CacheLayerMixin):
    """One layer's keys and values in all slots, [slots, heads, cells, size] each."""

    is_sliding = False

    def __init__(self, kept: tuple[Tensor, Tensor]):
        super().__init__()
        self.keys, self.values = kept
        self.is_initialized = True
        self.now: StepCells | None = None

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """There is nothing to wait for."""

    def update(self, key_states: Tensor, value_states: Tensor, *args, **options) -> tuple[Tensor, Tensor]:
        return self.now.keep(self.keys, key_states), self.now.keep(self.values, value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.now.width, 0

    def get_seq_length(self) -> int:
        return self.now.width - 1

    def get_max_length(self) -> int:
        return self.keys.shape[2]


class SlotCache(PromptCache):
    """Slots of fixed cells. The last cell of a slot is for tokens of no one."""

    static = True

    def __init__(self, engine, like: list, windows: list):
        super().__init__(engine, like)
        cells = -(-(engine.positions + 1) // ALIGNED) * ALIGNED
        self.cell = torch.arange(cells, device=engine.device)
        self.slots, self.dtype = engine.rows + 1, engine.dtype
        self.cache = Cache(layers=[SlotLayer(pair) for pair in empty_cache(like, self.slots, cells)])
        self.windows = [size if size and size < cells else None for size in windows]

    def seat(self, slot: Tensor, place: Tensor) -> None:
        """Prompts are copied to where their rows go on."""
        for prompts, layer in zip(self.prompts, self.cache.layers, strict=True):
            for kept, read in zip((layer.keys, layer.values), prompts, strict=True):
                many = min(read.shape[2], len(self.cell))  # places may be longer than any prompt with a reply
                kept[slot, :, :many] = read[place, :, :many]

    def step(self, network, token: Tensor, at: Tensor, slot: Tensor, prompt: Tensor,
             prompt_length: Tensor, longest: int | None = None) -> Tensor:  # -> [R, D]
        """Rows as many as there are slots are computed in the order of the slots: nothing is copied then."""
        cell = (prompt_length + at).clamp_max(len(self.cell) - 1)
        if len(slot) < self.slots - 1:
            return self.run(network, token, StepCells(slot, cell, self.width(cell, longest), every=False))
        tokens = token.new_zeros(self.slots).index_copy_(0, slot, token)
        cells = cell.new_full((self.slots,), len(self.cell) - 1).index_copy_(0, slot, cell)
        order = torch.arange(self.slots, device=slot.device)
        return self.run(network, tokens, StepCells(order, cells, self.width(cell, longest), every=True))[slot]

    def run(self, network, token: Tensor, now: StepCells) -> Tensor:  # [R] -> [R, D]
        for layer in self.cache.layers:
            layer.now = now
        return network.run(token[:, None], past_key_values=self.cache, attention_mask=self.mask(now),
                           **self.positions(network, now.cell))[:, 0]

    def width(self, cell: Tensor, longest: int | None) -> int:
        """Cells that the rows of a step see: as many as the longest has, where it is known. To learn it from
        a GPU is to wait."""
        if longest is None:
            longest = len(self.cell) if cell.is_cuda else int(cell.max()) + 1
        return min(len(self.cell), -(-longest // WIDER) * WIDER)

    def mask(self, now: StepCells) -> Tensor | dict:
        """What is added to a row's scores: nothing for the cells as far as its own, in a window where a layer
        has one. By kinds of layers, where windows differ."""
        seen = {size: self.seen(now, size) for size in dict.fromkeys(self.windows)}
        if len(seen) == 1:
            return seen[self.windows[0]]
        (window,) = (size for size in seen if size)
        return {"full_attention": seen[None], "sliding_attention": seen[window]}

    def seen(self, now: StepCells, window: int | None) -> Tensor:  # -> [R, 1, 1, width]
        number, last = self.cell[: now.width], now.cell[:, None]
        wanted = number <= last
        if window:
            wanted &= number > last - window
        nothing = torch.zeros(wanted.shape, dtype=self.dtype, device=last.device)
        return nothing.masked_fill_(~wanted, torch.finfo(self.dtype).min)[:, None, None]

    def is_right(self, network) -> bool:
        """Whether the network says of rows in slots what it says of whole rows: asked of two, of which one is
        longer than its window. Cells that no row sees hold large numbers meanwhile."""
        long = min(max([3, *(size + 3 for size in self.windows if size)]), len(self.cell) - 1)
        device, vocabulary = self.cell.device, network.config.vocab_size
        tokens = torch.arange(2 * long, device=device).mul(7).remainder(vocabulary).view(2, long)
        row, cell = torch.arange(2, device=device), torch.tensor([long - 1, 1], device=device)
        cache = DynamicCache()
        wanted = network.run(tokens, past_key_values=cache)[row, cell]
        for mine, theirs in zip(self.cache.layers, cache.layers, strict=True):
            for kept, fresh in ((mine.keys, theirs.keys), (mine.values, theirs.values)):
                kept.fill_(9.0)
                kept[0, :, : long - 1], kept[1, :, :1] = fresh[0, :, :-1], fresh[1, :, :1]
        try:
            said = self.run(network, tokens[row, cell], StepCells(row, cell, len(self.cell), every=False))
        except torch.OutOfMemoryError:
            raise
        except Exception:  # whatever its code makes of a mask that it does not expect
            return False
        finally:
            for layer in self.cache.layers:
                layer.keys.zero_(), layer.values.zero_()
        allowed = 1e-3 if self.dtype in (torch.float32, torch.float64) else 5e-2
        return bool((said - wanted).abs().max() <= allowed * wanted.abs().max())


@torch.no_grad()
def cache_for(engine, network) -> SlotCache | RepackedCache | NoCache:
    """The first way that this network understands."""
    windows = layer_windows(network)
    if windows is None:
        return NoCache(engine)
    cache = DynamicCache()
    network.run(torch.zeros(1, 2, dtype=torch.int64, device=engine.device), past_key_values=cache)
    like = [(layer.keys, layer.values) for layer in cache.layers]
    if len(like) != len(windows) or any(x is None for pair in like for x in pair):
        return NoCache(engine)  # a layer that looks at another one's
    if len(set(windows) - {None}) < 2 and "position_ids" in forward_arguments(network):
        placed = SlotCache(engine, like, windows)
        if placed.is_right(network):
            return placed
    return RepackedCache(engine, like)


def layer_windows(network) -> list[int | None] | None:
    """Of each layer, how far back it sees, None for all the way; None of a network that keeps something else
    than keys and values for each token."""
    layers = DynamicCache(config=network.network.config).layers
    known = all(type(x) in (DynamicLayer, DynamicSlidingWindowLayer) for x in layers)
    asked = {"past_key_values", "attention_mask"} <= forward_arguments(network)
    if not (layers and known and asked) or network.network._is_stateful:
        return None
    return [x.sliding_window if isinstance(x, DynamicSlidingWindowLayer) else None for x in layers]


def empty_cache(like: list, count: int, long: int) -> list[tuple[Tensor, Tensor]]:
    """Room for so many rows' keys and values, by layers."""
    return [tuple(x.new_zeros(count, x.shape[1], long, x.shape[3]) for x in pair) for pair in like]


def forward_arguments(network) -> set[str]:
    return set(inspect.signature(network.network.base_model.forward).parameters)

"""The decode step of a network of `transformers`: the methods of `Engine`, and three KV caches.

`cache_for` takes the first cache that the network supports:

SlotCache      Slots of fixed length: token p of a row is in cell p, a step writes one cell per row in place,
               and a mask hides the rest. Shapes are static, so that on a GPU a step can be a CUDA graph. A
               prompt is read once and copied into the slots of its rows.
RepackedCache  Rows are packed again at each step, flush right, as `generate` lays out a left-padded batch:
               for networks that derive positions or biases from the mask (ALiBi).
NoCache        Each step reads rows from the first token: for networks whose state is not a KV cache (a state
               space model).
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Protocol, cast

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import PreTrainedModel
from transformers.cache_utils import (
    Cache,
    CacheLayerMixin,
    DynamicCache,
    DynamicLayer,
    DynamicSlidingWindowLayer,
)

from postgrad.maths.packing import to_device
from postgrad.models.families import HFSizes, check_positions
from postgrad.models.kernels import kernels_for

KeysValues = tuple[Tensor, Tensor]  # [slots, heads, tokens, head_dim] each
ALIGNED = 16  # cells of a slot are a multiple of it: attention kernels then take the mask without a copy
WIDER = 64    # a step reads the cells of its longest row, rounded up to a multiple of it
REPORTED: set[str] = set()  # model types whose steps are known not to be captured


class SampledModel(Protocol):
    """An HFModel, or an adapter on one."""

    @property
    def config(self) -> HFSizes: ...

    @property
    def head(self) -> Tensor: ...


class HFNetwork(SampledModel, Protocol):
    """What caches use of an HFModel."""

    network: PreTrainedModel

    def run(self, tokens: Tensor, **inputs: object) -> Tensor: ...

    def read(self, states: Tensor) -> Tensor: ...


class HFEngine:
    """`rows` slots of `new` tokens each, and as many prompts of up to `read` tokens.

    The last slot and prompt are dummies. positions: the most that a prompt and a row have together, if less
    than `read` and `new` allow. graphs: whether on a GPU a step can be captured.
    """

    appends = False      # a step has one token per slot
    extends = False      # a prompt is prefilled as a whole
    least_saved = 0
    independent = False  # rounding of a row depends on the number of rows
    weights: Mapping[str, Tensor] = {}  # no copies of its own

    @torch.no_grad()
    def __init__(self, model: SampledModel, *, rows: int, prompts: int, read: int, new: int,
                 positions: int | None = None):
        self.model, self.read, self.new, self.rows, self.prompts = model, read, new, rows, prompts
        self.positions = positions or read + new - 1
        check_positions(self.positions, model.config.max_position_embeddings)
        self.device, self.dtype = model.head.device, model.head.dtype
        self.ops = kernels_for(self.device, self.dtype)
        with self.adapted_network() as network:
            self.memory = cache_for(self, network)
        self.graphs = self.memory.static and self.device.type == "cuda"
        if self.graphs:
            self.rehearse()

    def refresh(self, often: bool = False) -> None:
        """The weights are the model's own."""

    def routes_of(self, slot: int, place: int, read: int, written: int) -> None:
        """Routes of experts are not recorded."""

    @torch.no_grad()
    def prefill(self, tokens: Tensor, lengths: Tensor, places: list[int],
                begun: list[int] | None = None) -> Tensor:  # [P, T], [P] -> [P, D]
        """Reads prompts into their places -> the state that predicts each one's first new token. begun:
        zeros."""
        tokens, lengths, place = (to_device(x, self.device) for x in (tokens, lengths, torch.tensor(places)))
        with self.adapted_network() as network:
            states = self.memory.read(network, tokens, place)
        return states[torch.arange(len(places), device=self.device), lengths - 1]

    def seat(self, slot: Tensor, prompt: Tensor) -> None:
        """Starts rows in these slots, after the prompts in these places."""
        self.memory.seat(slot, prompt)

    @torch.no_grad()
    def step(self, token: Tensor, at: Tensor, slot: Tensor, prompt: Tensor, prompt_length: Tensor,
             longest: int | None = None) -> Tensor:
        """Token number `at` of each row, written to its slot -> the state [R, D] that predicts the next.
        longest: tokens of the longest row, prompt included, if known."""
        with self.adapted_network() as network:
            return self.memory.step(network, token, at, slot, prompt, prompt_length, longest)

    def logits(self, hidden: Tensor) -> Tensor:  # [R, D] -> [R, V], in float32 at least
        with self.adapted_network() as network:
            logits = network.read(hidden)
        return logits.to(torch.promote_types(logits.dtype, torch.float32))

    def adapted_network(self) -> AbstractContextManager[HFNetwork]:
        """The network, with the model's adapter active if it has one."""
        active = getattr(self.model, "active", None)
        return active() if active else nullcontext(cast(HFNetwork, self.model))

    def rehearse(self) -> None:
        """Runs a dummy step that may not synchronise with the GPU, as a graph cannot either."""
        none = torch.zeros(2, dtype=torch.int64, device=self.device)
        row = (none, none, none + self.rows, none + self.prompts, none + 1)
        self.logits(self.step(*row))  # lazy initialisation happens here
        try:
            with NoSync():
                self.logits(self.step(*row))
        except RuntimeError as error:
            self.uncaptured(error)

    def uncaptured(self, error: RuntimeError) -> None:
        """Steps run without a graph; reported once per model type."""
        if isinstance(error, torch.OutOfMemoryError):
            raise error
        self.graphs, kind = False, self.model.config.model_type
        if kind not in REPORTED:
            REPORTED.add(kind)
            print(f"postgrad: a step of {kind} cannot be captured as a CUDA graph and is launched kernel by "
                  f"kernel, slower ({str(error).splitlines()[0]:.200}).", file=sys.stderr)


class NoSync(TorchDispatchMode):
    """Raises where this thread would synchronise with the GPU: to read a number, to learn a size, to copy to
    the host or from it."""

    READS = ("_local_scalar_dense", "nonzero", "masked_select", "equal", "unique", "_unique",
             "bincount")

    def __init__(self) -> None:
        TorchDispatchMode.__init__(self)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = func.__name__.split(".")[0], kwargs or {}
        flat = [x for arg in args for x in (arg if isinstance(arg, list | tuple) else [arg])
                if isinstance(x, Tensor)]
        moved = kwargs.get("device") if name == "_to_copy" else flat[-1].device if name == "copy_" else None
        crosses = moved is not None and torch.device(moved).type != flat[0].device.type
        chosen = (name in ("index", "index_put", "index_put_")
                  and any(x is not None and x.dtype == torch.bool for x in args[1]))
        if name.startswith(self.READS) or chosen or crosses:
            raise RuntimeError(f"{func} waits for the GPU")
        return func(*args, **kwargs)


class NoCache:
    """The tokens of prompts and rows alone."""

    static = False

    def __init__(self, engine: HFEngine):
        self.asked = torch.zeros(engine.prompts + 1, engine.read, dtype=torch.int64, device=engine.device)
        self.written = torch.zeros(engine.rows + 1, engine.new, dtype=torch.int64, device=engine.device)

    def read(self, network: HFNetwork, tokens: Tensor, place: Tensor) -> Tensor:  # [P, T], [P] -> [P, T, D]
        self.asked[place, : tokens.shape[1]] = tokens
        return network.run(tokens)

    def seat(self, slot: Tensor, place: Tensor) -> None:
        """A step reads a prompt where it is."""

    def step(self, network: HFNetwork, token: Tensor, at: Tensor, slot: Tensor, prompt: Tensor,
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

    def __init__(self, engine: HFEngine, like: Sequence[KeysValues]):
        self.last = engine.model.config.max_position_embeddings - 1
        self.prompts = empty_cache(like, engine.prompts + 1, engine.read)

    def read(self, network: HFNetwork, tokens: Tensor, place: Tensor) -> Tensor:  # [P, T], [P] -> [P, T, D]
        cache = DynamicCache()
        states = network.run(tokens, past_key_values=cache)
        for mine, layer in zip(self.prompts, cache.layers, strict=True):
            for stored, fresh in zip(mine, (layer.keys, layer.values), strict=True):
                stored[place, :, : tokens.shape[1]] = fresh
        return states

    def positions(self, network: HFNetwork, position: Tensor) -> dict[str, Tensor]:  # [R]
        """position_ids, for a network that takes them; a finished row may be past the last position."""
        known = "position_ids" in forward_arguments(network)
        return {"position_ids": position.clamp_max(self.last)[:, None]} if known else {}


class RepackedCache(PromptCache):
    """Slots of rows beside those of prompts, concatenated at each step."""

    def __init__(self, engine: HFEngine, like: Sequence[KeysValues]):
        super().__init__(engine, like)
        self.rows = empty_cache(like, engine.rows + 1, engine.new)

    def seat(self, slot: Tensor, place: Tensor) -> None:
        """A step reads a prompt where it is."""

    def step(self, network: HFNetwork, token: Tensor, at: Tensor, slot: Tensor, prompt: Tensor,
             prompt_length: Tensor, longest: int | None = None) -> Tensor:  # -> [R, D]
        length = prompt_length + at  # tokens before this one
        read, many = int(prompt_length.max()), int(length.max())
        # [R, S] position in the row; below 0: padding
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
            for stored, fresh in zip(mine, (layer.keys, layer.values), strict=True):
                stored[slot, :, at] = fresh[:, :, -1]
        return state[:, -1]


class StepCells(NamedTuple):
    """The cell of a slot that each row of a step writes, and the first `width` cells, which it may read.
    every: these are all slots in order, so that none is copied."""

    slot: Tensor
    cell: Tensor
    width: int
    every: bool

    def keep(self, stored: Tensor, fresh: Tensor) -> Tensor:  # [R, heads, 1, size] -> [R, heads, width, size]
        stored[self.slot, :, self.cell] = fresh[:, :, 0]
        seen = stored[:, :, : self.width]
        return seen if self.every else seen.index_select(0, self.slot)


@CacheLayerMixin.register
class SlotLayer:
    """One layer's keys and values in all slots, as transformers' `Cache` asks for them."""

    is_sliding = is_compileable = is_croppable = False
    is_initialized = supports_early_init = True

    def __init__(self, stored: KeysValues):
        self.keys, self.values = stored
        self.now: StepCells  # set before each step

    def update(self, key_states: Tensor, value_states: Tensor, *args: object,
               **options: object) -> KeysValues:
        return self.now.keep(self.keys, key_states), self.now.keep(self.values, value_states)

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.now.width, 0

    def get_seq_length(self) -> int:
        return self.now.width - 1

    def get_max_length(self) -> int:
        return self.keys.shape[2]


class SlotCache(PromptCache):
    """Slots of fixed length. The last cell of a slot is for dummy tokens."""

    static = True

    def __init__(self, engine: HFEngine, like: Sequence[KeysValues], windows: Sequence[int | None]):
        super().__init__(engine, like)
        cells = -(-(engine.positions + 1) // ALIGNED) * ALIGNED
        self.cell = torch.arange(cells, device=engine.device)
        self.slots, self.dtype = engine.rows + 1, engine.dtype
        self.layers = [SlotLayer(pair) for pair in empty_cache(like, self.slots, cells)]
        self.cache = Cache(layers=self.layers)
        self.windows = [size if size and size < cells else None for size in windows]

    def seat(self, slot: Tensor, place: Tensor) -> None:
        """Copies prompts into the slots of their rows."""
        for prompts, layer in zip(self.prompts, self.layers, strict=True):
            for stored, read in zip((layer.keys, layer.values), prompts, strict=True):
                many = min(read.shape[2], len(self.cell))  # `read` may exceed the positions
                stored[slot, :, :many] = read[place, :, :many]

    def step(self, network: HFNetwork, token: Tensor, at: Tensor, slot: Tensor, prompt: Tensor,
             prompt_length: Tensor, longest: int | None = None) -> Tensor:  # -> [R, D]
        """With as many rows as slots, rows are computed in the order of the slots, without a copy."""
        cell = (prompt_length + at).clamp_max(len(self.cell) - 1)
        if len(slot) < self.slots - 1:
            return self.run(network, token, StepCells(slot, cell, self.width(cell, longest), every=False))
        tokens = token.new_zeros(self.slots).index_copy_(0, slot, token)
        cells = cell.new_full((self.slots,), len(self.cell) - 1).index_copy_(0, slot, cell)
        order = torch.arange(self.slots, device=slot.device)
        return self.run(network, tokens, StepCells(order, cells, self.width(cell, longest), every=True))[slot]

    def run(self, network: HFNetwork, token: Tensor, now: StepCells) -> Tensor:  # [R] -> [R, D]
        for layer in self.layers:
            layer.now = now
        return network.run(token[:, None], past_key_values=self.cache, attention_mask=self.mask(now),
                           **self.positions(network, now.cell))[:, 0]

    def width(self, cell: Tensor, longest: int | None) -> int:
        """Cells that a step reads: those of its longest row. Unknown on a GPU, all of them: reading the
        maximum would synchronise."""
        if longest is None:
            longest = len(self.cell) if cell.is_cuda else int(cell.max()) + 1
        return min(len(self.cell), -(-longest // WIDER) * WIDER)

    def mask(self, now: StepCells) -> Tensor | dict[str, Tensor]:
        """The additive mask; one per layer type where windows differ."""
        masks = {size: self.window_mask(now, size) for size in dict.fromkeys(self.windows)}
        if len(masks) == 1:
            return masks[self.windows[0]]
        (window,) = (size for size in masks if size)
        return {"full_attention": masks[None], "sliding_attention": masks[window]}

    def window_mask(self, now: StepCells, window: int | None) -> Tensor:  # -> [R, 1, 1, width]
        number, last = self.cell[: now.width], now.cell[:, None]
        seen = number <= last
        if window:
            seen &= number > last - window
        mask = torch.zeros(seen.shape, dtype=self.dtype, device=last.device)
        return mask.masked_fill_(~seen, torch.finfo(self.dtype).min)[:, None, None]

    def is_right(self, network: HFNetwork) -> bool:
        """Whether two rows in slots give the states of a full forward pass; one is longer than its window.
        Masked cells hold large numbers meanwhile."""
        long = min(max([3, *(size + 3 for size in self.windows if size)]), len(self.cell) - 1)
        device, vocabulary = self.cell.device, network.config.vocab_size
        tokens = torch.arange(2 * long, device=device).mul(7).remainder(vocabulary).view(2, long)
        row, cell = torch.arange(2, device=device), torch.tensor([long - 1, 1], device=device)
        cache = DynamicCache()
        expected = network.run(tokens, past_key_values=cache)[row, cell]
        for mine, theirs in zip(self.layers, cache.layers, strict=True):
            for stored, fresh in ((mine.keys, theirs.keys), (mine.values, theirs.values)):
                stored.fill_(9.0)
                stored[0, :, : long - 1], stored[1, :, :1] = fresh[0, :, :-1], fresh[1, :, :1]
        try:
            states = self.run(network, tokens[row, cell], StepCells(row, cell, len(self.cell), every=False))
        except torch.OutOfMemoryError:
            raise
        except Exception:  # the network's code may fail in any way on an unexpected mask
            return False
        finally:
            for layer in self.layers:
                layer.keys.zero_(), layer.values.zero_()
        tolerance = 1e-3 if self.dtype in (torch.float32, torch.float64) else 5e-2
        return bool((states - expected).abs().max() <= tolerance * expected.abs().max())


@torch.no_grad()
def cache_for(engine: HFEngine, network: HFNetwork) -> SlotCache | RepackedCache | NoCache:
    """The first cache that the network supports."""
    windows = layer_windows(network)
    if windows is None:
        return NoCache(engine)
    cache = DynamicCache()
    network.run(torch.zeros(1, 2, dtype=torch.int64, device=engine.device), past_key_values=cache)
    like = [(layer.keys, layer.values) for layer in cache.layers]
    if len(like) != len(windows) or any(x is None for pair in like for x in pair):
        return NoCache(engine)  # layers share keys and values
    if len(set(windows) - {None}) < 2 and "position_ids" in forward_arguments(network):
        slots = SlotCache(engine, like, windows)
        if slots.is_right(network):
            return slots
    return RepackedCache(engine, like)


def layer_windows(network: HFNetwork) -> list[int | None] | None:
    """The sliding window of each layer, None without one; None for a network whose state is not a KV
    cache."""
    layers = DynamicCache(config=network.network.config).layers
    known = all(type(x) in (DynamicLayer, DynamicSlidingWindowLayer) for x in layers)
    asked = {"past_key_values", "attention_mask"} <= forward_arguments(network)
    if not (layers and known and asked) or network.network._is_stateful:
        return None
    return [x.sliding_window if isinstance(x, DynamicSlidingWindowLayer) else None for x in layers]


def empty_cache(like: Sequence[KeysValues], count: int, long: int) -> list[KeysValues]:
    """Zeros for `count` rows of `long` tokens, layer by layer."""
    def room(x: Tensor) -> Tensor:
        return x.new_zeros(count, x.shape[1], long, x.shape[3])
    return [(room(keys), room(values)) for keys, values in like]


def forward_arguments(network: HFNetwork) -> set[str]:
    return set(inspect.signature(network.network.base_model.forward).parameters)

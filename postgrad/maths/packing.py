"""Rows laid end to end, without padding, and what rows have in common computed once.

Rows side by side that begin with the same prompt (the samples of a group,
the two answers of a pair) share its tokens:
    row 0: p q r a b        tokens laid out:   p q r | a b | c
    row 1: p q r c          sequences:         (p q r), (a b) after (p q r), (c) after (p q r)
A token sees its own sequence up to itself and the whole of the prefix: exactly what it saw in its row.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Spans:
    """M sequences of N tokens: sequence m is the tokens start..stop-1, after the prefix
    prefix_start..prefix_stop-1."""

    start: Tensor           # [M], like the rest: int64, on the CPU
    stop: Tensor
    prefix_start: Tensor
    prefix_stop: Tensor

    @classmethod
    def of(cls, lengths) -> Spans:
        """Sequences of these lengths, one after the other, without prefixes."""
        stop = torch.as_tensor(lengths).cumsum(0)
        nothing = torch.zeros_like(stop)
        return cls(stop - torch.as_tensor(lengths), stop, nothing, nothing)

    @cached_property
    def own(self) -> Tensor:  # [M]
        return self.stop - self.start

    @cached_property
    def prefix(self) -> Tensor:  # [M]
        return self.prefix_stop - self.prefix_start

    def laid(self, device) -> Laid:
        """What an attention kernel over sequences asks for, on its device; made once."""
        if device not in self._made:
            self._made[device] = Laid.of(self, device)
        return self._made[device]

    @cached_property
    def _made(self) -> dict:
        return {}

    @cached_property
    def keys(self) -> Tensor | None:  # [sum of prefix + own]
        """The tokens that each sequence may look at, sequence after sequence;
        None where that is all tokens as they stand."""
        if not self.prefix.any():
            return None
        first = torch.stack([self.prefix_start, self.start], 1).flatten()  # prefix, own, prefix, own, ...
        many = torch.stack([self.prefix, self.own], 1).flatten()
        ahead = (first - many.cumsum(0) + many).numpy().repeat(many.numpy())  # torch's would wake all threads
        return torch.from_numpy(ahead + np.arange(len(ahead)))

    @cached_property
    def places(self) -> tuple[Tensor, Tensor] | None:  # [len(keys)], [N + 1]
        """Where each token stands in `keys`, token after token, and where each token's places end, from 0:
        keys 0 1 0 2 -> places 0 2 1 3, ends 0 2 3 4."""
        if self.keys is None:
            return None
        keys = self.keys.numpy()
        ends = np.bincount(keys, minlength=int(self.stop.max())).cumsum()
        places = keys.argsort(kind="stable")  # of a few sorted runs: fast
        return torch.from_numpy(places).int(), torch.nn.functional.pad(torch.from_numpy(ends), (1, 0)).int()


class Laid(NamedTuple):
    """Spans as flash attention takes them: where each sequence's queries and keys end, and the longest of
    them; the tokens that are keys, and the places of each token among them."""

    queries_to: Tensor          # [M + 1] int32, from 0
    keys_to: Tensor             # [M + 1]
    keys: Tensor | None         # as in Spans
    places: Tensor | None       # [len(keys)] int32, as in Spans, like their ends
    places_to: Tensor | None    # [N + 1] int32, from 0
    longest: int                # queries of a sequence, at most
    seen: int                   # keys of a sequence, at most

    @classmethod
    def of(cls, spans: Spans, device) -> Laid:
        own, all_seen = spans.own, spans.own + spans.prefix
        ends = [torch.nn.functional.pad(x.cumsum(0), (1, 0)).int() for x in (own, all_seen)]
        tensors = (*ends, spans.keys, *(spans.places or (None, None)))
        return cls(*(x if x is None else to_device(x, device) for x in tensors), int(own.max()),
                   int(all_seen.max()))


@dataclass(frozen=True)
class Packed:
    """N tokens of B rows laid end to end, and the way back.

    The tensors but `spans` stand where the model does.

    cells [N]: a token's place in the rows laid flat, [B * T].       positions [N]: its position in its row
    home [B, T]: the packed token of each cell (0 for padding).      chosen [K]: the masked cells, [B * T]
    before [K]: the packed token that predicts each of them
    """

    cells: Tensor
    positions: Tensor
    home: Tensor
    chosen: Tensor
    before: Tensor
    spans: Spans

    def to(self, device) -> Packed:
        return replace(self, **{f.name: to_device(getattr(self, f.name), device) for f in fields(self)
                                if f.name != "spans"})


def to_device(x: Tensor, device) -> Tensor:
    """To a device, without waiting for what it is still computing; `here` remembers what was sent."""
    to = torch.device(device)
    if not x.is_cpu or to.type == "cpu":
        return x.to(device)
    made = x.contiguous().pin_memory() if to.type == "cuda" else x
    return remembered(made.to(device, non_blocking=True), x)


def remembered(x: Tensor, copy: Tensor) -> Tensor:
    """x, of which `here` gives this copy: for what is not changed in place."""
    x.here = copy  # type: ignore[attr-defined]
    return x


def to_cpu(x: Tensor) -> Tensor:
    """In main memory; of what was sent from there, without asking the device."""
    return x.here if hasattr(x, "here") else x.cpu()


def fetched(x: Tensor) -> Callable[[], Tensor]:
    """A tensor on its way to main memory: the call, which may come from another thread, waits for it."""
    copy = x.to("cpu", non_blocking=True)
    event = torch.cuda.Event() if x.is_cuda else None
    if event:
        event.record()

    def arrived() -> Tensor:
        if event:
            event.synchronize()
        return copy

    return arrived


def pack(lengths: Tensor, tokens: Tensor | None = None,
         mask: Tensor | None = None) -> Packed:  # [B], [B, T], [B, T]
    """Given tokens and mask, a prompt (what comes before the first masked token) that adjacent rows share
    is laid out once."""
    ends = lengths.cpu().numpy()  # [B]
    B, T = len(ends), int(ends.max()) if tokens is None else tokens.shape[1]
    mask = np.zeros((B, T), bool) if mask is None else mask.cpu().numpy()
    known, again = common_prompts(mask if tokens is None else tokens.cpu().numpy(), mask)
    # two sequences a row: its prompt, laid out with the first row of the group, and what is the row's own
    size = np.stack([np.where(again, 0, known), ends - known], 1)  # [B, 2]
    stop = size.cumsum().reshape(B, 2)
    start = stop - size
    prompt = start[np.maximum.accumulate(np.where(again, 0, np.arange(B))), 0]  # where the group's begins
    nothing = np.zeros_like(known)
    spans = np.stack([np.stack([start[:, 0], stop[:, 0], nothing, nothing], 1),
                      np.stack([start[:, 1], stop[:, 1], prompt, prompt + known], 1)], 1)  # [B, 2, 4]
    laid = spans[np.stack([size[:, 0] > 0, np.ones(B, bool)], 1)].T  # a row's own is there, however short
    # a token's place less its number, for each sequence: in its row, and in the rows laid flat
    ahead = np.stack([nothing, known], 1) - start
    numbers, flat = np.arange(stop[-1, 1]), ahead + np.arange(0, B * T, T)[:, None]
    positions, cells = (numbers + x.repeat(size.ravel()) for x in (ahead, flat))
    column = np.arange(T)
    home = column + np.where(column < known[:, None], prompt[:, None], (start[:, 1] - known)[:, None])
    home[column >= ends[:, None]] = 0
    chosen = np.flatnonzero(mask)
    assert (chosen % T).all(), ("column 0 has no token before it that could predict it: mask[:, "
                                "0] must be False")
    arrays = cells, positions, home, chosen, home.reshape(-1)[chosen - 1]
    return Packed(*map(torch.from_numpy, arrays), Spans(*torch.from_numpy(laid.copy()).unbind(0)))


def padded(packed: Packed, size: int, piece: int = 64) -> Packed:
    """With further tokens, up to `size`, that stand in sequences of their own:
    what was there is computed as before."""
    more = size - len(packed.cells)
    if not more:
        return packed
    starts = torch.arange(len(packed.cells), size, piece)
    stops = (starts + piece).clamp_max(size)
    old, nothing, device = packed.spans, torch.zeros_like(starts), packed.cells.device
    spans = Spans(torch.cat([old.start, starts]), torch.cat([old.stop, stops]),
                  torch.cat([old.prefix_start, nothing]), torch.cat([old.prefix_stop, nothing]))
    cells = torch.cat([packed.cells, to_device(torch.zeros(more, dtype=torch.int64), device)])
    positions = torch.cat([packed.positions, to_device(torch.arange(more) % piece, device)])
    return replace(packed, cells=cells, positions=positions, spans=spans)


def common_prompts(tokens: np.ndarray, mask: np.ndarray) -> tuple[np.ndarray, np.ndarray]:  # [B, T] -> [B]
    """For each row, how long the prompt is that it shares with a neighbour (0: with none),
    and whether it was there before."""
    first = np.where(mask.any(1), mask.argmax(1), 0)
    n = first[1:]
    equal = (tokens[1:] == tokens[:-1]) | (np.arange(tokens.shape[1]) >= n[:, None])
    again = np.concatenate([[False], (n > 1) & (n == first[:-1]) & equal.all(1)])
    followed = np.append(again[1:], False)
    return np.where(again | followed, first, 0), again


def passes(lengths: Sequence[int], prompts: tuple[np.ndarray, np.ndarray], each: int,
           tokens_per_pass: int) -> Iterator[tuple[int, int]]:
    """Units of `each` rows in about equal parts, [start, stop) of each: at most tokens_per_pass tokens to
    compute, at least one unit. prompts: as `common_prompts` finds them."""
    new = (np.array(lengths) - np.where(prompts[1], prompts[0], 0)).tolist()
    units = [sum(new[i: i + each]) for i in range(0, len(new), each)]
    count = -(-sum(units) // tokens_per_pass)
    tokens_per_pass = min(tokens_per_pass, sum(units) // count + max(units))
    start = 0
    while start < len(units):
        stop = start + 1
        cost = lengths[start * each] + sum(new[start * each + 1: (start + 1) * each])
        while stop < len(units):
            cost += units[stop]
            if cost > tokens_per_pass:
                break
            stop += 1
        yield start, stop
        start = stop


def pad_rows(rows: Sequence[Sequence], width: int | None = None, fill=0, dtype=torch.int64) -> Tensor:
    """Lists of different length as one right-padded tensor [B, T]. [[1, 2], [3]] -> [[1, 2], [3, 0]]"""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    width = width or int(lengths.max())
    out = torch.full((len(rows), width), fill, dtype=dtype)
    plain = out.numpy()  # the same memory
    plain[np.arange(width) < lengths[:, None]] = flat(rows, plain.dtype.type)
    return out


def flat(rows: Sequence[Sequence], dtype: type = np.int64) -> np.ndarray:
    """Rows of different length end to end; one that stands there several times is read once."""
    # as of sampler.numbers.Numbers, or arrays themselves
    arrays = [row if isinstance(row, np.ndarray) else getattr(row, "array", None) for row in rows]
    if rows and all(x is not None for x in arrays):
        return np.concatenate(arrays).astype(dtype, copy=False)
    once = {id(row): row for row in rows}
    if len(once) == len(rows):
        return end_to_end(rows, dtype)
    made = {name: end_to_end([row], dtype) for name, row in once.items()}
    return np.concatenate([made[id(row)] for row in rows])


def end_to_end(rows: Sequence[Sequence], dtype: type) -> np.ndarray:
    """By way of their bytes: numpy would ask for number after number."""
    kind = "?" if dtype is np.bool_ or dtype is bool else "q" if issubclass(dtype, np.integer) else "d"
    read = np.frombuffer(b"".join([struct.pack(f"{len(row)}{kind}", *row) for row in rows]), kind)
    return read.astype(dtype, copy=False)


def take_rows(x: Tensor, index: Tensor) -> Tensor:  # [N, ...], [...] -> [..., ...]
    """x[index], whose gradient is summed in one order: rows that share a prompt take its state several times.

    On a CPU the gradient of plain indexing is added up by all threads at once, in the order in which they
    come, so its last bits depend on what else the machine does; on a GPU it is sorted first, and that of
    index_select is not.
    """
    if x.is_cuda:
        return x[index]
    return x.index_select(0, index.flatten()).view(*index.shape, *x.shape[1:])


def last_of(mask: Tensor) -> Tensor:  # [B, T] -> [B]
    """The last column that is masked in each row; 0 where none is."""
    columns = torch.arange(mask.shape[1], device=mask.device)
    return torch.where(mask, columns, 0).amax(1)

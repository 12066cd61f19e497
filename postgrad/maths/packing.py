"""Packing: rows end to end, without padding, and a prompt that adjacent rows share computed once.

Adjacent rows that begin with the same prompt (the samples of a group, the two answers of a pair) share its
tokens:
    row 0: p q r a b        packed tokens:     p q r | a b | c
    row 1: p q r c          sequences:         (p q r), (a b) after (p q r), (c) after (p q r)
A token attends to its own sequence up to itself and to the whole of the prefix: exactly as in its row.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Device = torch.device | str
Array = NDArray[Any]


@dataclass(frozen=True)
class Spans:
    """M sequences of N tokens: sequence m is the tokens start..stop-1, after the prefix
    prefix_start..prefix_stop-1."""

    start: Tensor           # [M], like the rest: int64, on the CPU
    stop: Tensor
    prefix_start: Tensor
    prefix_stop: Tensor

    @classmethod
    def of(cls, lengths: Tensor | Sequence[int]) -> Spans:
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

    def layout(self, device: Device) -> AttentionLayout:
        """The arguments of a variable-length attention kernel, on its device; computed once."""
        if device not in self._layouts:
            self._layouts[device] = AttentionLayout.of(self, device)
        return self._layouts[device]

    @cached_property
    def _layouts(self) -> dict[Device, AttentionLayout]:
        return {}

    @cached_property
    def keys(self) -> Tensor | None:  # [sum of prefix + own]
        """The tokens that each sequence attends to, sequence after sequence; None where these are all tokens
        in their order."""
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


class AttentionLayout(NamedTuple):
    """Spans as flash attention takes them: cumulative lengths of queries and keys, and the longest of each;
    the tokens that are keys, and the places of each token among them."""

    queries_to: Tensor          # [M + 1] int32, from 0
    keys_to: Tensor             # [M + 1]
    keys: Tensor | None         # as in Spans
    places: Tensor | None       # [len(keys)] int32, as in Spans, like their ends
    places_to: Tensor | None    # [N + 1] int32, from 0
    longest: int                # queries of a sequence, at most
    seen: int                   # keys of a sequence, at most

    @classmethod
    def of(cls, spans: Spans, device: Device) -> AttentionLayout:
        own, attended = spans.own, spans.own + spans.prefix
        queries_to, keys_to = (to_device(torch.nn.functional.pad(x.cumsum(0), (1, 0)).int(), device)
                               for x in (own, attended))
        keys, places, places_to = (None if x is None else to_device(x, device)
                                   for x in (spans.keys, *(spans.places or (None, None))))
        return cls(queries_to, keys_to, keys, places, places_to, int(own.max()), int(attended.max()))


@dataclass(frozen=True)
class Packed:
    """N tokens of B rows end to end, and the way back. `spans` is on the CPU, the rest on the model's device.

    cells [N]: a token's index in the flattened rows, [B * T].       positions [N]: its position in its row
    home [B, T]: the packed token of each cell (0 for padding).      chosen [K]: the masked cells, [B * T]
    before [K]: the packed token that predicts each of them
    """

    cells: Tensor
    positions: Tensor
    home: Tensor
    chosen: Tensor
    before: Tensor
    spans: Spans

    def to(self, device: Device) -> Packed:
        moved: dict[str, Any] = {f.name: to_device(getattr(self, f.name), device) for f in fields(self)
                                 if f.name != "spans"}
        return replace(self, **moved)


def to_device(x: Tensor, device: Device) -> Tensor:
    """Copies to a device without synchronising with it; `to_cpu` of the result is x itself."""
    to = torch.device(device)
    if not x.is_cpu or to.type == "cpu":
        return x.to(device)
    pinned = x.contiguous().pin_memory() if to.type == "cuda" else x
    return with_cpu_copy(pinned.to(device, non_blocking=to.type == "cuda"), x)


def with_cpu_copy(x: Tensor, copy: Tensor) -> Tensor:
    """x, of which `to_cpu` returns this copy: for tensors that are not changed in place."""
    setattr(x, "cpu_copy", copy)  # noqa: B010 - an attribute that Tensor does not declare
    return x


def has_cpu_copy(x: Tensor) -> bool:
    return hasattr(x, "cpu_copy")


def to_cpu(x: Tensor) -> Tensor:
    """On the CPU; of a tensor that came from there, the original, without synchronising with the device."""
    copy = getattr(x, "cpu_copy", None)
    return x.cpu() if copy is None else copy


def fetch_async(x: Tensor) -> Callable[[], Tensor]:
    """Starts a copy to the CPU; the call that is returned, from any thread, waits for it."""
    copy = x.to("cpu", non_blocking=x.is_cuda)  # MPS would not wait where the copy is read
    if not x.is_cuda:
        return lambda: copy
    event = torch.cuda.Event()
    event.record()

    def wait() -> Tensor:
        event.synchronize()
        return copy

    return wait


def pack(lengths: Tensor, tokens: Tensor | None = None,
         mask: Tensor | None = None) -> Packed:  # [B], [B, T], [B, T]
    """Packs rows. With tokens and mask, a prompt (what comes before the first masked token) that adjacent
    rows share is packed once."""
    ends = lengths.cpu().numpy()  # [B]
    B, T = len(ends), int(ends.max()) if tokens is None else tokens.shape[1]
    trained = np.zeros((B, T), bool) if mask is None else mask.cpu().numpy()
    shared, repeated = common_prompts(trained if tokens is None else tokens.cpu().numpy(), trained)
    # two sequences a row: its prompt, packed with the first row of the group, and what is the row's own
    size = np.stack([np.where(repeated, 0, shared), ends - shared], 1)  # [B, 2]
    stop = size.cumsum().reshape(B, 2)
    start = stop - size
    prompt = start[np.maximum.accumulate(np.where(repeated, 0, np.arange(B))), 0]  # where the group's begins
    zeros = np.zeros_like(shared)
    spans = np.stack([np.stack([start[:, 0], stop[:, 0], zeros, zeros], 1),
                      np.stack([start[:, 1], stop[:, 1], prompt, prompt + shared], 1)], 1)  # [B, 2, 4]
    present = spans[np.stack([size[:, 0] > 0, np.ones(B, bool)], 1)].T  # a row's own is there, however short
    # an index less the token's number, for each sequence: the index in its row, and in the flattened rows
    in_row = np.stack([zeros, shared], 1) - start
    numbers, in_batch = np.arange(stop[-1, 1]), in_row + np.arange(0, B * T, T)[:, None]
    positions, cells = (numbers + x.repeat(size.ravel()) for x in (in_row, in_batch))
    column = np.arange(T)
    home = column + np.where(column < shared[:, None], prompt[:, None], (start[:, 1] - shared)[:, None])
    home[column >= ends[:, None]] = 0
    chosen = np.flatnonzero(trained)
    assert (chosen % T).all(), ("column 0 has no token before it that could predict it: mask[:, "
                                "0] must be False")
    tensor = torch.from_numpy
    return Packed(tensor(cells), tensor(positions), tensor(home), tensor(chosen),
                  tensor(home.reshape(-1)[chosen - 1]), Spans(*tensor(present.copy()).unbind(0)))


def pack_after(lengths: Tensor, begun: Tensor, width: int) -> Packed:  # [P], [P]
    """Packs what rows [P, width] have after their first `begun` tokens. Those are prefixes that are not
    packed: their keys and values stand behind the N that are, row after row."""
    own, rows = lengths - begun, torch.arange(len(lengths))
    stop, before = own.cumsum(0), own.sum() + begun.cumsum(0)
    positions = torch.arange(int(stop[-1])) + (begun - stop + own).repeat_interleave(own)
    none = torch.zeros(0, dtype=torch.int64)
    return Packed(positions + width * rows.repeat_interleave(own), positions, none, none, none,
                  Spans(stop - own, stop, before - begun, before))


def pad_packed(packed: Packed, size: int, piece: int = 64) -> Packed:
    """Padded to `size` tokens by sequences of dummy tokens: the other sequences are computed as before."""
    more = size - len(packed.cells)
    if not more:
        return packed
    starts = torch.arange(len(packed.cells), size, piece)
    stops = (starts + piece).clamp_max(size)
    old, zeros, device = packed.spans, torch.zeros_like(starts), packed.cells.device
    spans = Spans(torch.cat([old.start, starts]), torch.cat([old.stop, stops]),
                  torch.cat([old.prefix_start, zeros]), torch.cat([old.prefix_stop, zeros]))
    cells = torch.cat([packed.cells, to_device(torch.zeros(more, dtype=torch.int64), device)])
    positions = torch.cat([packed.positions, to_device(torch.arange(more) % piece, device)])
    return replace(packed, cells=cells, positions=positions, spans=spans)


def common_prompts(tokens: Array, mask: Array) -> tuple[Array, Array]:  # [B, T] -> [B], [B]
    """For each row the length of the prompt that it shares with a neighbour (0: with none), and whether the
    row before has it too."""
    first = np.where(mask.any(1), mask.argmax(1), 0)
    n = first[1:]
    equal = (tokens[1:] == tokens[:-1]) | (np.arange(tokens.shape[1]) >= n[:, None])
    again = np.concatenate([[False], (n > 1) & (n == first[:-1]) & equal.all(1)])
    followed = np.append(again[1:], False)
    return np.where(again | followed, first, 0), again


def split_passes(lengths: Sequence[int], prompts: tuple[Array, Array], each: int,
                 tokens_per_pass: int) -> Iterator[tuple[int, int]]:
    """Bounds [start, stop) of micro-batches of about equal size, in units of `each` rows: at most
    tokens_per_pass tokens to compute, at least one unit. prompts: from `common_prompts`."""
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


def pad_rows(rows: Sequence[Sequence[float]], width: int | None = None, fill: float = 0,
             dtype: torch.dtype = torch.int64) -> Tensor:
    """Lists of different length as one right-padded tensor [B, T]. [[1, 2], [3]] -> [[1, 2], [3, 0]]"""
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    width = width or int(lengths.max())
    out = torch.full((len(rows), width), fill, dtype=dtype)
    view = out.numpy()  # the same memory
    view[np.arange(width) < lengths[:, None]] = concat_rows(rows, view.dtype.type)
    return out


def concat_rows(rows: Sequence[Sequence[float]], dtype: type[np.generic | bool] = np.int64) -> Array:
    """Rows of different length end to end; one that occurs several times is converted once."""
    # arrays, and sequences that hold one (sampling.sequences.ArrayTuple)
    arrays = [row if isinstance(row, np.ndarray) else getattr(row, "array", None) for row in rows]
    filled = [x for x in arrays if x is not None]
    if rows and len(filled) == len(rows):
        return np.concatenate(filled).astype(dtype, copy=False)
    once = {id(row): row for row in rows}
    if len(once) == len(rows):
        return _to_array(rows, dtype)
    converted = {key: _to_array([row], dtype) for key, row in once.items()}
    return np.concatenate([converted[id(row)] for row in rows])


def _to_array(rows: Sequence[Sequence[float]], dtype: type[np.generic | bool]) -> Array:
    """Through their bytes: numpy would convert number after number."""
    kind = "?" if dtype is np.bool_ or dtype is bool else "q" if issubclass(dtype, np.integer) else "d"
    read = np.frombuffer(b"".join([struct.pack(f"{len(row)}{kind}", *row) for row in rows]), kind)
    return read.astype(dtype, copy=False)


def take_rows(x: Tensor, index: Tensor) -> Tensor:  # [N, ...], [...] -> [..., ...]
    """x[index] with a deterministic gradient: rows that share a prompt take its state several times.

    On a CPU the gradient of plain indexing is accumulated by all threads in no fixed order, that of
    index_select in one; on a GPU it is the other way round.
    """
    if x.is_cuda:
        return x[index]
    return x.index_select(0, index.flatten()).view(*index.shape, *x.shape[1:])


def last_masked(mask: Tensor) -> Tensor:  # [B, T] -> [B]
    """The last True column of each row; 0 where there is none."""
    columns = torch.arange(mask.shape[1], device=mask.device)
    return torch.where(mask, columns, 0).amax(1)

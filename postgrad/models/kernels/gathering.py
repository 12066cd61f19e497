"""The Triton kernel that adds the gradients of a pass, in bfloat16, to their sums in float32: one launch for
all of them, by a table of where they lie."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

PIECE, WARPS = 4096, 8  # numbers that one program adds
ALIGNED = 16  # bytes: numbers are read several at a time


@triton.jit
def _add(table, pieces, PART: tl.constexpr, PIECE: tl.constexpr):
    piece = tl.program_id(0).to(tl.int64) * 2
    row, first = tl.load(pieces + piece) * 3, tl.load(pieces + piece + 1)
    i = first + tl.arange(0, PIECE)
    to = tl.load(table + row).to(tl.pointer_type(tl.float32)) + i
    part = tl.load(table + row + 1).to(tl.pointer_type(PART)) + i
    to, part = tl.multiple_of(to, 16), tl.multiple_of(part, 16)
    count = tl.load(table + row + 2)
    if first + PIECE <= count:
        tl.store(to, tl.load(to) + tl.load(part).to(tl.float32))
    else:
        tl.store(to, tl.load(to, i < count) + tl.load(part, i < count).to(tl.float32), i < count)


def fits(sums: Sequence[Tensor], parts: Sequence[Tensor]) -> bool:
    """Whether all of them are what the kernel takes: plain, contiguous tensors on one GPU."""
    device = sums[0].device
    return all(type(x) is Tensor and x.dtype == dtype and x.device == device and x.is_contiguous()
               and x.data_ptr() % ALIGNED == 0
               for many, dtype in ((sums, torch.float32), (parts, torch.bfloat16)) for x in many)


def add(sums: Sequence[Tensor], parts: Sequence[Tensor], dtype: tl.dtype = tl.bfloat16) -> None:
    """sums[i] += parts[i] for all i; dtype: of the parts."""
    device, sizes = sums[0].device, tuple(x.numel() for x in sums)
    rows = tuple(n for to, part, size in zip(sums, parts, sizes, strict=True)
                 for n in (to.data_ptr(), part.data_ptr(), size))
    pieces = cut(sizes, device)
    if len(pieces):
        _add[(len(pieces),)](on_device(rows, device), pieces, PART=dtype, PIECE=PIECE, num_warps=WARPS)


@lru_cache(maxsize=4)
def cut(sizes: tuple[int, ...], device: torch.device) -> Tensor:  # -> [pieces, 2]
    """Of each piece the tensor and its first number there."""
    counts = torch.tensor([-(-size // PIECE) for size in sizes])
    which = torch.repeat_interleave(counts)
    first = torch.arange(len(which)) - (counts.cumsum(0) - counts)[which]
    return torch.stack([which, first * PIECE], 1).to(device)


@lru_cache(maxsize=32)  # a few graphs, each with gradients of its own
def on_device(numbers: tuple[int, ...], device: torch.device) -> Tensor:
    made = torch.tensor(numbers)
    # from pinned memory nobody waits for the copy
    return made.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else made

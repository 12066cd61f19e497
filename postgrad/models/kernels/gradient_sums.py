"""A Triton kernel that adds bfloat16 gradients to float32 sums: one launch, by a table of addresses."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

PIECE, WARPS = 4096, 4  # numbers that one program adds
ALIGNED = 16  # bytes: numbers are read several at a time


@triton.jit
def _add(table, pieces, PIECE: tl.constexpr):
    piece = tl.program_id(0).to(tl.int64) * 2
    row, first = tl.load(pieces + piece) * 3, tl.load(pieces + piece + 1)
    i = first + tl.arange(0, PIECE)
    to = tl.load(table + row).to(tl.pointer_type(tl.float32)) + i
    part = tl.load(table + row + 1).to(tl.pointer_type(tl.bfloat16)) + i
    to, part = tl.multiple_of(to, 16), tl.multiple_of(part, 16)
    count = tl.load(table + row + 2)
    if first + PIECE <= count:
        tl.store(to, tl.load(to) + tl.load(part).to(tl.float32))
    else:
        tl.store(to, tl.load(to, i < count) + tl.load(part, i < count).to(tl.float32), i < count)


def add_by_kernel(sums: Sequence[Tensor], parts: Sequence[Tensor]) -> None:
    """sums[i] += parts[i] for all i, by torch where the kernel does not support a tensor."""
    device, pairs = sums[0].device, list(zip(sums, parts, strict=True))
    taken = [kernel_reads(to, torch.float32, device) and kernel_reads(part, torch.bfloat16, device)
             for to, part in pairs]
    add_pairs([pair for pair, fit in zip(pairs, taken, strict=True) if fit], device)
    rest = [pair for pair, fit in zip(pairs, taken, strict=True) if not fit]
    if rest:
        torch._foreach_add_([to for to, _ in rest], [part for _, part in rest])


def kernel_reads(x: Tensor, dtype: torch.dtype, device: torch.device) -> bool:
    """Whether the kernel supports the tensor: contiguous and aligned."""
    return (type(x) is Tensor and x.dtype == dtype and x.device == device and x.is_contiguous()
            and x.data_ptr() % ALIGNED == 0)


def add_pairs(pairs: Sequence[tuple[Tensor, Tensor]], device: torch.device) -> None:
    """to += part for each pair."""
    pieces = gradient_pieces(tuple(to.numel() for to, _ in pairs), device)
    if len(pieces):
        rows = tuple(n for to, part in pairs for n in (to.data_ptr(), part.data_ptr(), to.numel()))
        _add[(len(pieces),)](on_device(rows, device), pieces, PIECE=PIECE, num_warps=WARPS)


@lru_cache(maxsize=4)
def gradient_pieces(sizes: tuple[int, ...], device: torch.device) -> Tensor:  # -> [pieces, 2]
    """Per piece: the tensor, and the first element."""
    counts = torch.tensor([-(-size // PIECE) for size in sizes], dtype=torch.int64)
    which = torch.repeat_interleave(counts)
    first = torch.arange(len(which)) - (counts.cumsum(0) - counts)[which]
    return torch.stack([which, first * PIECE], 1).to(device)


@lru_cache(maxsize=32)  # a few graphs, each with gradients of its own
def on_device(numbers: tuple[int, ...], device: torch.device) -> Tensor:
    made = torch.tensor(numbers)
    # from pinned memory nobody waits for the copy
    return made.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else made

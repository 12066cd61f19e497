"""Packed sequences cut into blocks, one per kernel program: tables computed once for all layers."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from postgrad.maths.packing import Packed, Spans, to_device


class Blocks(NamedTuple):
    """Spans as block kernels take them: rows of `cut_blocks`, those with the most work first, padded with
    zeros."""

    queries: Tensor     # [N // size + sequences, 6] int32
    keys: Tensor        # the same for another block size
    positions: Tensor   # [N], as in Packed

    @classmethod
    def of(cls, packed: Packed, sizes: tuple[int, int], sequences: int = 0) -> Blocks:
        """sizes: tokens per block of queries and of keys. sequences: pads for this many, so that tables of
        equally many tokens have one shape."""
        N, M = len(packed.cells), max(sequences, len(packed.spans.start))
        table = sequence_table(packed.spans)
        looking, looked_at = (cut_blocks(table, size) for size in sizes)
        first, start, _, prefix_start, prefix_stop, _ = looking.T
        work = first - start + prefix_stop - prefix_start, looked_at[:, 5] - looked_at[:, 0]
        tables = []
        for size, rows, much in zip(sizes, (looking, looked_at), work, strict=True):
            filled = np.zeros((N // size + M, 6), np.int32)
            filled[: len(rows)] = rows[(-much).argsort(kind="stable")]
            tables.append(to_device(torch.from_numpy(filled), packed.cells.device))
        return cls(queries=tables[0], keys=tables[1], positions=packed.positions)


def sequence_table(spans: Spans) -> np.ndarray:  # [M, 5]
    """Per sequence: start, stop, prefix start, prefix stop, and the end of the sequences that attend to it:
    itself and those that have it as their prefix, which follow it."""
    columns = [x.numpy() for x in (spans.start, spans.stop, spans.prefix_start, spans.prefix_stop)]
    start, stop, prefix_start, prefix_stop = columns
    alone, number = prefix_start == prefix_stop, np.arange(len(start))
    owner = np.where(alone, number, start.searchsorted(prefix_start, "right") - 1)  # of the prefix
    whole = (start[owner] == prefix_start) & (stop[owner] == prefix_stop)
    assert (alone | whole).all() and (np.diff(owner) >= 0).all(), "prefixes stand before those who share them"
    seen_to = stop.copy()
    np.maximum.at(seen_to, owner, stop)
    return np.stack([*columns, seen_to], 1)


def cut_blocks(sequences: np.ndarray, size: int) -> np.ndarray:  # [M, 5] -> [B, 6]
    """Sequences cut into blocks of `size` tokens: the first token, then the sequence's row."""
    many = -(-(sequences[:, 1] - sequences[:, 0]) // size)
    rows = sequences.repeat(many, 0)
    number = np.arange(len(rows)) - (many.cumsum() - many).repeat(many)  # of the block in its sequence
    return np.column_stack([rows[:, 0] + number * size, rows])

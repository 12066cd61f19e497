"""The next tokens of rows on a GPU, chosen from their states and noted, where a small model has a large
vocabulary: its logits are never written, which takes as long as their product.

    _tops     states meet the head tile by tile; of every PIECE logits of a row the largest, and the sum of
              e^(x - largest)
    _choose   the piece in which u falls; its logits once more; the token, and all that is noted of it
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor

from postgrad.models.kernels.head import _tile, shape

PIECE = 64  # logits whose sum is known when one is chosen
DEEP, WARPS = 64, 4  # numbers of a state at a time, and warps, where one of a piece is chosen
LARGE, NARROW = 16384, 1024  # the least vocabulary and the widest state for which it pays


@triton.jit
def _tops(states, head, tops, sums, N, V, K, pieces, heat, EVEN: tl.constexpr, ROWS: tl.constexpr,
          COLUMNS: tl.constexpr, DEEP: tl.constexpr, PIECE: tl.constexpr):
    MANY: tl.constexpr = COLUMNS // PIECE
    tiles = tl.cdiv(N, ROWS)
    row = tl.program_id(0) % tiles * ROWS + tl.arange(0, ROWS)
    first = tl.program_id(0) // tiles
    column = first * COLUMNS + tl.arange(0, COLUMNS)
    x = _tile(states, head, tl.minimum(row, N - 1), tl.minimum(column, V - 1), K, EVEN, ROWS, COLUMNS, DEEP)
    x = tl.reshape(tl.where((column < V)[None, :], x * heat, float("-inf")), (ROWS, MANY, PIECE))
    top = tl.maximum(tl.max(x, 2), -1e30)
    piece = first * MANY + tl.arange(0, MANY)[None, :]
    at, inside = row[:, None] * pieces + piece, (row < N)[:, None] & (piece < pieces)
    tl.store(tops + at, top, inside)
    tl.store(sums + at, tl.sum(tl.exp(x - top[:, :, None]), 2), inside)


@triton.jit
def _choose(states, head, tops, sums, u, at, slot, shown, done, count, out, logps, ends, token, where, V, K,
            pieces, heat, width, most, ENDS: tl.constexpr, PIECES: tl.constexpr, PIECE: tl.constexpr,
            DEEP: tl.constexpr):
    row, b = tl.program_id(0).to(tl.int64), tl.arange(0, PIECES)
    now, cell = tl.load(at + row), tl.load(slot + row) * width
    top = tl.load(tops + row * pieces + b, b < pieces, -1e30)
    most_likely = tl.max(top)
    share = (tl.load(sums + row * pieces + b, b < pieces, 0.0) * tl.exp(top - most_likely)).to(tl.float64)
    total = tl.sum(share)
    goal = tl.load(u + cell + now) * total
    piece = tl.sum((tl.cumsum(share, 0) <= goal).to(tl.int32))
    piece = tl.minimum(piece, tl.max(tl.where(share > 0, b, 0)))
    before = tl.sum(tl.where(b < piece, share, 0.0))
    i, k, x = tl.arange(0, PIECE), tl.arange(0, DEEP), tl.zeros((PIECE,), tl.float32)
    column = piece * PIECE + i
    for first in range(0, K, DEEP):
        inside = first + k < K
        state = tl.load(states + row * K + first + k, inside, 0.0).to(tl.float32)
        weight = tl.load(head + column.to(tl.int64)[:, None] * K + first + k[None, :],
                         (column < V)[:, None] & inside[None, :], 0.0)
        x += tl.sum(weight.to(tl.float32) * state[None, :], 1)
    x = tl.where(column < V, x * heat, float("-inf"))
    p = tl.exp(x - most_likely).to(tl.float64)
    found = tl.sum((before + tl.cumsum(p, 0) <= goal).to(tl.int32))
    found = tl.minimum(found, tl.max(tl.where(p > 0, i, 0)))
    chosen = (piece * PIECE + found).to(tl.int64)
    tl.store(token + row, chosen)
    tl.store(out + cell + now, chosen)
    tl.store(logps + cell + now,
             tl.sum(tl.where(i == found, x, 0.0)) - most_likely - tl.log(total).to(tl.float32))
    tl.store(where + row, tl.load(shown + row) + now)
    was = tl.load(done + row) != 0
    tl.store(count + row, tl.load(count + row) + tl.where(was, 0, 1))
    now += tl.where(now < most, 1, 0)
    tl.store(at + row, now)
    over = was | (now >= most)
    for e in tl.static_range(ENDS):
        over |= chosen == tl.load(ends + e)
    tl.store(done + row, over)


def chooser(rows) -> Callable[..., tuple[Tensor, Tensor]] | None:
    """(rows, n) -> the next tokens of the first n of these rows, the sampler's, and where they stand in their
    slots; None where the logits themselves are wanted, or nothing is won."""
    head, settings = rows.engine.weights.get("head"), rows.settings
    if head is None or head.dtype == torch.float32 or not (settings.whole and settings.temperature):
        return None
    return chosen if len(head) >= LARGE and head.shape[1] <= NARROW else None


def chosen(rows, n: int) -> tuple[Tensor, Tensor]:
    head, heat = rows.engine.weights["head"], 1.0 / rows.settings.temperature
    (V, K), device = head.shape, head.device
    pieces, tile = triton.cdiv(V, PIECE), shape(rows.hidden)
    tops, sums = torch.empty(2, n, pieces, device=device)
    token, where = torch.empty(2, n, dtype=torch.int64, device=device)
    _tops[(triton.cdiv(n, tile["ROWS"]) * triton.cdiv(V, tile["COLUMNS"]),)](
        rows.hidden, head, tops, sums, n, V, K, pieces, heat, PIECE=PIECE, **tile)
    _choose[(n,)](
        rows.hidden, head, tops, sums, rows.u, rows.at, rows.slot, rows.shown, rows.done, rows.count,
        rows.out, rows.logp, rows.ends, token, where, V, K, pieces, heat, rows.out.shape[1],
        rows.settings.max_new_tokens, ENDS=len(rows.ends), PIECES=triton.next_power_of_2(pieces), PIECE=PIECE,
        DEEP=DEEP, num_warps=WARPS)
    return token, where

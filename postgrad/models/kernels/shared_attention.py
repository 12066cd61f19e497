"""Attention in training on a GPU, by kernels that know of shared prompts: the samples of a group look at the
keys of their prompt where they stand, and its gradients are summed where they belong.

    _forward   a block of queries looks at its prefix and at its own sequence, by the online softmax
    _back_q    the same way once more: what goes back to the queries
    _back_kv   a block of keys, and all queries that saw it: of its own sequence, and of those behind it that
               have it as their prefix. All of these stand side by side, so they are one loop

Exponents are of 2. No sum depends on an order that is another each time. What goes back to keys and values is
left apart for each head of the queries: whoever reads it next sums the heads that share a key.

Runs that are not compiled use flash attention (training.py): it need not be compiled first.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from postgrad.maths.packing import Packed
from postgrad.models.blocks import Blocks
from postgrad.models.kernels.training import by_rows

LN_2 = tl.constexpr(math.log(2))
LOWEST = tl.constexpr(-1e30)  # of what a query has seen so far; finite, so a difference is never NaN
BEHIND = tl.constexpr(2**31 - 1)  # all tokens


class Tiles(NamedTuple):
    """Tokens of a program: queries (_forward, _back_q) and keys (_back_kv); and for each kernel the tokens on
    the other side that it has at a time, its warps and its stages."""

    queries: int
    keys: int
    forward: tuple[int, int, int]
    back_q: tuple[int, int, int]
    back_kv: tuple[int, int, int]


TILES = {  # by head_dim, at most
    64: Tiles(64, 64, (32, 4, 3), (32, 4, 3), (32, 4, 3)),
    128: Tiles(64, 64, (64, 4, 2), (64, 4, 2), (64, 4, 2)),
    256: Tiles(32, 32, (32, 4, 2), (32, 4, 2), (32, 4, 1)),
}


def tiles(head_dim: int) -> Tiles:
    return next(TILES[most] for most in TILES if head_dim <= most)


def lay_blocks(packed: Packed, head_dim: int, sequences: int = 0) -> Blocks:
    """Packed tokens as the kernels take them; sequences: as in Blocks.of."""
    return Blocks.of(packed, tiles(head_dim)[:2], sequences)


@triton.jit
def _row(blocks, H):
    """This program's head, and its row of the table; heads of a block are side by side."""
    row = blocks + tl.program_id(0) // H * 6
    return (tl.program_id(0) % H, tl.load(row), tl.load(row + 1), tl.load(row + 2), tl.load(row + 3),
            tl.load(row + 4), tl.load(row + 5))


@triton.jit
def _load(x, head, token, stop, width, D: tl.constexpr, ROUND: tl.constexpr, MANY: tl.constexpr):
    """A head [MANY, ROUND] of the tokens from this one on, of `width` numbers each; 0 from `stop` on."""
    i, d = tl.arange(0, MANY)[:, None], tl.arange(0, ROUND)[None, :]
    here = x + tl.cast(token, tl.int64) * width + head * D
    return tl.load(here + i * width + d, (token + i < stop) & (d < D), 0.0)


@triton.jit
def _store(x, value, head, token, stop, width, D: tl.constexpr, ROUND: tl.constexpr, MANY: tl.constexpr):
    i, d = tl.arange(0, MANY)[:, None], tl.arange(0, ROUND)[None, :]
    here = x + tl.cast(token, tl.int64) * width + head * D
    tl.store(here + i * width + d, value, (token + i < stop) & (d < D))


@triton.jit
def _reach(first, start, stop, prefix_start, prefix_stop, window, QUERIES: tl.constexpr, KEYS: tl.constexpr,
           WINDOW: tl.constexpr):
    """What a block of queries looks at, as one stretch: the prefix, filled up to a multiple of KEYS, then its
    own sequence. -> where that begins, where it goes on within the stretch, and where it ends."""
    prefix = prefix_stop - prefix_start
    own = tl.cdiv(prefix, KEYS) * KEYS
    begin = 0
    if WINDOW:
        position = tl.maximum(prefix + first - start - window + 1, 0)
        begin = tl.where(position < prefix, position, position - prefix + own) // KEYS * KEYS
    return begin, own, own + tl.minimum(first + QUERIES, stop) - start


@triton.jit
def _seen(query, stop, token, limit, positions, window, KEYS: tl.constexpr, WINDOW: tl.constexpr):
    """[queries, KEYS]: whether a query sees a key. A prefix stands before those who share it; what lies
    beyond the limit counts as behind them."""
    key = token + tl.arange(0, KEYS)
    seen = tl.where(key < limit, key, BEHIND)[None, :] <= query[:, None]
    if WINDOW:
        ahead = (tl.load(positions + query, query < stop, 0)[:, None]
                 - tl.load(positions + key, key < limit, 0)[None, :])
        seen &= ahead < window
    return seen


@triton.jit(do_not_specialize=["N", "H", "rep"])
def _forward(q, k, v, y, sums, blocks, positions, N, H, rep, q_width, k_width, v_width, scale,
             window, D: tl.constexpr, ROUND: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
             WINDOW: tl.constexpr):
    head, first, start, stop, prefix_start, prefix_stop, _ = _row(blocks, H)
    if first >= stop:
        return
    query = first + tl.arange(0, QUERIES)
    mine = _load(q, head, first, stop, q_width, D, ROUND, QUERIES)
    top, total = tl.full((QUERIES,), LOWEST, tl.float32), tl.zeros((QUERIES,), tl.float32)
    answer = tl.zeros((QUERIES, ROUND), tl.float32)
    begin, own, end = _reach(first, start, stop, prefix_start, prefix_stop, window, QUERIES, KEYS, WINDOW)
    for at in range(begin, end, KEYS):
        token = at + tl.where(at < own, prefix_start, start - own)
        limit = tl.where(at < own, prefix_stop, stop)
        keys = _load(k, head // rep, token, limit, k_width, D, ROUND, KEYS)
        values = _load(v, head // rep, token, limit, v_width, D, ROUND, KEYS)
        seen = _seen(query, stop, token, limit, positions, window, KEYS, WINDOW)
        x = tl.where(seen, tl.dot(mine, tl.trans(keys), input_precision="ieee"), float("-inf"))
        higher = tl.maximum(top, tl.max(x, 1))
        p, fade = tl.exp2(x * scale - (higher * scale)[:, None]), tl.exp2((top - higher) * scale)
        answer = tl.dot(p.to(values.dtype), values, answer * fade[:, None], input_precision="ieee")
        total, top = total * fade + tl.sum(p, 1), higher
    total = tl.where(query < stop, total, 1.0)
    _store(y, answer / total[:, None], head, first, stop, H * D, D, ROUND, QUERIES)
    tl.store(sums + head.to(tl.int64) * N + query, top * scale + tl.log2(total), query < stop)


@triton.jit(do_not_specialize=["N", "H", "rep"])
def _back_q(q, k, v, y, dy, sums, pairs, dq, blocks, positions, N, H, rep, q_width, k_width, v_width, scale,
            window, D: tl.constexpr, ROUND: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
            WINDOW: tl.constexpr):
    """pairs: of each answer its sum, and it times what goes back to it; side by side, since _back_kv reads
    them so in fewer instructions."""
    head, first, start, stop, prefix_start, prefix_stop, _ = _row(blocks, H)
    if first >= stop:
        return
    query = first + tl.arange(0, QUERIES)
    mine = _load(q, head, first, stop, q_width, D, ROUND, QUERIES)
    by = _load(dy, head, first, stop, H * D, D, ROUND, QUERIES)
    answer = _load(y, head, first, stop, H * D, D, ROUND, QUERIES)
    dot = tl.sum(by.to(tl.float32) * answer.to(tl.float32), 1)
    row = head.to(tl.int64) * N + query
    total, slope = tl.load(sums + row, query < stop, 0.0), tl.zeros((QUERIES, ROUND), tl.float32)
    tl.store(pairs + row * 2, total, query < stop)
    tl.store(pairs + row * 2 + 1, dot, query < stop)
    begin, own, end = _reach(first, start, stop, prefix_start, prefix_stop, window, QUERIES, KEYS, WINDOW)
    for at in range(begin, end, KEYS):
        token = at + tl.where(at < own, prefix_start, start - own)
        limit = tl.where(at < own, prefix_stop, stop)
        keys = _load(k, head // rep, token, limit, k_width, D, ROUND, KEYS)
        values = _load(v, head // rep, token, limit, v_width, D, ROUND, KEYS)
        seen = _seen(query, stop, token, limit, positions, window, KEYS, WINDOW)
        x = tl.dot(mine, tl.trans(keys), input_precision="ieee") * scale
        p = tl.where(seen, tl.exp2(x - total[:, None]), 0.0)
        dx = p * (tl.dot(by, tl.trans(values), input_precision="ieee") - dot[:, None])
        slope = tl.dot(dx.to(keys.dtype), keys, slope, input_precision="ieee")
    _store(dq, slope * (scale * LN_2), head, first, stop, H * D, D, ROUND, QUERIES)


@triton.jit(do_not_specialize=["N", "H", "rep"])
def _back_kv(q, k, v, dy, pairs, dk, dv, blocks, positions, N, H, rep, q_width, k_width, v_width, scale,
             window, D: tl.constexpr, ROUND: tl.constexpr, KEYS: tl.constexpr, QUERIES: tl.constexpr,
             WINDOW: tl.constexpr):
    """Queries that fill up a last block are 0 and give nothing back; so are their answers' slopes."""
    head, first, _, stop, _, _, last = _row(blocks, H)
    if first >= stop:
        return
    key, i = first + tl.arange(0, KEYS), tl.arange(0, QUERIES)
    keys = _load(k, head // rep, first, stop, k_width, D, ROUND, KEYS)
    values = _load(v, head // rep, first, stop, v_width, D, ROUND, KEYS)
    k_slope, v_slope = tl.zeros((KEYS, ROUND), tl.float32), tl.zeros((KEYS, ROUND), tl.float32)
    pairs += head.to(tl.int64) * N * 2
    pair = i[:, None] * 2 + tl.arange(0, 2)[None, :]
    if WINDOW:
        here = tl.load(positions + key, key < stop, 0)
        last = tl.where(last > stop, last, tl.minimum(stop, first + KEYS + window - 1))
    for token in range(first, last, QUERIES):
        real = i < last - token
        theirs = _load(q, head, token, last, q_width, D, ROUND, QUERIES)
        by = _load(dy, head, token, last, H * D, D, ROUND, QUERIES)
        total, dot = tl.split(tl.load(pairs + token * 2 + pair, real[:, None], 0.0))
        seen = key[:, None] - token <= i[None, :]
        if WINDOW:
            seen &= tl.load(positions + token + i, real, 0)[None, :] - here[:, None] < window
        x = tl.dot(keys, tl.trans(theirs), input_precision="ieee") * scale
        p = tl.where(seen, tl.exp2(x - total[None, :]), 0.0)
        v_slope = tl.dot(p.to(by.dtype), by, v_slope, input_precision="ieee")
        dx = p * (tl.dot(values, tl.trans(by), input_precision="ieee") - dot[None, :])
        k_slope = tl.dot(dx.to(theirs.dtype), theirs, k_slope, input_precision="ieee")
    _store(dk, k_slope * (scale * LN_2), head, first, stop, H * D, D, ROUND, KEYS)
    _store(dv, v_slope, head, first, stop, H * D, D, ROUND, KEYS)


def arguments(q: Tensor, k: Tensor, v: Tensor, laid: Blocks, window: int | None) -> tuple[tuple, dict]:
    """What all three kernels are told."""
    N, H, D = q.shape
    plain = (laid.positions, N, H, H // k.shape[1], q.stride(0), k.stride(0), v.stride(0),
             math.log2(math.e) / D**0.5, window or 0)
    return plain, {"D": D, "ROUND": max(16, triton.next_power_of_2(D)), "WINDOW": window is not None}


def attend(q: Tensor, k: Tensor, v: Tensor, laid: Blocks, window: int | None) -> tuple[Tensor, Tensor]:
    """q [N, H, D], k and v [N, fewer H, D] -> the answers [N, H, D], and the logarithm of each sum of
    exponentials [H, N]."""
    (plain, constants), own = arguments(q, k, v, laid, window), tiles(q.shape[2])
    y, sums = q.new_empty(q.shape), q.new_empty(q.shape[1], len(q), dtype=torch.float32)
    keys, warps, stages = own.forward
    _forward[(len(laid.queries) * q.shape[1],)](q, k, v, y, sums, laid.queries, *plain, **constants,
                                                QUERIES=own.queries, KEYS=keys, num_warps=warps,
                                                num_stages=stages)
    return y, sums


def attend_back(dy: Tensor, q: Tensor, k: Tensor, v: Tensor, y: Tensor, sums: Tensor, laid: Blocks,
                window: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v, [N, H, D] each: those of k and v are to be summed over the heads that
    share one."""
    dy = dy.contiguous()
    dq, pairs = back_q(dy, q, k, v, y, sums, laid, window)
    return dq, *back_kv(dy, q, k, v, pairs, laid, window)


def back_q(dy: Tensor, q: Tensor, k: Tensor, v: Tensor, y: Tensor, sums: Tensor, laid: Blocks,
           window: int | None) -> tuple[Tensor, Tensor]:
    """The gradient of q, and the pairs that back_kv needs, [H, N, 2]."""
    (plain, constants), own = arguments(q, k, v, laid, window), tiles(q.shape[2])
    dq, pairs = torch.empty_like(y), sums.new_empty(*sums.shape, 2)
    keys, warps, stages = own.back_q
    _back_q[(len(laid.queries) * q.shape[1],)](q, k, v, y, dy, sums, pairs, dq, laid.queries, *plain,
                                               **constants, QUERIES=own.queries, KEYS=keys, num_warps=warps,
                                               num_stages=stages)
    return dq, pairs


def back_kv(dy: Tensor, q: Tensor, k: Tensor, v: Tensor, pairs: Tensor, laid: Blocks,
            window: int | None) -> tuple[Tensor, Tensor]:
    (plain, constants), own = arguments(q, k, v, laid, window), tiles(q.shape[2])
    dk, dv = torch.empty_like(dy), torch.empty_like(dy)
    queries, warps, stages = own.back_kv
    _back_kv[(len(laid.keys) * q.shape[1],)](q, k, v, dy, pairs, dk, dv, laid.keys, *plain, **constants,
                                             KEYS=own.keys, QUERIES=queries, num_warps=warps,
                                             num_stages=stages)
    return dk, dv


class _Attended(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, window, *blocks):
        y, sums = attend(q, k, v, Blocks(*blocks), window)
        ctx.save_for_backward(q, k, v, y, sums, *blocks)
        ctx.window = window
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        q, k, v, y, sums, *blocks = ctx.saved_tensors
        dq, dk, dv = attend_back(dy, q, k, v, y, sums, Blocks(*blocks), ctx.window)
        dk, dv = (x.unflatten(1, (k.shape[1], -1)).sum(2) for x in (dk, dv))
        return dq, dk, dv, *[None] * (1 + len(blocks))


def attended(q: Tensor, k: Tensor, v: Tensor, laid: Blocks, window: int | None) -> Tensor:
    return _Attended.apply(*(by_rows(x) for x in (q, k, v)), window, *laid)

"""Triton kernels of a layer in training on a GPU.

Not compiled: flash attention, with kernels that gather the keys which sequences share and sum their
gradients. Needs no compilation first.

Compiled: block attention over packed sequences that share prompts. The samples of a group attend to their
prompt's keys in place, and gradients are summed in place.
    _forward   a block of queries attends to its prefix and its own sequence, by the online softmax
    _back_q    the same loop: the gradient of the queries
    _back_kv   a block of keys, and every query that attends to it: those of its own sequence, and of the
               sequences after it that have it as their prefix; these are contiguous, so it is one loop
Exponents are of 2. Every sum has a fixed order. Gradients of keys and values are per query head; the caller
sums the heads that share a key.

Compiled, with q, k, v in one matrix and gate, up in another (DecoderLayer.fused): rotation and SwiGLU of the
fused product, forward and backward, in one pass each.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from postgrad.maths.packing import AttentionLayout, Packed
from postgrad.models.blocks import Blocks
from postgrad.models.kernels.gpu_decode import swiglu_joined

COLUMNS = 256  # numbers of a token's keys that one program moves
AT_ONCE = 4  # places of which it does so at once


@triton.jit
def _take(k, v, keys, k_out, v_out, K, C, k_row, v_row, D: tl.constexpr, TIMES: tl.constexpr,
          BLOCK: tl.constexpr, AT_ONCE: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * AT_ONCE + tl.arange(0, AT_ONCE)
    i = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    token = tl.load(keys + place, place < K, 0).to(tl.int64)[:, None]
    inside = (place < K)[:, None] & (i < C)
    key, value = tl.load(k + token * k_row + i, inside), tl.load(v + token * v_row + i, inside)
    to = place[:, None] * C * TIMES + i // D * D * TIMES + i % D
    for time in tl.static_range(TIMES):
        tl.store(k_out + to + time * D, key, inside)
        tl.store(v_out + to + time * D, value, inside)


@triton.jit
def _give_back(dk, dv, places, places_to, k_out, v_out, C, k_row, v_row, D: tl.constexpr,
               TIMES: tl.constexpr, BLOCK: tl.constexpr, AT_ONCE: tl.constexpr):
    token, i = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside, several, source = i < C, tl.arange(0, AT_ONCE), i // D * D * TIMES + i % D
    last = tl.load(places_to + token + 1)
    k_sum, v_sum = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for first in range(tl.load(places_to + token), last, AT_ONCE):
        real = first + several < last
        place = tl.load(places + first + several, real, 0).to(tl.int64)[:, None]
        there = real[:, None] & inside[None, :]
        for time in tl.static_range(TIMES):
            at = source[None, :] + time * D
            k_sum += tl.sum(tl.load(dk + place * k_row + at, there, 0.0).to(tl.float32), 0)
            v_sum += tl.sum(tl.load(dv + place * v_row + at, there, 0.0).to(tl.float32), 0)
    tl.store(k_out + token * C + i, k_sum, inside)
    tl.store(v_out + token * C + i, v_sum, inside)


# [N, KV, D] -> [K, KV times, D]
def gather_keys(k: Tensor, v: Tensor, keys: Tensor, times: int = 1) -> list[Tensor]:
    """k[keys] and v[keys], each head so many times."""
    k, v = by_rows(k), by_rows(v)
    _, KV, D = k.shape
    out = [x.new_empty(len(keys), KV * times, D) for x in (k, v)]
    block = min(COLUMNS, triton.next_power_of_2(KV * D))
    _take[(triton.cdiv(len(keys), AT_ONCE), triton.cdiv(KV * D, block))](
        k, v, keys, *out, len(keys), KV * D, k.stride(0), v.stride(0), D=D, TIMES=times, BLOCK=block,
        AT_ONCE=AT_ONCE, num_warps=1)
    return out


def sum_key_gradients(dk: Tensor, dv: Tensor, laid: AttentionLayout, tokens: int, times: int) -> list[Tensor]:
    """The gradients of what was taken, [K, KV times, D] -> [N, KV, D].

    One program finds all places of a token in the table, sums what comes back from them and from all times
    of a head in float32, in one order, and writes the sum once.
    `index_add_`, which this stands for, fills the gradient with zeros first and then adds place by place, by
    atomics: the samples of a group meet at each token of their prompt, each partial sum is rounded to bf16,
    and the order is another each time.
    """
    dk, dv = by_rows(dk), by_rows(dv)
    _, H, D = dk.shape
    C = H // times * D
    out = [x.new_empty(tokens, H // times, D) for x in (dk, dv)]
    block = min(COLUMNS, triton.next_power_of_2(C))
    _give_back[(tokens, triton.cdiv(C, block))](
        dk, dv, laid.places, laid.places_to, *out, C, dk.stride(0), dv.stride(0), D=D, TIMES=times,
        BLOCK=block, AT_ONCE=AT_ONCE, num_warps=1)
    return out


def by_rows(x: Tensor) -> Tensor:  # [N, heads, head_dim]
    """With the numbers of a token side by side."""
    return x if x.stride(2) == 1 and x.stride(1) == x.shape[2] else x.contiguous()


def flash(q: Tensor, k: Tensor, v: Tensor, laid: AttentionLayout, window: int) -> tuple[Tensor, Tensor]:
    """-> the answers [N, H, D], and the log of each sum of exponentials. window: keys to the left; -1:
    all."""
    found = torch.ops.aten._flash_attention_forward(
        q, k, v, laid.queries_to, laid.keys_to, laid.longest, laid.seen, 0.0, window < 0, False,
        window_size_left=window, window_size_right=0)
    return found[0], found[1]


def flash_back(dy: Tensor, q: Tensor, k: Tensor, v: Tensor, y: Tensor, sums: Tensor, laid: AttentionLayout,
               window: int) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v."""
    chance = torch.empty(2, dtype=torch.uint64, device=q.device)  # nothing is dropped
    return torch.ops.aten._flash_attention_backward(
        dy, q, k, v, y, sums, laid.queries_to, laid.keys_to, laid.longest, laid.seen, 0.0, window < 0, chance,
        chance.new_empty(0), window_size_left=window, window_size_right=0)


class _FlashAttention(torch.autograd.Function):
    """What is kept are the keys and values as they came; those that sequences share are taken once more in
    the backward pass, there with a key for each query's head: flash attention would otherwise make room for
    as many gradients itself, and sum them by a slower kernel."""

    @staticmethod
    def forward(ctx, q, k, v, window, longest, seen, *tensors):
        laid = AttentionLayout(*tensors, longest, seen)
        y, sums = flash(q, *((k, v) if laid.keys is None else gather_keys(k, v, laid.keys)), laid, window)
        ctx.save_for_backward(q, k, v, y, sums, *tensors)
        ctx.sizes = window, longest, seen
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        q, k, v, y, sums, *tensors = ctx.saved_tensors
        window, longest, seen = ctx.sizes
        laid, times = AttentionLayout(*tensors, longest, seen), q.shape[1] // k.shape[1]
        if laid.keys is None:
            dq, dk, dv = flash_back(dy, q, k, v, y, sums, laid, window)
        else:
            dq, dk, dv = flash_back(dy, q, *gather_keys(k, v, laid.keys, times), y, sums, laid, window)
            dk, dv = sum_key_gradients(dk, dv, laid, len(k), times)
        return dq, dk, dv, *[None] * (3 + len(tensors))


def flash_attention(q: Tensor, k: Tensor, v: Tensor, laid: AttentionLayout, window: int | None) -> Tensor:
    *tensors, longest, seen = laid
    return _FlashAttention.apply(q, k, v, -1 if window is None else window - 1, longest, seen, *tensors)


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


def block_layout(packed: Packed, head_dim: int, sequences: int = 0) -> Blocks:
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


def block_arguments(q: Tensor, k: Tensor, v: Tensor, laid: Blocks, window: int | None) -> tuple[tuple, dict]:
    """What all three kernels are told."""
    N, H, D = q.shape
    plain = (laid.positions, N, H, H // k.shape[1], q.stride(0), k.stride(0), v.stride(0),
             math.log2(math.e) / D**0.5, window or 0)
    return plain, {"D": D, "ROUND": max(16, triton.next_power_of_2(D)), "WINDOW": window is not None}


def block_forward(q: Tensor, k: Tensor, v: Tensor, laid: Blocks, window: int | None) -> tuple[Tensor, Tensor]:
    """q [N, H, D], k and v [N, fewer H, D] -> the answers [N, H, D], and the logarithm of each sum of
    exponentials [H, N]."""
    (plain, constants), own = block_arguments(q, k, v, laid, window), tiles(q.shape[2])
    y, sums = q.new_empty(q.shape), q.new_empty(q.shape[1], len(q), dtype=torch.float32)
    keys, warps, stages = own.forward
    _forward[(len(laid.queries) * q.shape[1],)](q, k, v, y, sums, laid.queries, *plain, **constants,
                                                QUERIES=own.queries, KEYS=keys, num_warps=warps,
                                                num_stages=stages)
    return y, sums


def block_backward(dy: Tensor, q: Tensor, k: Tensor, v: Tensor, y: Tensor, sums: Tensor, laid: Blocks,
                window: int | None) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v, [N, H, D] each: those of k and v are to be summed over the heads that
    share one."""
    dy = dy.contiguous()
    dq, pairs = back_q(dy, q, k, v, y, sums, laid, window)
    return dq, *back_kv(dy, q, k, v, pairs, laid, window)


def back_q(dy: Tensor, q: Tensor, k: Tensor, v: Tensor, y: Tensor, sums: Tensor, laid: Blocks,
           window: int | None) -> tuple[Tensor, Tensor]:
    """The gradient of q, and the pairs that back_kv needs, [H, N, 2]."""
    (plain, constants), own = block_arguments(q, k, v, laid, window), tiles(q.shape[2])
    dq, pairs = torch.empty_like(y), sums.new_empty(*sums.shape, 2)
    keys, warps, stages = own.back_q
    _back_q[(len(laid.queries) * q.shape[1],)](q, k, v, y, dy, sums, pairs, dq, laid.queries, *plain,
                                               **constants, QUERIES=own.queries, KEYS=keys, num_warps=warps,
                                               num_stages=stages)
    return dq, pairs


def back_kv(dy: Tensor, q: Tensor, k: Tensor, v: Tensor, pairs: Tensor, laid: Blocks,
            window: int | None) -> tuple[Tensor, Tensor]:
    (plain, constants), own = block_arguments(q, k, v, laid, window), tiles(q.shape[2])
    dk, dv = torch.empty_like(dy), torch.empty_like(dy)
    queries, warps, stages = own.back_kv
    _back_kv[(len(laid.keys) * q.shape[1],)](q, k, v, dy, pairs, dk, dv, laid.keys, *plain, **constants,
                                             KEYS=own.keys, QUERIES=queries, num_warps=warps,
                                             num_stages=stages)
    return dk, dv


class _BlockAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, window, *blocks):
        y, sums = block_forward(q, k, v, Blocks(*blocks), window)
        ctx.save_for_backward(q, k, v, y, sums, *blocks)
        ctx.window = window
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        q, k, v, y, sums, *blocks = ctx.saved_tensors
        dq, dk, dv = block_backward(dy, q, k, v, y, sums, Blocks(*blocks), ctx.window)
        dk, dv = (x.unflatten(1, (k.shape[1], -1)).sum(2) for x in (dk, dv))
        return dq, dk, dv, *[None] * (1 + len(blocks))


def block_attention(q: Tensor, k: Tensor, v: Tensor, laid: Blocks, window: int | None) -> Tensor:
    return _BlockAttention.apply(*(by_rows(x) for x in (q, k, v)), window, *laid)


GATE_BLOCK = 1024  # gates that one program is for


@triton.jit
def _turn(qkv, q, k, v, cos, sin, H, KV, HALF: tl.constexpr, WIDE: tl.constexpr, HEADS: tl.constexpr,
          TIMES: tl.constexpr, BACK: tl.constexpr):
    """One token's heads: queries and keys are rotated, (a, b) -> (a cos - b sin, b cos + a sin), values
    copied; BACK: the other way, gradients from q, k and v to qkv, of each key and value the sum of TIMES."""
    token = tl.program_id(0).to(tl.int64)
    head, i = tl.arange(0, HEADS)[:, None], tl.arange(0, WIDE)[None, :]
    c = tl.load(cos + token * HALF + i, i < HALF, 0.0).to(tl.float32)
    s = tl.load(sin + token * HALF + i, i < HALF, 0.0).to(tl.float32)
    c, s = tl.where(head < H + KV, c, 1.0), tl.where(head < H + KV, s, 0.0)
    joined = qkv + token * (H + 2 * KV) * 2 * HALF + head * 2 * HALF + i
    to_q = q + token * H * 2 * HALF + head * 2 * HALF + i
    to_k = k + token * KV * TIMES * 2 * HALF + (head - H) * TIMES * 2 * HALF + i
    to_v = v + token * KV * TIMES * 2 * HALF + (head - H - KV) * TIMES * 2 * HALF + i
    is_q, is_k = (head < H) & (i < HALF), (head >= H) & (head < H + KV) & (i < HALF)
    is_v = (head >= H + KV) & (head < H + 2 * KV) & (i < HALF)
    if BACK:
        a, b = tl.load(to_q, is_q, 0.0).to(tl.float32), tl.load(to_q + HALF, is_q, 0.0).to(tl.float32)
        for time in tl.static_range(TIMES):
            first, second = time * 2 * HALF, time * 2 * HALF + HALF
            a += (tl.load(to_k + first, is_k, 0.0) + tl.load(to_v + first, is_v, 0.0)).to(tl.float32)
            b += (tl.load(to_k + second, is_k, 0.0) + tl.load(to_v + second, is_v, 0.0)).to(tl.float32)
        inside = (head < H + 2 * KV) & (i < HALF)
        tl.store(joined, a * c + b * s, inside)
        tl.store(joined + HALF, b * c - a * s, inside)
    else:
        inside = (head < H + 2 * KV) & (i < HALF)
        a, b = tl.load(joined, inside, 0.0).to(tl.float32), tl.load(joined + HALF, inside, 0.0).to(tl.float32)
        first, second = a * c - b * s, b * c + a * s
        tl.store(to_q, first, is_q)
        tl.store(to_q + HALF, second, is_q)
        tl.store(to_k, first, is_k)
        tl.store(to_k + HALF, second, is_k)
        tl.store(to_v, first, is_v)
        tl.store(to_v + HALF, second, is_v)


def launch_rotate(qkv: Tensor, parts: tuple[Tensor, Tensor, Tensor], cos: Tensor, sin: Tensor, kv: int,
         back: bool) -> None:
    """Between qkv [N, (H + 2 kv) D] and its parts [N, H, D], [N, kv, D] twice; back: of k and v there may be
    H heads too, to be summed."""
    q, k, v = parts
    N, H, D = q.shape
    _turn[(N,)](qkv, q, k, v, cos, sin, H, kv, HALF=D // 2, WIDE=triton.next_power_of_2(D // 2),
                HEADS=triton.next_power_of_2(H + 2 * kv), TIMES=k.shape[1] // kv, BACK=back, num_warps=4)


def rotate_qkv(qkv: Tensor, cos: Tensor, sin: Tensor, H: int, D: int) -> tuple[Tensor, Tensor, Tensor]:
    """A product [N, (H + 2 KV) D] -> queries, keys and values, the first two at their positions; without
    gradients."""
    N, KV = len(qkv), (qkv.shape[1] // D - H) // 2
    q, k, v = (qkv.new_empty(N, heads, D) for heads in (H, KV, KV))
    launch_rotate(qkv, (q, k, v), cos.contiguous(), sin.contiguous(), KV, back=False)
    return q, k, v


class _AttendQKV(torch.autograd.Function):
    """The heads that share a key are summed where what goes back to it is turned."""

    @staticmethod
    def forward(ctx, qkv, cos, sin, H, D, window, *blocks):
        parts = rotate_qkv(qkv, cos, sin, H, D)
        y, sums = block_forward(*parts, Blocks(*blocks), window)
        ctx.save_for_backward(cos, sin, *parts, y, sums, *blocks)
        ctx.window = window
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        cos, sin, q, k, v, y, sums, *blocks = ctx.saved_tensors
        parts = block_backward(dy, q, k, v, y, sums, Blocks(*blocks), ctx.window)
        out = dy.new_empty(len(q), q[0].numel() + 2 * k[0].numel())
        launch_rotate(out, parts, cos, sin, k.shape[1], back=True)
        return out, *[None] * (5 + len(blocks))


def attend_qkv(qkv: Tensor, cos: Tensor, sin: Tensor, laid: Blocks, heads: int, head_dim: int,
           window: int | None = None) -> Tensor:
    """A product as `turned` takes it -> the answers [N, H, D] of attention."""
    return _AttendQKV.apply(qkv, cos.contiguous(), sin.contiguous(), heads, head_dim, window, *laid)


@triton.jit
def _gate_back(ab, dy, dab, y, F, BLOCK: tl.constexpr):
    row, i = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = i < F
    a = tl.load(ab + row * 2 * F + i, inside, 0.0).to(tl.float32)
    b = tl.load(ab + row * 2 * F + F + i, inside, 0.0).to(tl.float32)
    by = tl.load(dy + row * F + i, inside, 0.0).to(tl.float32)
    share = tl.sigmoid(a)
    gate = a * share
    tl.store(y + row * F + i, gate * b, inside)
    tl.store(dab + row * 2 * F + i, by * b * (share + gate * (1.0 - share)), inside)
    tl.store(dab + row * 2 * F + F + i, by * gate, inside)


class _AddGated(torch.autograd.Function):
    """The gated product is not kept, but made once more on the way back, where what it is made of is read
    anyway."""

    @staticmethod
    def forward(ctx, x, ab, weight):
        ctx.save_for_backward(ab, weight)
        return torch.addmm(x, swiglu_joined(ab), weight.T)

    @staticmethod
    @once_differentiable
    def backward(ctx, dx):
        ab, weight = ctx.saved_tensors
        dy, (N, F) = dx @ weight, (len(ab), ab.shape[1] // 2)
        dab, y = torch.empty_like(ab), torch.empty_like(dy)
        _gate_back[(N, triton.cdiv(F, GATE_BLOCK))](ab, dy, dab, y, F, BLOCK=GATE_BLOCK)
        return dx, dab, dx.T @ y if ctx.needs_input_grad[2] else None


def add_gated(x: Tensor, ab: Tensor, weight: Tensor) -> Tensor:  # [N, D], [N, 2F], [D, F] -> [N, D]
    """x and what the MLP adds to it: ab are the products by gate and up. Without gradients x itself is added
    to."""
    if not torch.is_grad_enabled():
        return x.addmm_(swiglu_joined(ab), weight.T)
    return _AddGated.apply(x, ab, weight)

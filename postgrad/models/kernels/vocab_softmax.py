"""Triton kernels of the log-softmax over the vocabulary in training; maths/logprob.py has the equations.

In 16 bits the logits [N, V] are never materialised:
    forward   per tile of logits: the row maximum, sum e^x and sum x e^x, with x relative to that maximum;
              then a reduction over tiles
    backward  the same tile again, and from it the gradient of its logits
Products of 16 bits are summed in float32. In float32 the logits are materialised and read once per pass.
"""

from __future__ import annotations

from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from postgrad.maths.logprob import Softmax, product

# rows, logits and numbers of a state that a program has at once; its warps and stages
TILE = 128, 256, 64, 8, 3
SMALL_TILE = 128, 128, 32, 4, 4  # where a multiprocessor has not the memory for that
ROOM = 150_000  # bytes of it
JOIN_ROWS, JOIN_TILES = 32, 32  # that a program joins at once

# below it an exponential is 0 in float32; cut there, logits of -inf have no part in any sum
FLOOR = tl.constexpr(-200.0)


@triton.jit
def _tile(states, head, row, column, K, EVEN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
          DEEP: tl.constexpr):
    """Logits [ROWS, COLUMNS]."""
    k, total = tl.arange(0, DEEP), tl.zeros((ROWS, COLUMNS), tl.float32)
    left = states + row.to(tl.int64)[:, None] * K + k[None, :]
    right = head + column.to(tl.int64)[None, :] * K + k[:, None]
    for first in range(0, K, DEEP):
        if EVEN:
            a, b = tl.load(left + first), tl.load(right + first)
        else:
            a = tl.load(left + first, (first + k < K)[None, :], 0.0)
            b = tl.load(right + first, (first + k < K)[:, None], 0.0)
        total = tl.dot(a, b, total, input_precision="ieee")
    return total


@triton.jit
def _read_tiles(states, head, tops, weights, moments, N, V, K, EVEN: tl.constexpr, ROWS: tl.constexpr,
          COLUMNS: tl.constexpr, DEEP: tl.constexpr):
    tiles = tl.cdiv(N, ROWS)
    tile = tl.program_id(0) // tiles
    row = tl.program_id(0) % tiles * ROWS + tl.arange(0, ROWS)
    column = tile * COLUMNS + tl.arange(0, COLUMNS)
    x = _tile(states, head, tl.minimum(row, N - 1), tl.minimum(column, V - 1), K, EVEN, ROWS, COLUMNS, DEEP)
    x = tl.where((column < V)[None, :], x, float("-inf"))
    top = tl.maximum(tl.max(x, 1), -1e30)
    x -= top[:, None]
    x = tl.where(x < FLOOR, FLOOR, x)  # a NaN stays one
    share = tl.exp(x)
    at = tile.to(tl.int64) * N + row
    tl.store(tops + at, top, row < N)
    tl.store(weights + at, tl.sum(share, 1), row < N)
    tl.store(moments + at, tl.sum(share * x, 1), row < N)


@triton.jit
def _join_tiles(states, head, tokens, tops, weights, moments, total, logp, entropy, N, K, tiles,
          ROWS: tl.constexpr, TILES: tl.constexpr, DEEP: tl.constexpr):
    row, k = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, DEEP)
    real = row < N
    largest, weight, moment = (tl.full((ROWS,), -1e30, tl.float32), tl.zeros((ROWS,), tl.float32),
                               tl.zeros((ROWS,), tl.float32))
    for first in range(0, tiles, TILES):
        tile = first + tl.arange(0, TILES)[:, None]
        there, at = (tile < tiles) & real[None, :], tile.to(tl.int64) * N + row[None, :]
        top = tl.load(tops + at, there, -1e30)
        higher = tl.maximum(largest, tl.max(top, 0))
        fall, x = largest - higher, top - higher[None, :]
        w, m, scale = tl.load(weights + at, there, 0.0), tl.load(moments + at, there, 0.0), tl.exp(fall)
        share = tl.exp(x)
        moment = (moment + weight * fall) * scale + tl.sum((m + w * tl.where(x < FLOOR, FLOOR, x)) * share, 0)
        weight = weight * scale + tl.sum(w * share, 0)
        largest = higher
    chosen, token = tl.zeros((ROWS,), tl.float32), tl.load(tokens + row, real, 0).to(tl.int64)
    for first in range(0, K, DEEP):
        inside = real[:, None] & (first + k < K)[None, :]
        a = tl.load(states + row.to(tl.int64)[:, None] * K + first + k[None, :], inside, 0.0)
        b = tl.load(head + token[:, None] * K + first + k[None, :], inside, 0.0)
        chosen += tl.sum(a.to(tl.float32) * b.to(tl.float32), 1)
    log = tl.log(weight)
    tl.store(total + row, largest + log, real)
    tl.store(logp + row, chosen - largest - log, real)
    tl.store(entropy + row, log - moment / weight, real)


@triton.jit
def _slope_tiles(states, head, tokens, total, by_logp, entropy, by_entropy, out, N, V, K, BOTH: tl.constexpr,
           EVEN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEEP: tl.constexpr):
    tiles = tl.cdiv(N, ROWS)
    row = tl.program_id(0) % tiles * ROWS + tl.arange(0, ROWS)
    column = tl.program_id(0) // tiles * COLUMNS + tl.arange(0, COLUMNS)
    mine = tl.minimum(row, N - 1)
    x = _tile(states, head, mine, tl.minimum(column, V - 1), K, EVEN, ROWS, COLUMNS, DEEP)
    x -= tl.load(total + mine)[:, None]
    x = tl.where(x < FLOOR, FLOOR, x)
    p, by = tl.exp(x), tl.load(by_logp + mine)[:, None]
    slope = tl.where(column[None, :] == tl.load(tokens + mine)[:, None], by, 0.0) - p * by
    if BOTH:
        slope -= p * (tl.load(by_entropy + mine)[:, None] * (x + tl.load(entropy + mine)[:, None]))
    inside = (row < N)[:, None] & (column < V)[None, :]
    tl.store(out + row.to(tl.int64)[:, None] * V + column[None, :], slope, inside)


def tile_on(device: torch.device) -> tuple[int, int, int, int, int]:
    return TILE if device.type != "cuda" or shared_memory(device) >= ROOM else SMALL_TILE


@cache
def shared_memory(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).shared_memory_per_multiprocessor


def tile_shape(states: Tensor) -> dict:
    """How a tile is computed."""
    rows, columns, deep, warps, stages = tile_on(states.device)
    return {"EVEN": states.shape[1] % deep == 0, "ROWS": rows, "COLUMNS": columns, "DEEP": deep,
            "num_warps": warps, "num_stages": stages}


def read_tiles(states: Tensor, head: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """-> total, logp, entropy [N]. The entropy is summed from differences to the largest logit, so large
    ones take nothing from it."""
    (N, K), V, (rows, columns, deep, *_) = states.shape, len(head), tile_on(states.device)
    states, head, many = states.contiguous(), head.contiguous(), triton.cdiv(V, columns)
    parts = [torch.empty(many, N, device=states.device) for _ in range(3)]
    found = tuple(torch.empty(N, device=states.device) for _ in range(3))
    if N:
        _read_tiles[(triton.cdiv(N, rows) * many,)](states, head, *parts, N, V, K, **tile_shape(states))
        _join_tiles[(triton.cdiv(N, JOIN_ROWS),)](states, head, tokens, *parts, *found, N, K, many,
                                                  ROWS=JOIN_ROWS, TILES=JOIN_TILES, DEEP=deep)
    return found[0], found[1], found[2]


def slope_tiles(states: Tensor, head: Tensor, tokens: Tensor, total: Tensor, by_logp: Tensor, entropy: Tensor,
          by_entropy: Tensor | None) -> Tensor:  # -> [N, V], in the states' type
    (N, K), V, (rows, columns, *_) = states.shape, len(head), tile_on(states.device)
    states, head, by_logp = states.contiguous(), head.contiguous(), by_logp.contiguous()
    out, both = states.new_empty(N, V), by_entropy is not None
    if N:
        _slope_tiles[(triton.cdiv(N, rows) * triton.cdiv(V, columns),)](
            states, head, tokens, total, by_logp, entropy, by_entropy.contiguous() if both else entropy, out,
            N, V, K, BOTH=both, **tile_shape(states))
    return out


# logits of a row that one program reads at once, and of how many blocks it has asked for ahead
READ_BLOCK, READ_WARPS, READ_STAGES = 2048, 4, 3
SLOPE_BLOCK, SLOPE_WARPS = 2048, 4  # logits that one program is for



@triton.jit
def _read_logits(logits, tokens, total, logp, entropy, V, stride, BLOCK: tl.constexpr,
          STAGES: tl.constexpr):
    row, i = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    logits += row * stride
    largest = tl.full([], -1e30, tl.float32)
    # of each column of blocks: the sum of e^x and of x e^x, with x the logit less the largest so far
    weight, moment = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for first in tl.range(0, V, BLOCK, num_stages=STAGES):
        x = tl.load(logits + first + i, first + i < V, float("-inf"))
        higher = tl.maximum(largest, tl.max(x, 0))
        fall = largest - higher
        x = tl.where(x - higher < FLOOR, FLOOR, x - higher)  # a NaN stays one
        share, scale = tl.exp(x), tl.exp(fall)
        moment = (moment + weight * fall) * scale + share * x
        weight = weight * scale + share
        largest = higher
    whole = tl.sum(weight, 0)
    log = tl.log(whole)
    tl.store(total + row, largest + log)
    tl.store(logp + row, tl.load(logits + tl.load(tokens + row)) - largest - log)
    tl.store(entropy + row, log - tl.sum(moment, 0) / whole)


@triton.jit
def _slope_logits(logits, tokens, total, by_logp, entropy, by_entropy, out, V, stride, BOTH: tl.constexpr,
           BLOCK: tl.constexpr):
    row, i = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = i < V
    logp = tl.load(logits + row * stride + i, inside, 0.0) - tl.load(total + row)
    logp = tl.where(logp < FLOOR, FLOOR, logp)
    p, by = tl.exp(logp), tl.load(by_logp + row)
    slope = tl.where(i == tl.load(tokens + row), by, 0.0) - p * by
    if BOTH:
        slope -= p * (tl.load(by_entropy + row) * (logp + tl.load(entropy + row)))
    tl.store(out + row * V + i, slope, inside)


def read_logits(logits: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """In one pass: sums so far are scaled where a larger logit comes. The entropy is summed from differences
    to the largest, so large logits take nothing from it."""
    rows, V = logits.shape
    total, logp, entropy = (logits.new_empty(rows) for _ in range(3))
    if rows:
        _read_logits[(rows,)](logits, tokens, total, logp, entropy, V, logits.stride(0), BLOCK=READ_BLOCK,
                       STAGES=READ_STAGES, num_warps=READ_WARPS)
    return total, logp, entropy


def slope_logits(logits: Tensor, tokens: Tensor, total: Tensor, by_logp: Tensor, entropy: Tensor,
          by_entropy: Tensor | None, dtype: torch.dtype) -> Tensor:
    """In one pass, written in the type that is asked for."""
    (rows, V), out = logits.shape, torch.empty_like(logits, dtype=dtype)
    both = by_entropy is not None
    by_logp, by_entropy = by_logp.contiguous(), by_entropy.contiguous() if both else entropy
    if rows:
        _slope_logits[(rows, triton.cdiv(V, SLOPE_BLOCK))](
            logits, tokens, total, by_logp, entropy, by_entropy, out, V, logits.stride(0), BOTH=both,
            BLOCK=SLOPE_BLOCK, num_warps=SLOPE_WARPS)
    return out


def read_vocabulary(states: Tensor, head: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    if states.dtype == head.dtype == torch.bfloat16:
        return read_tiles(states, head, tokens)
    return read_logits(product(states, head.T), tokens)


def slope_vocabulary(states: Tensor, head: Tensor, tokens: Tensor, total: Tensor, by_logp: Tensor,
                    entropy: Tensor, by_entropy: Tensor | None) -> Tensor:
    if states.dtype == head.dtype == torch.bfloat16:
        return slope_tiles(states, head, tokens, total, by_logp, entropy, by_entropy)
    return slope_logits(product(states, head.T), tokens, total, by_logp, entropy, by_entropy, states.dtype)


SOFTMAX = Softmax(read_vocabulary, slope_vocabulary)

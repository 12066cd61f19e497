"""A step of sampling through all layers on a GPU, five kernels a layer, for the layers that they know:

    qkv = norm(x) W + b           _normed
    y = what its keys tell        _attend: rotates, keeps the new key and value, looks
    x += y W + b                  _added
    y = silu(norm(x) U) norm(x) V   _normed, gated
    x += y W                      _added

At a few hundred rows of a small model a kernel takes some microseconds, as long as it takes to start one, so
what counts is that there are few, and that each starts while the one before it ends (programmatic dependent
launch): every kernel waits for the one before it before it reads what that one wrote.

They know what Llama, Mistral, Qwen2 and Qwen3 have: a norm before each half, biases in the attention or none,
norms of each head's queries and keys, windows. Other layers, float32, and sizes at which cuBLAS's products
are worth more than few launches, go kernel by kernel (Engine.step).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

NEEDED = ("before_attention", "before_mlp", "qkv", "o", "gate_up", "down")  # by the short names of layer.py
OPTIONAL = ("qkv_bias", "o_bias", "q_norm", "k_norm")
WIDEST = 1024  # of the residual stream


class Tile(NamedTuple):
    """How a product is divided: rows, columns and depth of a program's part, its warps and its stages."""

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


TILES = {"qkv": Tile(64, 64, 64, 4, 4), "o": Tile(64, 32, 64, 4, 5), "gate_up": Tile(64, 64, 64, 4, 4),
         "down": Tile(64, 32, 128, 4, 4)}
LOOK = 32, 1, 2  # keys at a time, warps and stages of attention


@triton.jit
def _normed(x, norm, w, bias, out, M, N, D, eps, GATED: tl.constexpr, BIAS: tl.constexpr, EARLY: tl.constexpr,
            BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """[M, D] -> [M, N]: each row by its norm, times W [N, D]; gated: by two of them, one after the other. The
    sum of squares comes along with the product, which is scaled by it afterwards."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    d = tl.arange(0, BK)
    here, there = (m < M)[:, None], (n < N)[None, :]
    rows, columns = x + m[:, None] * D + d[None, :], w + n[None, :] * D + d[:, None]
    squares, acc = tl.zeros((BM,), tl.float32), tl.zeros((BM, BN), tl.float32)
    other = tl.zeros((BM, BN), tl.float32)
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()
    for start in range(0, D, BK):
        inside = start + d < D
        value = tl.load(rows + start, here & inside[None, :], 0.0)
        wide = value.to(tl.float32)
        squares += tl.sum(wide * wide, 1)
        value = (wide * tl.load(norm + start + d, inside, 0.0).to(tl.float32)[None, :]).to(value.dtype)
        part = tl.load(columns + start, inside[:, None] & there, 0.0)
        acc = tl.dot(value, part, acc, input_precision="ieee")
        if GATED:
            part = tl.load(columns + N * D + start, inside[:, None] & there, 0.0)
            other = tl.dot(value, part, other, input_precision="ieee")
    scale = tl.rsqrt(squares / D + eps)[:, None]
    acc *= scale
    if BIAS:
        acc += tl.load(bias + n, n < N, 0.0).to(tl.float32)[None, :]
    if GATED:  # rounded as the products of training are
        kind = out.dtype.element_ty
        acc, other = acc.to(kind).to(tl.float32), (other * scale).to(kind).to(tl.float32)
        acc = acc * tl.sigmoid(acc) * other
    tl.store(out + m[:, None] * N + n[None, :], acc, here & there)


@triton.jit
def _added(y, w, bias, x, M, N, K, BIAS: tl.constexpr, EARLY: tl.constexpr, BM: tl.constexpr,
           BN: tl.constexpr, BK: tl.constexpr):
    """x [M, N] += y [M, K] times W [N, K]."""
    m, n = tl.program_id(0) * BM + tl.arange(0, BM), tl.program_id(1) * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    here, there = (m < M)[:, None], (n < N)[None, :]
    rows, columns = y + m[:, None] * K + k[None, :], w + n[None, :] * K + k[:, None]
    acc = tl.zeros((BM, BN), tl.float32)
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()
    for start in range(0, K, BK):
        inside = start + k < K
        acc = tl.dot(tl.load(rows + start, here & inside[None, :], 0.0),
                     tl.load(columns + start, inside[:, None] & there, 0.0), acc, input_precision="ieee")
    if BIAS:
        acc += tl.load(bias + n, n < N, 0.0).to(tl.float32)[None, :]
    cell = x + m[:, None] * N + n[None, :]
    tl.store(cell, tl.load(cell, here & there) + acc.to(x.dtype.element_ty), here & there)


@triton.jit
def _turned(source, weight, cos, sin, i, inside, eps, D: tl.constexpr, HALF: tl.constexpr,
            INNER: tl.constexpr):
    """Heads [R, ROUND] by their norm, if they have one, and rotated; i: the places in a head."""
    other = tl.where(i < HALF, i + HALF, i - HALF)
    mine, partner = tl.load(source + i, inside, 0.0), tl.load(source + other, inside, 0.0)
    kind = mine.dtype
    mine, partner = mine.to(tl.float32), partner.to(tl.float32)
    if INNER:
        scale = tl.rsqrt(tl.sum(mine * mine, 1) / D + eps)[:, None]
        mine = (mine * scale * tl.load(weight + i, i < D, 0.0)).to(kind).to(tl.float32)
        partner = (partner * scale * tl.load(weight + other, i < D, 0.0)).to(kind).to(tl.float32)
    angle = tl.where(i < HALF, i, i - HALF)
    c, s = tl.load(cos + angle, i < D, 0.0).to(tl.float32), tl.load(sin + angle, i < D, 0.0).to(tl.float32)
    return (mine * c + tl.where(i < HALF, -partner, partner) * s).to(kind)


@triton.jit
def _look(q, k, v, base, first, last, top, total, acc, D: tl.constexpr, ROUND: tl.constexpr,
          BLOCK: tl.constexpr):
    """The tokens first..last-1 of one sequence of keys, by the online softmax."""
    j, d = tl.arange(0, BLOCK), tl.arange(0, ROUND)
    for start in range(first, last, BLOCK):
        real = (start + j) < last
        cell = base + (start + j)[:, None] * D + d[None, :]
        inside = real[:, None] & (d < D)[None, :]
        score = tl.dot(q, tl.trans(tl.load(k + cell, inside, 0.0)), input_precision="ieee")
        score = tl.where(real[None, :], score, float("-inf"))
        higher = tl.maximum(top, tl.max(score, 1))
        p, fade = tl.exp(score - higher[:, None]), tl.exp(top - higher)
        values = tl.load(v + cell, inside, 0.0)
        acc = acc * fade[:, None] + tl.dot(p.to(values.dtype), values, input_precision="ieee")
        total, top = total * fade + tl.sum(p, 1), higher
    return top, total, acc


@triton.jit
def _attend(qkv, q_norm, k_norm, cos, sin, at, slot, prompt, prompt_length, k_prompt, v_prompt, k_cache,
            v_cache, out, S, NEW, scale, window, eps, KV: tl.constexpr, REP: tl.constexpr, D: tl.constexpr,
            ROUND: tl.constexpr, ROWS: tl.constexpr, INNER: tl.constexpr, EARLY: tl.constexpr,
            BLOCK: tl.constexpr):
    """The queries of one row that share a key: first its own new one, then the prompt, then what the row has
    written before."""
    row, kv = tl.program_id(0).to(tl.int64), tl.program_id(1)
    r, i = tl.arange(0, ROWS)[:, None], tl.arange(0, ROUND)[None, :]
    inside = (r < REP) & (i < D)
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()
    new, read, mine = tl.load(at + row), tl.load(prompt_length + row), tl.load(slot + row)
    angle = (read + new) * (D // 2)
    source = qkv + row * (REP + 2) * KV * D
    q = _turned(source + (kv * REP + r) * D, q_norm, cos + angle, sin + angle, i, inside, eps, D, D // 2,
                INNER)
    q = (q.to(tl.float32) * scale).to(q.dtype)
    one = tl.arange(0, 1)[:, None] * 0
    key = _turned(source + (REP * KV + kv) * D + one, k_norm, cos + angle, sin + angle, i, i < D, eps, D,
                  D // 2, INNER)
    value = tl.load(source + (REP * KV + KV + kv) * D + i, i < D, 0.0)
    base = (mine * KV + kv) * NEW * D
    tl.store(k_cache + base + new * D + i, key, i < D)
    tl.store(v_cache + base + new * D + i, value, i < D)
    top = tl.sum(q.to(tl.float32) * key.to(tl.float32), 1)
    total = tl.full((ROWS,), 1.0, tl.float32)
    acc = tl.zeros((ROWS, ROUND), tl.float32) + value.to(tl.float32)
    first = tl.maximum(read + new + 1 - window, 0)  # the first position within the window
    place = (tl.load(prompt + row) * KV + kv) * S * D
    top, total, acc = _look(q, k_prompt, v_prompt, place, first, read, top, total, acc, D, ROUND, BLOCK)
    top, total, acc = _look(q, k_cache, v_cache, base, tl.maximum(first - read, 0), new, top, total, acc, D,
                            ROUND, BLOCK)
    tl.store(out + (row * KV + kv) * REP * D + r * D + i, acc / total[:, None], inside)


def normed(x: Tensor, norm: Tensor, w: Tensor, bias: Tensor | None, eps: float, tile: Tile,
           gated: bool = False) -> Tensor:
    (M, D), N = x.shape, len(w) // 2 if gated else len(w)
    out = x.new_empty(M, N)
    _normed[(triton.cdiv(M, tile.rows), triton.cdiv(N, tile.columns))](
        x, norm, w, x if bias is None else bias, out, M, N, D, eps, GATED=gated, BIAS=bias is not None,
        **launched(x, tile))
    return out


def added(y: Tensor, w: Tensor, bias: Tensor | None, x: Tensor, tile: Tile) -> None:
    (M, K), N = y.shape, len(w)
    _added[(triton.cdiv(M, tile.rows), triton.cdiv(N, tile.columns))](
        y, w, y if bias is None else bias, x, M, N, K, BIAS=bias is not None, **launched(x, tile))


def look_back(qkv: Tensor, cos: Tensor, sin: Tensor, at: Tensor, slot: Tensor, prompt: Tensor,
              prompt_length: Tensor, k_prompt: Tensor, v_prompt: Tensor, k_cache: Tensor, v_cache: Tensor,
              window: int | None = None, norms: tuple[Tensor, Tensor] | None = None,
              eps: float = 0.0) -> Tensor:
    """As in plain.py; norms: of each head's queries and keys. No two rows may be of one slot."""
    _, KV, S, D = k_prompt.shape
    R, REP, (keys, warps, stages) = len(qkv), qkv.shape[1] // (KV * D) - 2, LOOK
    out, early = qkv.new_empty(R, KV * REP * D), starts_early(qkv)
    _attend[(R, KV)](qkv, *norms or (qkv, qkv), cos, sin, at, slot, prompt, prompt_length, k_prompt, v_prompt,
                     k_cache, v_cache, out, S, k_cache.shape[2], D**-0.5, window or 1 << 30, eps, KV=KV,
                     REP=REP, D=D, ROUND=triton.next_power_of_2(max(D, 16)),
                     ROWS=triton.next_power_of_2(max(REP, 16)), INNER=norms is not None, EARLY=early,
                     BLOCK=keys, num_warps=warps, num_stages=stages, **{"launch_pdl": True} if early else {})
    return out


def launched(x: Tensor, tile: Tile) -> dict:
    early = starts_early(x)
    return dict(EARLY=early, BM=tile.rows, BN=tile.columns, BK=tile.depth, num_warps=tile.warps,
                num_stages=tile.stages) | ({"launch_pdl": True} if early else {})


def starts_early(x: Tensor) -> bool:
    """From Hopper on a kernel can start while the one before it ends."""
    return x.is_cuda and torch.cuda.get_device_capability(x.device)[0] >= 9


def knows(names) -> bool:
    """Whether these kernels compute a layer with these weights, by their short names."""
    return {*NEEDED} <= {*names} <= {*NEEDED, *OPTIONAL}


def tiles_for(rows: int) -> dict[str, Tile]:
    """The divisions of a step of so many rows."""
    few = max(16, triton.next_power_of_2(rows))
    return {name: tile._replace(rows=min(tile.rows, few)) for name, tile in TILES.items()}


def whole_step(engine) -> Callable | None:
    """Engine.step by these kernels; None where they do not know the layers, or are not worth it."""
    c, w = engine.c, engine.weights
    by_head = all(norm.size == c.head_dim for layer in engine.layers for norm in layer.attention.inner)
    known = by_head and all(knows(layer.fused()) for layer in engine.layers)
    exact = engine.device.type == "cuda" and engine.dtype == torch.float32
    if not known or exact or c.hidden_size > WIDEST:
        return None
    eps, add_norm = c.rms_norm_eps, engine.ops.add_norm

    def step(token: Tensor, at: Tensor, slot: Tensor, prompt: Tensor, prompt_length: Tensor) -> Tensor:
        x, tiles = w["embed"][token], tiles_for(len(token))
        for i, layer in enumerate(engine.layers):
            mine = {name: w.get(f"{i}.{name}") for name in (*NEEDED, *OPTIONAL)}
            inner = (mine["q_norm"], mine["k_norm"]) if layer.attention.inner else None
            y = normed(x, mine["before_attention"], mine["qkv"], mine["qkv_bias"], eps, tiles["qkv"])
            y = look_back(y, engine.cos, engine.sin, at, slot, prompt, prompt_length, engine.k_prompt[i],
                          engine.v_prompt[i], engine.k[i], engine.v[i], layer.window, inner, eps)
            added(y, mine["o"], mine["o_bias"], x, tiles["o"])
            y = normed(x, mine["before_mlp"], mine["gate_up"], None, eps, tiles["gate_up"], gated=True)
            added(y, mine["down"], None, x, tiles["down"])
        return add_norm(x, None, w["norm"], eps)

    return step

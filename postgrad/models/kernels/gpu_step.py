"""A step of sampling through all layers on a GPU, six kernels a layer, for the layers that they know:

    qkv = x W                     with the weights of the norm in W
    y = what its keys tell        _attend: scales by 1 / rms(x), rotates, keeps the new key and value, looks
    x += y W
    ab = x W                      as above
    y = gate of ab                _gate: scales by 1 / rms(x)
    x += y W

At a few hundred rows of a small model a kernel takes some microseconds, about as long as it takes to start
one, so what counts is that there are few. The products are cuBLAS's. A row's norm is a number that can as
well be multiplied after the product as before it: so no kernel stands between two products only for that.

They know what Llama, Mistral and Qwen3 have: a norm before each half, norms of each head's queries and keys
or none, windows. Other layers go kernel by kernel (Engine.step), with the same ones.

A long row's tokens are looked at in parts, side by side: a step would else wait for the longest row.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

NEEDED = ("before_attention", "before_mlp", "qkv", "o", "gate_up", "down")  # by the short names of layer.py
OPTIONAL = ("q_norm", "k_norm")
LOOK = 32, 1, 2  # keys at a time, warps and stages of attention
WHOLE = 256  # tokens that are never parted: a short run has one kernel less to compile
# the least tokens of a part of a row: where rows alone are fewer programs than the third number, and where
# there are more; a part has as many as it takes to have no more programs than the last
SPLIT = 64, 512, 512, 8192


@triton.jit
def _scale(x, row, width, eps, WIDE: tl.constexpr):
    """1 / rms of a row of x."""
    i = tl.arange(0, WIDE)
    value = tl.load(x + row * width + i, i < width, 0.0).to(tl.float32)
    return tl.rsqrt(tl.sum(value * value) / width + eps)


@triton.jit
def _turned(source, scale, weight, cos, sin, i, inside, eps, D: tl.constexpr, HALF: tl.constexpr,
            INNER: tl.constexpr):
    """Heads [R, ROUND], scaled, by their norm, if they have one, and rotated; i: the places in a head."""
    other = tl.where(i < HALF, i + HALF, i - HALF)
    mine = tl.load(source + i, inside, 0.0).to(tl.float32) * scale
    partner = tl.load(source + other, inside, 0.0).to(tl.float32) * scale
    if INNER:
        again = tl.rsqrt(tl.sum(mine * mine, 1) / D + eps)[:, None]
        mine *= again * tl.load(weight + i, i < D, 0.0).to(tl.float32)
        partner *= again * tl.load(weight + other, i < D, 0.0).to(tl.float32)
    angle = tl.where(i < HALF, i, i - HALF)
    c, s = tl.load(cos + angle, i < D, 0.0).to(tl.float32), tl.load(sin + angle, i < D, 0.0).to(tl.float32)
    return (mine * c + tl.where(i < HALF, -partner, partner) * s).to(source.dtype.element_ty)


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
def _join(top, total, acc, there, inside, r, i, kept, count, pair, part, parts, REP: tl.constexpr,
          D: tl.constexpr, ROUND: tl.constexpr, ROWS: tl.constexpr):
    """Keeps what one part of a pair of row and key head has seen. The one that is done last joins all parts,
    in their order, and leaves the count at zero for the next launch."""
    n, first, size = tl.arange(0, ROWS), pair * tl.num_programs(2), REP * D + 2 * ROWS
    mine = kept + (first + part) * size
    tl.store(mine + r * D + i, acc, inside)
    tl.store(mine + REP * D + n, top)
    tl.store(mine + REP * D + ROWS + n, total)
    tl.debug_barrier()  # the stores of all threads come before the one that counts
    if tl.atomic_add(count + pair, 1, sem="acq_rel", scope="gpu") == parts - 1:
        tl.store(count + pair, 0)
        top = tl.full((ROWS,), float("-inf"), tl.float32)
        total, acc = tl.zeros((ROWS,), tl.float32), tl.zeros((ROWS, ROUND), tl.float32)
        for other in range(0, parts):
            its = kept + (first + other) * size
            its_top = tl.load(its + REP * D + n)
            higher = tl.maximum(top, its_top)
            fade, weight = tl.exp(top - higher), tl.exp(its_top - higher)
            total = total * fade + tl.load(its + REP * D + ROWS + n) * weight
            acc = acc * fade[:, None] + tl.load(its + r * D + i, inside, 0.0) * weight[:, None]
            top = higher
        tl.store(there, acc / total[:, None], inside)


@triton.jit
def _attend(qkv, x, q_norm, k_norm, cos, sin, at, slot, prompt, prompt_length, k_prompt, v_prompt, k_cache,
            v_cache, out, kept, count, S, NEW, width, heat, window, eps, KV: tl.constexpr, REP: tl.constexpr,
            D: tl.constexpr, ROUND: tl.constexpr, ROWS: tl.constexpr, WIDE: tl.constexpr, INNER: tl.constexpr,
            EARLY: tl.constexpr, BLOCK: tl.constexpr, CHUNK: tl.constexpr):
    """The queries of one row that share a key: first its own new one, then the prompt, then what the row has
    written before. CHUNK: tokens of a part, if there are several; the first one has the new token, too."""
    row, kv, part, parts = tl.program_id(0).to(tl.int64), tl.program_id(1), 0, 1
    r, i = tl.arange(0, ROWS)[:, None], tl.arange(0, ROUND)[None, :]
    inside = (r < REP) & (i < D)
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()
    new, read, mine = tl.load(at + row), tl.load(prompt_length + row), tl.load(slot + row)
    begin, end = tl.maximum(read + new + 1 - window, 0), read + new  # within the window
    if CHUNK:
        part = tl.program_id(2)
        parts = tl.minimum(tl.maximum(tl.cdiv(end - begin, CHUNK), 1), tl.num_programs(2))
        if part >= parts:
            return
        begin += part * CHUNK
        end = tl.where(part == parts - 1, end, begin + CHUNK)
    angle, scale = (read + new) * (D // 2), 1.0
    if WIDE:
        scale = _scale(x, row, width, eps, WIDE)
    source = qkv + row * (REP + 2) * KV * D
    q = _turned(source + (kv * REP + r) * D, scale, q_norm, cos + angle, sin + angle, i, inside, eps, D,
                D // 2, INNER)
    q = (q.to(tl.float32) * heat).to(q.dtype)
    one = tl.arange(0, 1)[:, None] * 0
    key = _turned(source + (REP * KV + kv) * D + one, scale, k_norm, cos + angle, sin + angle, i, i < D, eps,
                  D, D // 2, INNER)
    value = (tl.load(source + (REP * KV + KV + kv) * D + i, i < D, 0.0) * scale).to(q.dtype)
    base = (mine * KV + kv) * NEW * D
    own = part == 0
    tl.store(k_cache + base + new * D + i, key, (i < D) & own)
    tl.store(v_cache + base + new * D + i, value, (i < D) & own)
    # at -inf it counts for nothing: a later part has tokens of its own
    top = tl.where(own, tl.sum(q.to(tl.float32) * key.to(tl.float32), 1), float("-inf"))
    total = tl.full((ROWS,), 1.0, tl.float32)
    acc = tl.zeros((ROWS, ROUND), tl.float32) + value.to(tl.float32)
    place = (tl.load(prompt + row) * KV + kv) * S * D
    top, total, acc = _look(q, k_prompt, v_prompt, place, begin, tl.minimum(end, read), top, total, acc, D,
                            ROUND, BLOCK)
    top, total, acc = _look(q, k_cache, v_cache, base, tl.maximum(begin - read, 0), end - read, top, total,
                            acc, D, ROUND, BLOCK)
    pair = row * KV + kv
    there = out + pair * REP * D + r * D + i
    if CHUNK and parts > 1:
        _join(top, total, acc, there, inside, r, i, kept, count, pair, part, parts, REP, D, ROUND, ROWS)
    else:
        tl.store(there, acc / total[:, None], inside)


def look_back(qkv: Tensor, cos: Tensor, sin: Tensor, at: Tensor, slot: Tensor, prompt: Tensor,
              prompt_length: Tensor, k_prompt: Tensor, v_prompt: Tensor, k_cache: Tensor, v_cache: Tensor,
              window: int | None = None, norms: tuple[Tensor, Tensor] | None = None,
              eps: float = 0.0, x: Tensor | None = None) -> Tensor:
    """As in plain.py, but no two rows may be of one slot. norms: of each head's queries and keys. x: what
    qkv is a product of, which has yet to be divided by its rms."""
    (_, KV, S, D), NEW, window = k_prompt.shape, k_cache.shape[2], window or 1 << 30
    R, REP, (keys, warps, stages) = len(qkv), qkv.shape[1] // (KV * D) - 2, LOOK
    ROWS, out = triton.next_power_of_2(max(REP, 16)), qkv.new_empty(R, KV * REP * D)
    tokens = min(S + NEW, len(cos), window) - 1  # that a row has before the new one, at most
    chunk = part_size(tokens, R * KV)
    parts = max(1, triton.cdiv(tokens, chunk))
    kept = count = out
    if parts > 1:
        kept = torch.empty(R * KV * parts * (REP * D + 2 * ROWS), device=qkv.device)
        count = zeros(triton.next_power_of_2(R * KV), qkv.device)
    _attend[(R, KV, parts)](
        qkv, qkv if x is None else x, *norms or (qkv, qkv), cos, sin, at, slot, prompt, prompt_length,
        k_prompt, v_prompt, k_cache, v_cache, out, kept, count, S, NEW, 0 if x is None else x.shape[1],
        D**-0.5, window, eps, KV=KV, REP=REP, D=D, ROUND=triton.next_power_of_2(max(D, 16)), ROWS=ROWS,
        INNER=norms is not None, BLOCK=keys, CHUNK=chunk if parts > 1 else 0, num_warps=warps,
        num_stages=stages, **launched(qkv, x))
    return out


def part_size(tokens: int, programs: int) -> int:
    """Few rows are looked at in small parts, so that the whole GPU has work; of many only long rows are."""
    if tokens <= WHOLE:
        return WHOLE
    few, many, filled, most = SPLIT
    fair = triton.next_power_of_2(triton.cdiv(tokens, max(1, most // programs)))
    return max(few if programs < filled else many, fair)


@cache
def zeros(many: int, device: torch.device) -> Tensor:
    """Counts that every launch leaves at zero. They are never freed, as captured graphs go on counting with
    them; the first call that asks for them is not one that is captured. One stream at a time has them."""
    return torch.zeros(many, dtype=torch.int32, device=device)


@triton.jit
def _gate(ab, x, out, F, width, eps, WIDE: tl.constexpr, EARLY: tl.constexpr, BLOCK: tl.constexpr):
    row, i = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside, scale = i < F, 1.0
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()
    if WIDE:
        scale = _scale(x, row, width, eps, WIDE)
    a = tl.load(ab + row * 2 * F + i, inside, 0.0).to(tl.float32) * scale
    b = tl.load(ab + row * 2 * F + F + i, inside, 0.0).to(tl.float32) * scale
    tl.store(out + row * F + i, a * tl.sigmoid(a) * b, inside)


def gate_halves(ab: Tensor, x: Tensor | None = None, eps: float = 0.0) -> Tensor:
    """As in plain.py. x: what ab is a product of, which has yet to be divided by its rms."""
    R, F = len(ab), ab.shape[1] // 2
    out, block = ab.new_empty(R, F), min(2048, triton.next_power_of_2(F))
    _gate[(R, triton.cdiv(F, block))](ab, ab if x is None else x, out, F, 0 if x is None else x.shape[1], eps,
                                      BLOCK=block, **launched(ab, x))
    return out


def launched(product: Tensor, x: Tensor | None) -> dict:
    early = starts_early(product)
    return ({"WIDE": 0 if x is None else triton.next_power_of_2(x.shape[1]), "EARLY": early}
            | ({"launch_pdl": True} if early else {}))


def starts_early(x: Tensor) -> bool:
    """From Hopper on a kernel can start while the one before it ends."""
    return x.is_cuda and torch.cuda.get_device_capability(x.device)[0] >= 9


def knows(names) -> bool:
    """Whether these kernels compute a layer with these weights, by their short names."""
    return {*NEEDED} <= {*names} <= {*NEEDED, *OPTIONAL}


def whole_step(engine) -> Callable | None:
    """Engine.step by these kernels; None where they do not know the layers. The weights of norms go into
    those of the products that read them: they are copies, taken anew before this is asked for."""
    c, w = engine.c, engine.weights
    by_head = all(norm.size == c.head_dim for layer in engine.layers for norm in layer.attention.inner)
    if not by_head or not all(knows(layer.fused()) for layer in engine.layers):
        return None
    for i, _ in enumerate(engine.layers):
        for norm, product in (("before_attention", "qkv"), ("before_mlp", "gate_up")):
            w[f"{i}.{product}"].mul_(w[f"{i}.{norm}"])
    eps, add_norm, cos, sin = c.rms_norm_eps, engine.ops.add_norm, engine.cos, engine.sin
    kept = [*zip(engine.k_prompt, engine.v_prompt, engine.k, engine.v, strict=True)]
    layers, short = engine.layers, ("qkv", "o", "gate_up", "down")

    def step(token: Tensor, at: Tensor, slot: Tensor, prompt: Tensor, prompt_length: Tensor) -> Tensor:
        x = w["embed"][token]
        for i, layer in enumerate(layers):
            qkv, o, gate_up, down = (w[f"{i}.{name}"].T for name in short)
            norms = (w[f"{i}.q_norm"], w[f"{i}.k_norm"]) if layer.attention.inner else None
            y = look_back(x @ qkv, cos, sin, at, slot, prompt, prompt_length, *kept[i], layer.window, norms,
                          eps, x)
            x.addmm_(y, o)
            x.addmm_(gate_halves(x @ gate_up, x, eps), down)
        return add_norm(x, None, w["norm"], eps)

    return step

"""The attention of a step of sampling in Triton: each row's new token sees its prompt, which rows of a group
share, and what is in the row's own slot."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

# keys that are looked at together, and how a program is run: of prompts by several rows, and of a row alone
PROMPTS, OWN = {"BLOCK": 64, "num_warps": 4}, {"BLOCK": 32, "num_warps": 1}


@triton.jit
def _place(qkv, cos, sin, position, slot, at, q, k_cache, v_cache, H, KV, NEW, HALF: tl.constexpr,
           ROUND: tl.constexpr):
    row, head, i = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.arange(0, ROUND)
    inside = i < HALF
    source = qkv + (row * (H + 2 * KV) + head) * 2 * HALF + i
    a, b = tl.load(source, inside), tl.load(source + HALF, inside)
    if head < H + KV:
        angle = tl.load(position + row) * HALF + i
        c, s = tl.load(cos + angle, inside).to(tl.float32), tl.load(sin + angle, inside).to(tl.float32)
        left, right = a.to(tl.float32), b.to(tl.float32)
        a, b = (left * c - right * s).to(a.dtype), (right * c + left * s).to(b.dtype)
    if head < H:
        target = q + (row * H + head) * 2 * HALF
    else:
        where = ((tl.load(slot + row) * KV + (head - H) % KV) * NEW + tl.load(at + row)) * 2 * HALF
        if head < H + KV:
            target = k_cache + where
        else:
            target = v_cache + where
    tl.store(target + i, a, inside)
    tl.store(target + HALF + i, b, inside)


def place(qkv: Tensor, cos: Tensor, sin: Tensor, position: Tensor, slot: Tensor, at: Tensor, k_cache: Tensor,
          v_cache: Tensor) -> Tensor:
    _, KV, NEW, head_dim = k_cache.shape
    R, H = len(qkv), qkv.shape[1] // head_dim - 2 * KV
    q, half = qkv.new_empty(R, H, head_dim), head_dim // 2
    _place[(R, H + 2 * KV)](qkv, cos, sin, position, slot, at, q, k_cache, v_cache, H, KV, NEW, HALF=half,
                            ROUND=triton.next_power_of_2(half), num_warps=1)
    return q


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
def _attend(q, k_prompt, v_prompt, prompt, prompt_length, k_cache, v_cache, slot, length, out, S, NEW, scale,
            window, KV: tl.constexpr, REP: tl.constexpr, D: tl.constexpr, ROUND: tl.constexpr,
            BLOCK: tl.constexpr, ROWS: tl.constexpr):
    row, kv = tl.program_id(0).to(tl.int64), tl.program_id(1)
    r, d = tl.arange(0, ROWS), tl.arange(0, ROUND)
    cell = (row * KV + kv) * REP * D + r[:, None] * D + d[None, :]
    inside = (r < REP)[:, None] & (d < D)[None, :]
    asked = tl.load(q + cell, inside, 0.0)
    asked = (asked.to(tl.float32) * scale).to(asked.dtype)
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    total, acc = tl.zeros((ROWS,), tl.float32), tl.zeros((ROWS, ROUND), tl.float32)
    read, new = tl.load(prompt_length + row), tl.load(length + row)
    first = tl.maximum(read + new - window, 0)  # the first position within the window
    base = (tl.load(prompt + row) * KV + kv) * S * D
    top, total, acc = _look(asked, k_prompt, v_prompt, base, first, read, top, total, acc, D, ROUND, BLOCK)
    base = (tl.load(slot + row) * KV + kv) * NEW * D
    top, total, acc = _look(asked, k_cache, v_cache, base, tl.maximum(first - read, 0), new, top, total, acc,
                            D, ROUND, BLOCK)
    tl.store(out + cell, acc / total[:, None], inside)


def attend(q: Tensor, k_prompt: Tensor, v_prompt: Tensor, prompt: Tensor, prompt_length: Tensor,
           k_cache: Tensor, v_cache: Tensor, slot: Tensor, length: Tensor,
           window: int | None = None) -> Tensor:
    R, H, D = q.shape
    KV, S, NEW = k_prompt.shape[1], k_prompt.shape[2], k_cache.shape[2]
    out = q.new_empty(R, H * D)
    _attend[(R, KV)](q, k_prompt, v_prompt, prompt, prompt_length, k_cache, v_cache, slot, length, out, S,
                     NEW, D**-0.5, 1 << 30 if window is None else window, KV=KV, REP=H // KV, D=D,
                     ROUND=triton.next_power_of_2(max(D, 16)), BLOCK=32,
                     ROWS=triton.next_power_of_2(max(H // KV, 16)), num_warps=1)
    return out


@triton.jit
def _turned(head, inside, cos, sin, angle, d, D: tl.constexpr):
    """Heads [..., D] of a row, turned to its position: each half with the other one as partner."""
    HALF: tl.constexpr = D // 2
    mine, other = tl.load(head + d, inside, 0.0), tl.load(head + (d + HALF) % D, inside, 0.0)
    c = tl.load(cos + angle + d % HALF, d < D, 0.0).to(tl.float32)
    s = tl.load(sin + angle + d % HALF, d < D, 0.0).to(tl.float32)
    return (mine.to(tl.float32) * c + other.to(tl.float32) * tl.where(d < HALF, -s, s)).to(mine.dtype)


@triton.jit
def _attend_prompts(qkv, cos, sin, position, slot, at, k_prompt, v_prompt, prompt, prompt_length, top_out,
                    total_out, acc_out, R, S, scale, window, KV: tl.constexpr, REP: tl.constexpr,
                    D: tl.constexpr, ROUND: tl.constexpr, BLOCK: tl.constexpr, TILE: tl.constexpr,
                    ROWS: tl.constexpr):
    """TILE rows of a step, side by side: each prompt among theirs is read once."""
    kv, i, d, j = tl.program_id(1), tl.arange(0, ROWS), tl.arange(0, ROUND), tl.arange(0, BLOCK)
    row = tl.program_id(0).to(tl.int64) * TILE + i // REP
    here = (i < TILE * REP) & (row < R)
    inside = here[:, None] & (d < D)[None, :]
    head = row * (REP + 2) * KV + kv * REP + i % REP
    angle = tl.load(position + row, here, 0) * (D // 2)
    asked = _turned(qkv + head[:, None] * D, inside, cos, sin, angle[:, None], d[None, :], D)
    asked = (asked.to(tl.float32) * scale).to(asked.dtype)
    read = tl.load(prompt_length + row, here, 0)
    first = tl.maximum(read + tl.load(at + row, here, 0) + 1 - window, 0)  # the first within the window
    none = 1 << 40
    left = tl.where(here, tl.load(prompt + row, here, 0), none)
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    total, acc = tl.zeros((ROWS,), tl.float32), tl.zeros((ROWS, ROUND), tl.float32)
    now = tl.min(left, 0)
    while now < none:
        mine = left == now
        base, last = (now * KV + kv) * S * D, tl.max(tl.where(mine, read, 0), 0)
        for start in range(tl.min(tl.where(mine, first, last), 0), last, BLOCK):
            cell = base + (start + j)[:, None] * D + d[None, :]
            real = (start + j)[None, :]
            some = ((start + j) < last)[:, None] & (d < D)[None, :]
            score = tl.dot(asked, tl.trans(tl.load(k_prompt + cell, some, 0.0)), input_precision="ieee")
            score = tl.where(mine[:, None] & (real < last) & (real >= first[:, None]), score, float("-inf"))
            higher = tl.maximum(top, tl.max(score, 1))
            above = tl.where(higher == float("-inf"), 0.0, higher)
            p, fade = tl.exp(score - above[:, None]), tl.exp(top - above)
            values = tl.load(v_prompt + cell, some, 0.0)
            acc = acc * fade[:, None] + tl.dot(p.to(values.dtype), values, input_precision="ieee")
            total, top = total * fade + tl.sum(p, 1), higher
        left = tl.where(mine, none, left)
        now = tl.min(left, 0)
    out = row * KV * REP + kv * REP + i % REP
    tl.store(top_out + out, top, here)
    tl.store(total_out + out, total, here)
    tl.store(acc_out + out[:, None] * D + d[None, :], acc, inside)


@triton.jit
def _place_and_attend(qkv, cos, sin, position, slot, at, k_prompt, v_prompt, prompt, prompt_length, k_cache,
                      v_cache, out, top_in, total_in, acc_in, S, NEW, scale, window, SHARED: tl.constexpr,
                      KV: tl.constexpr, REP: tl.constexpr, D: tl.constexpr, ROUND: tl.constexpr,
                      BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """A row's new key and value go into its slot; it sees itself, its prompt and what is in its slot.
    SHARED: what it saw of its prompt is given."""
    row, kv = tl.program_id(0).to(tl.int64), tl.program_id(1)
    r, d = tl.arange(0, ROWS), tl.arange(0, ROUND)
    inside = (r < REP)[:, None] & (d < D)[None, :]
    heads, angle = qkv + row * (REP + 2) * KV * D, tl.load(position + row) * (D // 2)
    asked = _turned(heads + (kv * REP + r)[:, None] * D, inside, cos, sin, angle, d[None, :], D)
    asked = (asked.to(tl.float32) * scale).to(asked.dtype)
    key = _turned(heads + (REP * KV + kv) * D, d < D, cos, sin, angle, d, D)
    value = tl.load(heads + (REP * KV + KV + kv) * D + d, d < D, 0.0)
    read, new = tl.load(prompt_length + row), tl.load(at + row)
    own = (tl.load(slot + row) * KV + kv) * NEW * D
    tl.store(k_cache + own + new * D + d, key, d < D)
    tl.store(v_cache + own + new * D + d, value, d < D)
    top = tl.sum(asked.to(tl.float32) * key.to(tl.float32)[None, :], 1)
    total = tl.full((ROWS,), 1.0, tl.float32)
    acc = tl.zeros((ROWS, ROUND), tl.float32) + value.to(tl.float32)[None, :]
    first = tl.maximum(read + new + 1 - window, 0)  # the first position within the window
    head = (row * KV + kv) * REP + r
    if SHARED:
        seen = tl.load(top_in + head, r < REP, float("-inf"))
        higher = tl.maximum(seen, top)
        before, fade = tl.exp(seen - higher), tl.exp(top - higher)
        total = total * fade + tl.load(total_in + head, r < REP, 0.0) * before
        acc = acc * fade[:, None]
        acc += tl.load(acc_in + head[:, None] * D + d[None, :], inside, 0.0) * before[:, None]
        top = higher
    else:
        base = (tl.load(prompt + row) * KV + kv) * S * D
        top, total, acc = _look(asked, k_prompt, v_prompt, base, first, read, top, total, acc, D, ROUND,
                                BLOCK)
    top, total, acc = _look(asked, k_cache, v_cache, own, tl.maximum(first - read, 0), new, top, total, acc,
                            D, ROUND, BLOCK)
    tl.store(out + head[:, None] * D + d[None, :], acc / total[:, None], inside)


def place_and_attend(qkv: Tensor, cos: Tensor, sin: Tensor, position: Tensor, slot: Tensor, at: Tensor,
                     k_prompt: Tensor, v_prompt: Tensor, prompt: Tensor, prompt_length: Tensor,
                     k_cache: Tensor, v_cache: Tensor, window: int | None = None,
                     shared: bool = False) -> Tensor:
    """place and attend, where a step has one token of a slot. shared: most rows have the prompt of their
    neighbours, which is then read once for TILE of them."""
    (R, width), (_, KV, NEW, D), S = qkv.shape, k_cache.shape, k_prompt.shape[2]
    REP, window = width // D // KV - 2, 1 << 30 if window is None else window
    given = qkv, cos, sin, position, slot, at, k_prompt, v_prompt, prompt, prompt_length
    sizes = {"KV": KV, "REP": REP, "D": D, "ROUND": triton.next_power_of_2(max(D, 16))}
    seen = [torch.empty(R, KV * REP, *more, device=qkv.device) if shared else qkv for more in ((), (), (D,))]
    if shared:
        tile = max(1, 1 << (32 // REP).bit_length() - 1)
        _attend_prompts[(triton.cdiv(R, tile), KV)](
            *given, *seen, R, S, D**-0.5, window, **sizes, TILE=tile, **PROMPTS,
            ROWS=triton.next_power_of_2(max(tile * REP, 16)))
    out = qkv.new_empty(R, KV * REP * D)
    _place_and_attend[(R, KV)](*given, k_cache, v_cache, out, *seen, S, NEW, D**-0.5, window, **sizes,
                               SHARED=shared, **OWN, ROWS=triton.next_power_of_2(max(REP, 16)))
    return out

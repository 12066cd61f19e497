"""The kernels on an NVIDIA GPU: flash attention over packed sequences for training,
Triton for the steps of sampling.

Training's pointwise parts are plain torch: torch.compile fuses them. How it takes shared keys is training.py.
Attention in float32, which flash has not, is plain too.
"""

from __future__ import annotations

import inspect

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.nn.attention.varlen import varlen_attn

from postgrad.models.kernels import plain, training
from postgrad.models.kernels.plain import gate, linear, norm, whole_step
from postgrad.packing import Laid, Spans

__all__ = ["add_norm", "attend", "attention", "gate", "gate_halves", "lay", "linear", "norm", "pick", "place",
           "rotate", "whole_step"]

# older ones take grouped heads without a word
SAYS_GROUPED = "enable_gqa" in inspect.signature(varlen_attn).parameters


def lay(spans: Spans, x: Tensor) -> Spans | Laid:
    return spans if x.dtype == torch.float32 else spans.laid(x.device)


def attention(q: Tensor, k: Tensor, v: Tensor, laid: Spans | Laid, window: int | None = None) -> Tensor:
    if isinstance(laid, Spans):
        return plain.attention(q, k, v, laid, window)
    if laid.keys is not None and len(laid.keys):
        k, v = training.taken(k, v, laid)
    options = {"enable_gqa": k.shape[1] != q.shape[1]} if SAYS_GROUPED else {}
    return varlen_attn(q, k, v, laid.queries_to, laid.keys_to, laid.longest, laid.seen,
                       window_size=(-1 if window is None else window - 1, 0), **options)


@triton.jit
def _rotate(x, cos, sin, out, H, HALF: tl.constexpr, ROUND: tl.constexpr):
    row, head, i = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.arange(0, ROUND)
    inside, at = i < HALF, (row * H + head) * 2 * HALF + i
    a, b = tl.load(x + at, inside).to(tl.float32), tl.load(x + at + HALF, inside).to(tl.float32)
    c = tl.load(cos + row * HALF + i, inside).to(tl.float32)
    s = tl.load(sin + row * HALF + i, inside).to(tl.float32)
    tl.store(out + at, a * c - b * s, inside)
    tl.store(out + at + HALF, b * c + a * s, inside)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """One kernel where there is nothing to differentiate and no compiler that would make one."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or not x.is_contiguous():
        return plain.rotate(x, cos, sin)
    (N, H, head_dim), out = x.shape, torch.empty_like(x)
    _rotate[(N, H)](x, cos, sin, out, H, HALF=head_dim // 2, ROUND=triton.next_power_of_2(head_dim // 2),
                    num_warps=1)
    return out


@triton.jit
def _add_norm(x, delta, weight, out, D, eps, has_delta: tl.constexpr, BLOCK: tl.constexpr):
    row, i = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    inside = i < D
    value = tl.load(x + row * D + i, inside, 0.0)
    if has_delta:
        value = value + tl.load(delta + row * D + i, inside, 0.0)
        tl.store(x + row * D + i, value, inside)
    value = value.to(tl.float32)
    scale = tl.rsqrt(tl.sum(value * value) / D + eps)
    tl.store(out + row * D + i, value * scale * tl.load(weight + i, inside, 0.0).to(tl.float32), inside)


def add_norm(x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> Tensor:
    out, D = torch.empty_like(x), x.shape[1]
    _add_norm[(len(x),)](x, x if delta is None else delta, weight, out, D, eps, delta is not None,
                         BLOCK=triton.next_power_of_2(D), num_warps=4 if D <= 1024 else 8)
    return out


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
def _gate(ab, out, F, BLOCK: tl.constexpr):
    row, i = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = i < F
    a = tl.load(ab + row * 2 * F + i, inside, 0.0).to(tl.float32)
    b = tl.load(ab + row * 2 * F + F + i, inside, 0.0).to(tl.float32)
    tl.store(out + row * F + i, a * tl.sigmoid(a) * b, inside)


def gate_halves(ab: Tensor) -> Tensor:
    R, F = len(ab), ab.shape[1] // 2
    out = ab.new_empty(R, F)
    _gate[(R, triton.cdiv(F, 1024))](ab, out, F, BLOCK=1024)
    return out


@triton.jit
def _pick(logits, u, token, logp, V, heat, BLOCK: tl.constexpr, BLOCKS: tl.constexpr):
    """The sums of all blocks in one pass; then only the block in which u falls is read again."""
    row, i, b = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK), tl.arange(0, BLOCKS)
    tops, sums = tl.full((BLOCKS,), float("-inf"), tl.float32), tl.zeros((BLOCKS,), tl.float32)
    for block in range(tl.cdiv(V, BLOCK)):
        x = tl.load(logits + row * V + block * BLOCK + i, block * BLOCK + i < V,
                    float("-inf")).to(tl.float32) * heat
        top = tl.max(x)
        part = tl.where(top > float("-inf"), tl.sum(tl.exp(x - top)), 0.0)
        tops, sums = tl.where(b == block, top, tops), tl.where(b == block, part, sums)
    top = tl.max(tops)
    sums = (sums * tl.exp(tops - top)).to(tl.float64)
    upto = tl.cumsum(sums, 0)
    total = tl.sum(sums)
    goal = tl.load(u + row) * total
    last = tl.max(tl.where(sums > 0, b, 0))
    block = tl.minimum(tl.sum((upto <= goal).to(tl.int32)), last)
    before = tl.sum(tl.where(b < block, sums, 0.0))
    x = tl.load(logits + row * V + block * BLOCK + i, block * BLOCK + i < V,
                float("-inf")).to(tl.float32) * heat
    p = tl.exp(x - top).to(tl.float64)
    found = tl.sum((before + tl.cumsum(p, 0) <= goal).to(tl.int32))
    found = tl.minimum(found, tl.max(tl.where(p > 0, i, 0)))
    tl.store(token + row, (block * BLOCK + found).to(tl.int64))
    tl.store(logp + row, tl.sum(tl.where(i == found, x, 0.0)) - top - tl.log(total).to(tl.float32))


def pick(logits: Tensor, u: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    R, V = logits.shape
    token = torch.empty(R, dtype=torch.int64, device=logits.device)
    logp = torch.empty(R, device=logits.device)
    block = max(1024, triton.next_power_of_2(triton.cdiv(V, 64)))
    _pick[(R,)](logits, u.double(), token, logp, V, 1.0 / temperature, BLOCK=block,
                BLOCKS=triton.next_power_of_2(triton.cdiv(V, block)), num_warps=4)
    return token, logp

"""The kernels on an NVIDIA GPU.

In training, pointwise operations are plain torch, which torch.compile fuses. Attention is block attention in
compiled runs, else flash attention (gpu_training.py), in float32 plain. Decode steps are Triton.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from postgrad.maths.packing import AttentionLayout, Spans
from postgrad.models.blocks import Blocks
from postgrad.models.kernels import gpu_training, plain
from postgrad.models.kernels.decode_attention import step_attention, store_kv
from postgrad.models.kernels.fused import GPU_DECODE_STEP
from postgrad.models.kernels.gpu_decode import fused_sampler, fused_step, nudge, swiglu_joined
from postgrad.models.kernels.gpu_training import add_gated, attend_qkv, block_layout, rotate_qkv
from postgrad.models.kernels.plain import compact_rows, linear, packed_names, rms_norm, swiglu

__all__ = ["add_norm", "attention", "fused_sampler", "swiglu", "swiglu_joined", "add_gated", "packed_names",
           "store_kv", "attention_layout", "block_layout", "linear", "step_attention", "attend_qkv",
           "compact_rows", "rms_norm", "record_tokens", "nudge", "sample_tokens", "rotate", "rotate_qkv",
           "fused_step"]

FUSED_STEP = GPU_DECODE_STEP
PICK = 2048, 4  # logits at a time and warps of a program that picks a token


def attention_layout(spans: Spans, x: Tensor) -> Spans | AttentionLayout:
    return spans if x.dtype == torch.float32 else spans.layout(x.device)


def attention(q: Tensor, k: Tensor, v: Tensor, laid: Spans | AttentionLayout | Blocks,
              window: int | None = None, cap: float | None = None) -> Tensor:
    if isinstance(laid, Spans):
        return plain.attention(q, k, v, laid, window, cap)
    assert cap is None, "capped scores are for plain.py"
    if isinstance(laid, Blocks):
        return gpu_training.block_attention(q, k, v, laid, window)
    return gpu_training.flash_attention(q, k, v, laid, window)


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
    """One kernel, outside autograd and torch.compile."""
    if torch.is_grad_enabled() or torch.compiler.is_compiling() or not x.is_contiguous() or (
            2 * cos.shape[-1] < x.shape[-1]):
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


def sample_tokens(logits: Tensor, u: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    R, V = logits.shape
    token = torch.empty(R, dtype=torch.int64, device=logits.device)
    logp = torch.empty(R, device=logits.device)
    least, warps = PICK
    block = max(least, triton.next_power_of_2(triton.cdiv(V, 64)))
    _pick[(R,)](logits, u.double(), token, logp, V, 1.0 / temperature, BLOCK=block,
                BLOCKS=triton.next_power_of_2(triton.cdiv(V, block)), num_warps=warps)
    return token, logp


@triton.jit
def _note(token, logp, at, slot, shown, done, count, out, logps, ends, where, R, width, most,
          ENDS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    real = row < R
    mine, now, was = tl.load(token + row, real, 0), tl.load(at + row, real, 0), tl.load(done + row, real, 1)
    cell = tl.load(slot + row, real, 0) * width + now
    tl.store(out + cell, mine, real)
    tl.store(logps + cell, tl.load(logp + row, real, 0.0), real)
    tl.store(where + row, tl.load(shown + row, real, 0) + now, real)
    tl.store(count + row, tl.load(count + row, real, 0) + tl.where(was != 0, 0, 1), real)
    now += tl.where(now < most, 1, 0)
    tl.store(at + row, now, real)
    over = (was != 0) | (now >= most)
    for i in tl.static_range(ENDS):
        over |= mine == tl.load(ends + i)
    tl.store(done + row, over, real)


def record_tokens(token: Tensor, logp: Tensor, at: Tensor, slot: Tensor, shown: Tensor, done: Tensor,
                  count: Tensor, out: Tensor, logps: Tensor, ends: Tensor, most: int) -> Tensor:
    where, R = torch.empty_like(at), len(token)
    _note[(triton.cdiv(R, 128),)](token, logp, at, slot, shown, done, count, out, logps, ends, where, R,
                                  out.shape[1], most, ENDS=len(ends), BLOCK=128)
    return where

"""The Triton kernels of a layer in training on a GPU whose matrices that read the same are one (Layer.joins):
what is made of their product, forward and backward, in one pass each; what goes back to the product is
written into one matrix too.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from postgrad.models.blocks import Blocks
from postgrad.models.kernels.gpu_step import gate_halves
from postgrad.models.kernels.shared_attention import attend, attend_back

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


def turn(qkv: Tensor, parts: tuple[Tensor, Tensor, Tensor], cos: Tensor, sin: Tensor, kv: int,
         back: bool) -> None:
    """Between qkv [N, (H + 2 kv) D] and its parts [N, H, D], [N, kv, D] twice; back: of k and v there may be
    H heads too, to be summed."""
    q, k, v = parts
    N, H, D = q.shape
    _turn[(N,)](qkv, q, k, v, cos, sin, H, kv, HALF=D // 2, WIDE=triton.next_power_of_2(D // 2),
                HEADS=triton.next_power_of_2(H + 2 * kv), TIMES=k.shape[1] // kv, BACK=back, num_warps=4)


def turned(qkv: Tensor, cos: Tensor, sin: Tensor, H: int, D: int) -> tuple[Tensor, Tensor, Tensor]:
    """A product [N, (H + 2 KV) D] -> queries, keys and values, the first two at their positions; without
    gradients."""
    N, KV = len(qkv), (qkv.shape[1] // D - H) // 2
    q, k, v = (qkv.new_empty(N, heads, D) for heads in (H, KV, KV))
    turn(qkv, (q, k, v), cos.contiguous(), sin.contiguous(), KV, back=False)
    return q, k, v


class _Looked(torch.autograd.Function):
    """The heads that share a key are summed where what goes back to it is turned."""

    @staticmethod
    def forward(ctx, qkv, cos, sin, H, D, window, *blocks):
        parts = turned(qkv, cos, sin, H, D)
        y, sums = attend(*parts, Blocks(*blocks), window)
        ctx.save_for_backward(cos, sin, *parts, y, sums, *blocks)
        ctx.window = window
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        cos, sin, q, k, v, y, sums, *blocks = ctx.saved_tensors
        parts = attend_back(dy, q, k, v, y, sums, Blocks(*blocks), ctx.window)
        out = dy.new_empty(len(q), q[0].numel() + 2 * k[0].numel())
        turn(out, parts, cos, sin, k.shape[1], back=True)
        return out, *[None] * (5 + len(blocks))


def looked(qkv: Tensor, cos: Tensor, sin: Tensor, laid: Blocks, heads: int, head_dim: int,
           window: int | None = None) -> Tensor:
    """A product as `turned` takes it -> the answers [N, H, D] of attention."""
    return _Looked.apply(qkv, cos.contiguous(), sin.contiguous(), heads, head_dim, window, *laid)


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


class _Gated(torch.autograd.Function):
    """The gated product is not kept, but made once more on the way back, where what it is made of is read
    anyway."""

    @staticmethod
    def forward(ctx, x, ab, weight):
        ctx.save_for_backward(ab, weight)
        return torch.addmm(x, gate_halves(ab), weight.T)

    @staticmethod
    @once_differentiable
    def backward(ctx, dx):
        ab, weight = ctx.saved_tensors
        dy, (N, F) = dx @ weight, (len(ab), ab.shape[1] // 2)
        dab, y = torch.empty_like(ab), torch.empty_like(dy)
        _gate_back[(N, triton.cdiv(F, GATE_BLOCK))](ab, dy, dab, y, F, BLOCK=GATE_BLOCK)
        return dx, dab, dx.T @ y if ctx.needs_input_grad[2] else None


def gated(x: Tensor, ab: Tensor, weight: Tensor) -> Tensor:  # [N, D], [N, 2F], [D, F] -> [N, D]
    """x and what the MLP adds to it: ab are the products by gate and up. Without gradients x itself is added
    to."""
    if not torch.is_grad_enabled():
        return x.addmm_(gate_halves(ab), weight.T)
    return _Gated.apply(x, ab, weight)

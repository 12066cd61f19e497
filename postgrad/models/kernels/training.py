"""The Triton kernels of training on a GPU: the keys and values that several sequences share.

The softmax over the vocabulary is vocabulary.py, the sums of gradients are gathering.py; the rest of training
is plain torch, which torch.compile fuses.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from postgrad.packing import Laid

COLUMNS = 256  # numbers of a token's keys that one program moves
AT_ONCE = 4  # places of which it does so at once


@triton.jit
def _take(k, v, keys, k_out, v_out, K, N, C, k_row, v_row, BLOCK: tl.constexpr, AT_ONCE: tl.constexpr):
    place = tl.program_id(0).to(tl.int64) * AT_ONCE + tl.arange(0, AT_ONCE)
    i = (tl.program_id(1) * BLOCK + tl.arange(0, BLOCK))[None, :]
    token = tl.minimum(tl.load(keys + place, place < K, 0), N - 1).to(tl.int64)[:, None]
    inside, to = (place < K)[:, None] & (i < C), place[:, None] * C + i
    tl.store(k_out + to, tl.load(k + token * k_row + i, inside), inside)
    tl.store(v_out + to, tl.load(v + token * v_row + i, inside), inside)


@triton.jit
def _give_back(dk, dv, places, places_to, k_out, v_out, C, k_row, v_row, BLOCK: tl.constexpr,
               AT_ONCE: tl.constexpr):
    token, i = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside, several = i < C, tl.arange(0, AT_ONCE)
    last = tl.load(places_to + token + 1)
    k_sum, v_sum = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK,), tl.float32)
    for first in range(tl.load(places_to + token), last, AT_ONCE):
        real = first + several < last
        place = tl.load(places + first + several, real, 0).to(tl.int64)[:, None]
        there = real[:, None] & inside[None, :]
        k_sum += tl.sum(tl.load(dk + place * k_row + i[None, :], there, 0.0).to(tl.float32), 0)
        v_sum += tl.sum(tl.load(dv + place * v_row + i[None, :], there, 0.0).to(tl.float32), 0)
    tl.store(k_out + token * C + i, k_sum, inside)
    tl.store(v_out + token * C + i, v_sum, inside)


class _Taken(torch.autograd.Function):
    """k[keys] and v[keys]; a key that is no token (len(k), from padding) takes any, and no place names it:
    what comes back for it is dropped.

    Backward, one program finds all places of a token in the table, sums what comes back from them in
    float32, in one order, and writes the sum once. `index_add_`, which this stands for, fills the gradient
    with zeros first and then adds place by place, by atomics: the samples of a group meet at each token of
    their prompt, every sum is rounded to bfloat16 anew, and the order is another each time.
    """

    @staticmethod
    def forward(ctx, k, v, keys, places, places_to):
        ctx.save_for_backward(places, places_to)
        ctx.tokens = len(k)
        k, v = by_rows(k), by_rows(v)
        out = [x.new_empty(len(keys), *x.shape[1:]) for x in (k, v)]
        C = out[0][0].numel()
        block = min(COLUMNS, triton.next_power_of_2(C))
        _take[(triton.cdiv(len(keys), AT_ONCE), triton.cdiv(C, block))](
            k, v, keys, *out, len(keys), len(k), C, k.stride(0), v.stride(0), BLOCK=block, AT_ONCE=AT_ONCE,
            num_warps=1)
        return tuple(out)

    @staticmethod
    @once_differentiable
    def backward(ctx, dk, dv):
        dk, dv = by_rows(dk), by_rows(dv)
        out = [x.new_empty(ctx.tokens, *x.shape[1:]) for x in (dk, dv)]
        C = out[0][0].numel()
        block = min(COLUMNS, triton.next_power_of_2(C))
        _give_back[(ctx.tokens, triton.cdiv(C, block))](
            dk, dv, *ctx.saved_tensors, *out, C, dk.stride(0), dv.stride(0), BLOCK=block, AT_ONCE=AT_ONCE,
            num_warps=1)
        return *out, None, None, None


def by_rows(x: Tensor) -> Tensor:  # [N, heads, head_dim]
    """With the numbers of a token side by side."""
    return x if x.stride(2) == 1 and x.stride(1) == x.shape[2] else x.contiguous()


def taken(k: Tensor, v: Tensor, laid: Laid) -> tuple[Tensor, Tensor]:
    """The keys and values that each sequence looks at, sequence after sequence."""
    return _Taken.apply(k, v, laid.keys, laid.places, laid.places_to)

"""Attention in training on a GPU, where it is not compiled: flash attention, and the Triton kernels that take
the keys for it which sequences share, and give their gradients back. Compiled, it is shared_attention.py.

What stands beside it in a layer is joined.py, the softmax over the vocabulary vocabulary.py, the sums of
gradients gathering.py; the rest of training is plain torch, which torch.compile fuses.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.autograd.function import once_differentiable

from postgrad.maths.packing import Laid

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
def take(k: Tensor, v: Tensor, keys: Tensor, times: int = 1) -> list[Tensor]:
    """k[keys] and v[keys], each head so many times."""
    k, v = by_rows(k), by_rows(v)
    _, KV, D = k.shape
    out = [x.new_empty(len(keys), KV * times, D) for x in (k, v)]
    block = min(COLUMNS, triton.next_power_of_2(KV * D))
    _take[(triton.cdiv(len(keys), AT_ONCE), triton.cdiv(KV * D, block))](
        k, v, keys, *out, len(keys), KV * D, k.stride(0), v.stride(0), D=D, TIMES=times, BLOCK=block,
        AT_ONCE=AT_ONCE, num_warps=1)
    return out


def give_back(dk: Tensor, dv: Tensor, laid: Laid, tokens: int, times: int) -> list[Tensor]:
    """The gradients of what was taken, [K, KV times, D] -> [N, KV, D].

    One program finds all places of a token in the table, sums what comes back from them and from all times
    of a head in float32, in one order, and writes the sum once.
    `index_add_`, which this stands for, fills the gradient with zeros first and then adds place by place, by
    atomics: the samples of a group meet at each token of their prompt, every sum is rounded to bfloat16 anew,
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


def flash(q: Tensor, k: Tensor, v: Tensor, laid: Laid, window: int) -> tuple[Tensor, Tensor]:
    """-> the answers [N, H, D], and the log of each sum of exponentials. window: keys to the left; -1:
    all."""
    found = torch.ops.aten._flash_attention_forward(
        q, k, v, laid.queries_to, laid.keys_to, laid.longest, laid.seen, 0.0, window < 0, False,
        window_size_left=window, window_size_right=0)
    return found[0], found[1]


def flash_back(dy: Tensor, q: Tensor, k: Tensor, v: Tensor, y: Tensor, sums: Tensor, laid: Laid,
               window: int) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v."""
    chance = torch.empty(2, dtype=torch.uint64, device=q.device)  # nothing is dropped
    return torch.ops.aten._flash_attention_backward(
        dy, q, k, v, y, sums, laid.queries_to, laid.keys_to, laid.longest, laid.seen, 0.0, window < 0, chance,
        chance.new_empty(0), window_size_left=window, window_size_right=0)


class _Attended(torch.autograd.Function):
    """What is kept are the keys and values as they came; those that sequences share are taken once more in
    the backward pass, there with a key for each query's head: flash attention would otherwise make room for
    as many gradients itself, and sum them by a slower kernel."""

    @staticmethod
    def forward(ctx, q, k, v, window, longest, seen, *tensors):
        laid = Laid(*tensors, longest, seen)
        y, sums = flash(q, *((k, v) if laid.keys is None else take(k, v, laid.keys)), laid, window)
        ctx.save_for_backward(q, k, v, y, sums, *tensors)
        ctx.sizes = window, longest, seen
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        q, k, v, y, sums, *tensors = ctx.saved_tensors
        window, longest, seen = ctx.sizes
        laid, times = Laid(*tensors, longest, seen), q.shape[1] // k.shape[1]
        if laid.keys is None:
            dq, dk, dv = flash_back(dy, q, k, v, y, sums, laid, window)
        else:
            dq, dk, dv = flash_back(dy, q, *take(k, v, laid.keys, times), y, sums, laid, window)
            dk, dv = give_back(dk, dv, laid, len(k), times)
        return dq, dk, dv, *[None] * (3 + len(tensors))


def attended(q: Tensor, k: Tensor, v: Tensor, laid: Laid, window: int | None) -> Tensor:
    *tensors, longest, seen = laid
    return _Attended.apply(q, k, v, -1 if window is None else window - 1, longest, seen, *tensors)

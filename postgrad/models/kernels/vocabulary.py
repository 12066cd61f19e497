"""The Triton kernels of the softmax over the vocabulary. In 16 bits the logits are never there (head.py);
else each of these goes over them once.

maths/logprob.py has the equations, and what these stand for in plain torch.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from postgrad.maths.logprob import Softmax, product
from postgrad.models.kernels import head as tiles

# logits of a row that one program reads at once, and of how many blocks it has asked for ahead
READ_BLOCK, READ_WARPS, READ_STAGES = 2048, 4, 3
SLOPE_BLOCK, SLOPE_WARPS = 2048, 4  # logits that one program is for

# below it an exponential is 0 in float32; cut there, logits of -inf have no part in any sum
FLOOR = tl.constexpr(-200.0)


@triton.jit
def _read(logits, tokens, total, logp, entropy, V, stride, BLOCK: tl.constexpr,
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
def _slope(logits, tokens, total, by_logp, entropy, by_entropy, out, V, stride, BOTH: tl.constexpr,
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


def read(logits: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """In one pass: sums so far are scaled where a larger logit comes. The entropy is summed from differences
    to the largest, so large logits take nothing from it."""
    rows, V = logits.shape
    total, logp, entropy = (logits.new_empty(rows) for _ in range(3))
    if rows:
        _read[(rows,)](logits, tokens, total, logp, entropy, V, logits.stride(0), BLOCK=READ_BLOCK,
                       STAGES=READ_STAGES, num_warps=READ_WARPS)
    return total, logp, entropy


def slope(logits: Tensor, tokens: Tensor, total: Tensor, by_logp: Tensor, entropy: Tensor,
          by_entropy: Tensor | None, dtype: torch.dtype) -> Tensor:
    """In one pass, written in the type that is asked for."""
    (rows, V), out = logits.shape, torch.empty_like(logits, dtype=dtype)
    both = by_entropy is not None
    by_logp, by_entropy = by_logp.contiguous(), by_entropy.contiguous() if both else entropy
    if rows:
        _slope[(rows, triton.cdiv(V, SLOPE_BLOCK))](
            logits, tokens, total, by_logp, entropy, by_entropy, out, V, logits.stride(0), BOTH=both,
            BLOCK=SLOPE_BLOCK, num_warps=SLOPE_WARPS)
    return out


def read_states(states: Tensor, head: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    if states.dtype == head.dtype == torch.bfloat16:
        return tiles.read(states, head, tokens)
    return read(product(states, head.T), tokens)


def slope_of_states(states: Tensor, head: Tensor, tokens: Tensor, total: Tensor, by_logp: Tensor,
                    entropy: Tensor, by_entropy: Tensor | None) -> Tensor:
    if states.dtype == head.dtype == torch.bfloat16:
        return tiles.slope(states, head, tokens, total, by_logp, entropy, by_entropy)
    return slope(product(states, head.T), tokens, total, by_logp, entropy, by_entropy, states.dtype)


SOFTMAX = Softmax(read_states, slope_of_states)

"""Log-probabilities of tokens.

The next-token shift is made here, in `align`, and for packed rows in packing.py's `before`.

Left out on purpose: top-k and top-p. A policy is differentiated as the full softmax at one temperature,
and sampled as that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor


def align(x: Tensor) -> Tensor:  # [B, T, ...] -> [B, T, ...]
    """What was computed at token t-1 is about token t: it moves to column t. Column 0, which nothing
    predicts, is zero.

    align([[a, b, c]]) = [[0, a, b]]
    """
    return torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1)


def row_sum(x: Tensor) -> Tensor:  # [B, T] -> [B]
    """The sum of each row, by folding it at powers of two: zeros on the right (padding) can't change a single
    bit of it."""
    while x.shape[1] > 1:
        half = 1 << ((x.shape[1] - 1).bit_length() - 1)  # the largest power of two below the width
        left, right = x.split([half, x.shape[1] - half], dim=1)
        x = left + torch.nn.functional.pad(right, (0, half - right.shape[1]))
    return x.squeeze(1)


def product(a: Tensor, b: Tensor) -> Tensor:  # [N, K], [K, M] -> [N, M], float32 at least
    if a.is_cuda and a.dtype == torch.bfloat16:  # it is summed in float32: keep what it has
        return torch.mm(a, b.to(a.dtype), out_dtype=torch.float32)
    wide = torch.promote_types(torch.promote_types(a.dtype, b.dtype), torch.float32)
    return a.to(wide) @ b.to(wide)


def add_product(out: Tensor, a: Tensor, b: Tensor) -> None:  # [N, M] += [N, K] @ [K, M]
    """In one pass over `out` where the product is summed in float32 anyway."""
    if a.is_cuda and a.dtype == torch.bfloat16 and out.dtype == torch.float32:
        torch.addmm(out, a, b.to(a.dtype), out_dtype=torch.float32, out=out)
    else:
        out += product(a, b)


# [N, V], [N] -> total, logp, entropy [N]
def read(logits: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The log of the sum of exponentials, and of the tokens that were chosen what `chosen_logp` says."""
    total = logits.logsumexp(-1)
    logp = logits.gather(-1, tokens[:, None]).squeeze(-1) - total
    # -sum p log p, with log p = logits - total
    entropy = total - torch.linalg.vecdot((logits - total[:, None]).exp(), logits)
    return total, logp, entropy


def _slope(logits: Tensor, tokens: Tensor, total: Tensor, by_logp: Tensor) -> Tensor:
    """d logp_token / d logits_v = [v = token] - p_v, times what comes back."""
    p = (logits - total[:, None]).exp()
    return (p * -by_logp[:, None]).scatter_add(1, tokens[:, None], by_logp[:, None])


def _slope_of_both(logits: Tensor, tokens: Tensor, total: Tensor, by_logp: Tensor, entropy: Tensor,
                   by_entropy: Tensor) -> Tensor:
    """The same, and d entropy / d logits_v = -p_v (log p_v + entropy)."""
    logp = logits - total[:, None]
    return (_slope(logits, tokens, total, by_logp)
            - logp.exp() * (by_entropy[:, None] * (logp + entropy[:, None])))


def slope(logits: Tensor, tokens: Tensor, total: Tensor, by_logp: Tensor, entropy: Tensor,
          by_entropy: Tensor | None, dtype: torch.dtype) -> Tensor:  # -> [N, V]
    """What goes back to the logits, in a type; by_entropy: None where no loss looks at the entropy."""
    slopes = (_slope(logits, tokens, total, by_logp) if by_entropy is None else
              _slope_of_both(logits, tokens, total, by_logp, entropy, by_entropy))
    return slopes.to(dtype)


def read_states(states: Tensor, head: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return read(product(states, head.T), tokens)


def slope_of_states(states: Tensor, head: Tensor, tokens: Tensor, *rest: Tensor | None) -> Tensor:
    return slope(product(states, head.T), tokens, *rest, states.dtype)


class Softmax(NamedTuple):
    """The two passes over a chunk's logits, forward and backward, from the states [N, D] and the head [V, D]:
    `read` and `slope`, or kernels that give the same. Slopes are in the states' type."""

    read: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
    slope: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None], Tensor]


PLAIN = Softmax(read_states, slope_of_states)


class _Chosen(torch.autograd.Function):
    """chosen_logp in chunks; what a chunk needs in the backward pass is computed again there."""

    @staticmethod
    def forward(ctx, states, head, tokens, chunk, softmax):
        parts = [softmax.read(states[i: i + chunk], head, tokens[i: i + chunk])
                 for i in range(0, max(len(states), 1), chunk)]
        total, logp, entropy = (torch.cat(x) for x in zip(*parts, strict=True))
        ctx.save_for_backward(states, head, tokens, total, entropy)
        ctx.set_materialize_grads(False)  # an entropy that no loss looks at costs nothing
        ctx.chunk, ctx.softmax = chunk, softmax
        return logp, entropy

    @staticmethod
    def backward(ctx, by_logp, by_entropy):
        states, head, tokens, total, entropy = ctx.saved_tensors
        by_logp, need = torch.zeros_like(total) if by_logp is None else by_logp, ctx.needs_input_grad
        dstates = torch.empty_like(states)
        dhead = torch.zeros_like(head, dtype=total.dtype) if need[1] else None
        for i in range(0, len(states), ctx.chunk):
            part = slice(i, i + ctx.chunk)
            slopes = ctx.softmax.slope(states[part], head, tokens[part], total[part], by_logp[part],
                                       entropy[part], None if by_entropy is None else by_entropy[part])
            dstates[part] = product(slopes, head)
            if need[1]:
                add_product(dhead, slopes.T, states[part])
            del slopes  # before the next chunk's logits are there
        return dstates, None if dhead is None else dhead.to(head.dtype), None, None, None


# [N, D], [V, D], [N] -> logp [N], entropy [N]
def chosen_logp(states: Tensor, head: Tensor, tokens: Tensor, temperature: float = 1.0,
                chunk: int | None = None, softmax: Softmax = PLAIN) -> tuple[Tensor, Tensor]:
    """Log-prob of each token by the state before it, and entropy of the distribution it was drawn from.

        logp = log softmax(head . state / temperature)[token],    entropy = -sum_v p_v log p_v
    The states meet the head `chunk` at a time, also in the backward pass: at most [chunk, V] logits exist at
    once, never [B, T, V]; on a CPU few enough to stay in its cache. The softmax is in float32 at least, also
    for bfloat16 states.
    """
    chunk = chunk or (4096 if states.is_cuda else max(16, (1 << 18) // len(head)))
    return _Chosen.apply(states / temperature if temperature != 1 else states, head, tokens, chunk, softmax)


def logp_of_logits(logits: Tensor, tokens: Tensor) -> Tensor:  # [B, T, V], [B, T] -> [B, T]
    """Log-prob of each token given the whole logits tensor; column 0 is zero. For small models and tests."""
    logp = torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), -1)
    return align(logp).gather(-1, tokens[..., None]).squeeze(-1)

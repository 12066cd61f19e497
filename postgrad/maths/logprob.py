"""Log-probabilities of tokens.

The next-token shift is made here, in `align`, and for packed rows in packing.py's `before`.

Left out on purpose: top-k and top-p. A policy is the full softmax at one temperature; samples from a part of
it are weighed (correction.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor


def align(x: Tensor) -> Tensor:  # [B, T, ...] -> [B, T, ...]
    """Shifts one column to the right: what is computed at token t-1 is about token t. Column 0, which nothing
    predicts, is zero.

    align([[a, b, c]]) = [[0, a, b]]
    """
    return torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1)


def row_sum(x: Tensor) -> Tensor:  # [B, T] -> [B]
    """The sum of each row, folded at powers of two: padding with zeros on the right changes no bit of it."""
    while x.shape[1] > 1:
        half = 1 << ((x.shape[1] - 1).bit_length() - 1)  # the largest power of two below the width
        left, right = torch.split(x, [half, x.shape[1] - half], dim=1)
        x = left + torch.nn.functional.pad(right, (0, half - right.shape[1]))
    return x.squeeze(1)


class _WideProduct(torch.autograd.Function):
    """A float32 product of bfloat16 matrices on a GPU, for which torch has no derivative."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.save_for_backward(a, b)
        return torch.mm(a, b, out_dtype=torch.float32)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        a, b = ctx.saved_tensors
        gradient = gradient.to(a.dtype)
        return gradient @ b.T, a.T @ gradient


def product(a: Tensor, b: Tensor) -> Tensor:  # [N, K], [K, M] -> [N, M]
    """a @ b, accumulated and returned in float32 at least."""
    if a.is_cuda and a.dtype == torch.bfloat16:
        apply: Callable[[Tensor, Tensor], Tensor] = _WideProduct.apply
        return apply(a, b.to(a.dtype))
    wide = torch.promote_types(torch.promote_types(a.dtype, b.dtype), torch.float32)
    return a.to(wide) @ b.to(wide)


def add_product(out: Tensor, a: Tensor, b: Tensor) -> None:  # [N, M] += [N, K] @ [K, M]
    """out += a @ b; of bfloat16 on a GPU without the product in memory."""
    if a.is_cuda and a.dtype == torch.bfloat16 and out.dtype == torch.float32:
        torch.addmm(out, a, b.to(a.dtype), out_dtype=torch.float32, out=out)
    else:
        out += product(a, b)


# [N, V], [N] -> total, logp, entropy [N]
def logits_forward(logits: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The logsumexp of each row of logits, and the log-prob and entropy of `chosen_logp`."""
    total = logits.logsumexp(-1)
    logp = logits.gather(-1, tokens[:, None]).squeeze(-1) - total
    # -sum p log p, with log p = logits - total
    entropy = total - torch.linalg.vecdot((logits - total[:, None]).exp(), logits)
    return total, logp, entropy


def _logp_gradient(logits: Tensor, tokens: Tensor, total: Tensor, by_logp: Tensor) -> Tensor:
    """d logp_token / d logits_v = [v = token] - p_v, times the gradient of logp."""
    p = (logits - total[:, None]).exp()
    return (p * -by_logp[:, None]).scatter_add(1, tokens[:, None], by_logp[:, None])


def _both_gradients(logits: Tensor, tokens: Tensor, total: Tensor, by_logp: Tensor, entropy: Tensor,
                   by_entropy: Tensor) -> Tensor:
    """_logp_gradient, plus d entropy / d logits_v = -p_v (log p_v + entropy) times that of entropy."""
    logp = logits - total[:, None]
    return (_logp_gradient(logits, tokens, total, by_logp)
            - logp.exp() * (by_entropy[:, None] * (logp + entropy[:, None])))


def logits_backward(logits: Tensor, tokens: Tensor, total: Tensor, by_logp: Tensor, entropy: Tensor,
          by_entropy: Tensor | None, dtype: torch.dtype) -> Tensor:  # -> [N, V]
    """The gradient of the logits, from those of logp and entropy; by_entropy: None where no loss has it."""
    gradient = (_logp_gradient(logits, tokens, total, by_logp) if by_entropy is None else
                _both_gradients(logits, tokens, total, by_logp, entropy, by_entropy))
    return gradient.to(dtype)


def head_forward(states: Tensor, head: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """logits_forward of states [N, D] and a head [V, D]."""
    return logits_forward(product(states, head.T), tokens)


def head_backward(states: Tensor, head: Tensor, tokens: Tensor, total: Tensor, by_logp: Tensor,
                  entropy: Tensor, by_entropy: Tensor | None) -> Tensor:
    """logits_backward of states [N, D] and a head [V, D], in the states' dtype."""
    return logits_backward(product(states, head.T), tokens, total, by_logp, entropy, by_entropy, states.dtype)


class Softmax(NamedTuple):
    """The softmax of a chunk, forward and backward: `head_forward` and `head_backward`, or kernels that
    compute the same."""

    forward: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
    backward: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor | None], Tensor]


PLAIN = Softmax(head_forward, head_backward)


def capped_softmax(cap: float, temperature: float) -> Softmax:
    """Of logits cap tanh(x / cap) / temperature, where x is the head's product (Gemma 2)."""
    def part(states: Tensor, head: Tensor) -> tuple[Tensor, Tensor]:
        turned = torch.tanh(product(states, head.T) / cap)
        return turned, turned * (cap / temperature)

    def forward(states: Tensor, head: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return logits_forward(part(states, head)[1], tokens)

    def backward(states: Tensor, head: Tensor, tokens: Tensor, total: Tensor, by_logp: Tensor,
                 entropy: Tensor, by_entropy: Tensor | None) -> Tensor:
        turned, logits = part(states, head)
        gradient = logits_backward(logits, tokens, total, by_logp, entropy, by_entropy, logits.dtype)
        return (gradient * (1 - turned * turned) / temperature).to(states.dtype)

    return Softmax(forward, backward)


class _Chosen(torch.autograd.Function):
    """chosen_logp in chunks; the backward pass computes a chunk's logits again."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, head: Tensor, tokens: Tensor, chunk: int,
                softmax: Softmax) -> tuple[Tensor, Tensor]:
        parts = [softmax.forward(states[i: i + chunk], head, tokens[i: i + chunk])
                 for i in range(0, max(len(states), 1), chunk)]
        total, logp, entropy = (torch.cat(x) for x in zip(*parts, strict=True))
        ctx.save_for_backward(states, head, tokens, total, entropy)
        ctx.set_materialize_grads(False)  # an entropy that is in no loss costs nothing
        ctx.chunk, ctx.softmax = chunk, softmax
        return logp, entropy

    @staticmethod
    def backward(ctx: Any, by_logp: Tensor | None, by_entropy: Tensor | None) -> Any:
        states, head, tokens, total, entropy = ctx.saved_tensors
        by_logp, need = torch.zeros_like(total) if by_logp is None else by_logp, ctx.needs_input_grad
        dstates = torch.empty_like(states)
        dhead = torch.zeros_like(head, dtype=total.dtype) if need[1] else None
        for i in range(0, len(states), ctx.chunk):
            part = slice(i, i + ctx.chunk)
            gradient = ctx.softmax.backward(states[part], head, tokens[part], total[part], by_logp[part],
                                       entropy[part], None if by_entropy is None else by_entropy[part])
            dstates[part] = product(gradient, head)
            if dhead is not None:
                add_product(dhead, gradient.T, states[part])
            del gradient  # before the next chunk's logits are allocated
        return dstates, None if dhead is None else dhead.to(head.dtype), None, None, None


# [N, D], [V, D], [N] -> logp [N], entropy [N]
def chosen_logp(states: Tensor, head: Tensor, tokens: Tensor, temperature: float = 1.0,
                chunk: int | None = None, softmax: Softmax = PLAIN) -> tuple[Tensor, Tensor]:
    """Log-prob of each token by the state before it, and entropy of the distribution it was drawn from.

        logp = log softmax(head . state / temperature)[token],    entropy = -sum_v p_v log p_v
    Computed `chunk` states at a time, also in the backward pass: at most [chunk, V] logits exist at once,
    never [B, T, V]; on a CPU few enough to stay in its cache. The softmax is in float32 at least, also for
    bfloat16 states.
    """
    chunk = chunk or (4096 if states.is_cuda else max(16, (1 << 18) // len(head)))
    scaled = states / temperature if temperature != 1 else states
    apply: Callable[..., tuple[Tensor, Tensor]] = _Chosen.apply
    return apply(scaled, head, tokens, chunk, softmax)


def logp_of_logits(logits: Tensor, tokens: Tensor) -> Tensor:  # [B, T, V], [B, T] -> [B, T]
    """Log-prob of each token from all logits at once; column 0 is zero. For small models and tests."""
    logp = torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), -1)
    return align(logp).gather(-1, tokens[..., None]).squeeze(-1)

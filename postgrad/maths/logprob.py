"""Log-probabilities of tokens, and the only next-token shift of the project.

Left out on purpose: top-k and top-p. A policy is differentiated as the full softmax at one temperature, and sampled as that.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint


def align(x: Tensor) -> Tensor:  # [B, T, ...] -> [B, T, ...]
    """What was computed at token t-1 is about token t: it moves to column t. Column 0, which nothing predicts, is zero.

    align([[a, b, c]]) = [[0, a, b]]
    """
    return torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], dim=1)


def row_sum(x: Tensor) -> Tensor:  # [B, T] -> [B]
    """The sum of each row, by folding it at powers of two: zeros on the right (padding) can't change a single bit of it."""
    while x.shape[1] > 1:
        half = 1 << ((x.shape[1] - 1).bit_length() - 1)  # the largest power of two below the width
        left, right = x.split([half, x.shape[1] - half], dim=1)
        x = left + torch.nn.functional.pad(right, (0, half - right.shape[1]))
    return x.squeeze(1)


def _chosen(hidden: Tensor, head: Tensor, tokens: Tensor, temperature: float) -> tuple[Tensor, Tensor]:
    """hidden [N, D], head [V, D], tokens [N] -> logp [N], entropy [N]"""
    logits = hidden @ head.T
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature
    total = logits.logsumexp(-1)
    logp = logits.gather(-1, tokens[:, None]).squeeze(-1) - total
    entropy = total - (torch.softmax(logits, -1) * logits).sum(-1)  # -sum p log p, with log p = logits - total
    return logp, entropy


def select_logp(
    hidden: Tensor, head: Tensor, tokens: Tensor, mask: Tensor, temperature: float = 1.0, chunk: int = 4096
) -> tuple[Tensor, Tensor]:
    """Log-prob of each masked token and entropy of the distribution it was drawn from; zero outside the mask.

    hidden [B, T, D], head [V, D], tokens [B, T], mask [B, T] -> logp [B, T], entropy [B, T]
        logp_t = log softmax(head . hidden_{t-1} / temperature)[token_t],    entropy_t = -sum_v p_v log p_v
    Only the N masked positions meet the head, `chunk` at a time, and each chunk is recomputed in the backward pass: at most
    [chunk, V] logits exist at once, never [B, T, V]. The softmax is in float32 at least, also when the inputs are bfloat16.
    """
    assert not mask[:, 0].any(), "column 0 has no token before it that could predict it: mask[:, 0] must be False"
    states, wanted = align(hidden)[mask], tokens[mask]  # [N, D], [N]
    recompute = torch.is_grad_enabled() and (hidden.requires_grad or head.requires_grad) and len(states) > chunk
    parts = []
    for start in range(0, max(len(states), 1), chunk):
        rows = slice(start, start + chunk)
        if recompute:
            args = (states[rows], head, wanted[rows], temperature)
            parts.append(checkpoint(_chosen, *args, use_reentrant=False, preserve_rng_state=False))
        else:
            parts.append(_chosen(states[rows], head, wanted[rows], temperature))
    logp, entropy = (torch.cat(x) for x in zip(*parts, strict=True))
    blank = torch.zeros(mask.shape, dtype=logp.dtype, device=logp.device)
    return blank.masked_scatter(mask, logp), blank.masked_scatter(mask, entropy)


def logp_of_logits(logits: Tensor, tokens: Tensor) -> Tensor:  # [B, T, V], [B, T] -> [B, T]
    """Log-prob of each token given the whole logits tensor; column 0 is zero. For small models and tests."""
    logp = torch.log_softmax(logits.to(torch.promote_types(logits.dtype, torch.float32)), -1)
    return align(logp).gather(-1, tokens[..., None]).squeeze(-1)

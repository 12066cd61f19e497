"""From logits to a token and its log-prob: temperature, top-k, top-p, min-p."""

from __future__ import annotations

import torch
from torch import Tensor

from postgrad.sampling.base import Sampling


def choose(logits: Tensor, u: Tensor, settings: Sampling,
           ops) -> tuple[Tensor, Tensor]:  # [R, V], [R] -> tokens, logp [R]
    """A token by the inverse of the cumulative distribution at u,
    and its log-prob under that same distribution."""
    if settings.temperature == 0:
        return logits.argmax(-1), torch.zeros_like(u, dtype=torch.float32)
    if settings.whole:
        return ops.sample_tokens(logits, u, settings.temperature)
    return ops.sample_tokens(keep_likely(logits / settings.temperature, settings), u, 1.0)


def keep_likely(logits: Tensor, settings: Sampling) -> Tensor:  # [R, V] -> [R, V]
    """top-k, then top-p, then min-p; what they drop gets probability zero."""
    if settings.top_k and settings.top_k < logits.shape[1]:
        edge = logits.topk(settings.top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < edge, -torch.inf)
    if settings.top_p < 1:
        ordered, index = logits.sort(dim=-1, descending=True)
        p = ordered.softmax(-1)
        drop = p.cumsum(-1) - p >= settings.top_p  # the first token past the edge stays
        logits = logits.masked_fill(torch.zeros_like(drop).scatter(1, index, drop), -torch.inf)
    if settings.min_p > 0:
        p = logits.softmax(-1)
        logits = logits.masked_fill(p < settings.min_p * p.amax(-1, keepdim=True), -torch.inf)
    return logits

"""From logits to a token and its log-prob: temperature, top-k, top-p, min-p."""

from __future__ import annotations

import torch
from torch import Tensor

from postgrad.models.kernels import Kernels
from postgrad.records import Sampling


def draw_tokens(logits: Tensor, u: Tensor, sampling: Sampling,
                ops: Kernels) -> tuple[Tensor, Tensor]:  # [R, V], [R] -> tokens, logp [R]
    """A token by the inverse of the cumulative distribution at u, and its log-prob under that same
    distribution."""
    if sampling.temperature == 0:
        return logits.argmax(-1), torch.zeros_like(u, dtype=torch.float32)
    if sampling.unfiltered:
        return ops.sample_tokens(logits, u, sampling.temperature)
    return ops.sample_tokens(filter_logits(logits / sampling.temperature, sampling), u, 1.0)


def filter_logits(logits: Tensor, sampling: Sampling) -> Tensor:  # [R, V] -> [R, V]
    """top-k, then top-p, then min-p; the logits of what they drop become -inf."""
    if sampling.top_k and sampling.top_k < logits.shape[1]:
        edge = logits.topk(sampling.top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < edge, -torch.inf)
    if sampling.top_p < 1:
        ordered, index = logits.sort(dim=-1, descending=True)
        p = ordered.softmax(-1)
        drop = p.cumsum(-1) - p >= sampling.top_p  # the first token past the edge stays
        logits = logits.masked_fill(torch.zeros_like(drop).scatter(1, index, drop), -torch.inf)
    if sampling.min_p > 0:
        p = logits.softmax(-1)
        logits = logits.masked_fill(p < sampling.min_p * p.amax(-1, keepdim=True), -torch.inf)
    return logits

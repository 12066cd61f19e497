"""Tokens drawn from logits: what a sampling makes of a distribution, and log-probs."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from postgrad.models.kernels import Kernels
from postgrad.records import Sampling
from postgrad.sampling.scheduler import int_tensor
from postgrad.sampling.sequences import SampledToken


def with_logprobs(sampled: Sequence[SampledToken], logits: Tensor, sampling: Sampling | None,
                  top: int) -> list[SampledToken]:  # [R, V]
    """Sampled tokens with the log-probs of the distribution that a sampling makes of the logits, None: of the
    model's own, and those of its `top` likeliest tokens."""
    if sampling is not None and sampling.temperature == 0:
        return [s._replace(top=((s.token, s.logp),)) for s in sampled]
    if sampling is not None:
        logits = filter_logits(logits / sampling.temperature, sampling)
    all_logp = logits.log_softmax(-1)  # [R, V]
    index = int_tensor([s.token for s in sampled], logits.device)
    logps = all_logp.gather(1, index[:, None])[:, 0].tolist() if sampling is None else [
        s.logp for s in sampled]
    if not top:
        return [SampledToken(s.token, logp) for s, logp in zip(sampled, logps, strict=True)]
    best = all_logp.topk(min(top, all_logp.shape[1]))
    tops = zip(best.indices.tolist(), best.values.tolist(), strict=True)
    return [SampledToken(s.token, logp, tuple(zip(*likeliest, strict=True)))
            for s, logp, likeliest in zip(sampled, logps, tops, strict=True)]


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

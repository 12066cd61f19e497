"""Samples of one engine, trained in another: how much each token counts. One signature:

    (sampler_logp, old_logp, mask), all [B, T]  ->  weight [B, T], 1 where the two agree

w = pi_old / mu, mu the probabilities that the sampler reported, pi_old those of the policy as the trainer
computes it. The weight multiplies the surrogate's loss; it is a constant of the step. Where the sampler is
our own w is 1 up to rounding, and a row needs none; where it leaves unlikely tokens out (top_k, top_p, min_p)
w is the probability of those it kept, at most 1.
"""

from __future__ import annotations

import math
from typing import Annotated

import torch
from torch import Tensor

from postgrad.maths.logprob import row_sum
from postgrad.system.settings import NOT_NEGATIVE, POSITIVE


def truncated(
    sampler_logp: Tensor, old_logp: Tensor, mask: Tensor, *,
    cap: Annotated[float, POSITIVE, "the most that a token may count for",
                   "lower where effective_share falls"] = 2.0,
) -> Tensor:
    """min(w, cap) token by token: truncated importance sampling (Yao et al. 2025, "Your efficient RL
    framework secretly brings you off-policy RL training"; cap 2).

    w = 3 counts as 2, w = 0.1 as 0.1.
    """
    return torch.where(mask, old_logp - sampler_logp, 0.0).exp().clamp(max=cap)


def banded(
    sampler_logp: Tensor, old_logp: Tensor, mask: Tensor, *,
    least: Annotated[float, NOT_NEGATIVE, "the ratio of trainer to sampler below which a token is dropped",
                     "nearer to 1 drops more"] = 0.5,
    most: Annotated[float, POSITIVE, "the ratio of trainer to sampler above which a token is dropped",
                    "nearer to 1 drops more"] = 5.0,
) -> Tensor:
    """w where least <= w <= most, else 0, token by token: IcePop (Ling team 2025, 2510.18855).

    A token on which the engines part that far teaches nothing, of either sign.
    """
    ratio = torch.where(mask, old_logp - sampler_logp, 0.0).exp()
    return torch.where((ratio >= least) & (ratio <= most), ratio, 0.0)


def masked(
    sampler_logp: Tensor, old_logp: Tensor, mask: Tensor, *,
    highest: Annotated[float, POSITIVE, "the ratio of trainer to sampler above which a token is dropped",
                       "lower drops more; where effective_share falls"] = 2.0,
) -> Tensor:
    """w where w <= highest, else 0, token by token: masked importance sampling (Liu et al. 2025, "When speed
    kills stability"; TRL's token_mask).

    w = 3 counts as 0 where `truncated` counts it as 2; w = 0.1 counts as 0.1. banded without a lower edge.
    """
    return banded(sampler_logp, old_logp, mask, least=0.0, most=highest)


def geometric_banded(
    sampler_logp: Tensor, old_logp: Tensor, mask: Tensor, *,
    apart: Annotated[float, POSITIVE, "how far from 1 the mean ratio of a reply's tokens may be before the "
                     "reply is dropped", "lower drops more replies, short and long alike; verl's usual "
                     "thresholds are 1e-4 to 1e-3"] = 1e-3,
) -> Tensor:
    """1 where the geometric mean g of a reply's ratios has 1/(1 + apart) <= g <= 1 + apart, else 0, for all
    its tokens alike (Liu et al. 2025, "When speed kills stability"; verl's geometric rejection).

        g = (prod_t w_t)^(1/|y|) = exp(mean_t log w_t)
    A choice of replies, no weight: 100 tokens of w = 1.01 have the product 2.7 and g = 1.01, so that the
    limit does not depend on their number. A reply without tokens is kept, and has nothing to say.
    """
    gap = row_sum(torch.where(mask, old_logp - sampler_logp, 0.0)) / mask.sum(1).clamp(min=1)
    return (gap.abs() <= math.log1p(apart)).to(old_logp)[:, None].expand_as(old_logp)


def sequence_banded(
    sampler_logp: Tensor, old_logp: Tensor, mask: Tensor, *,
    widest: Annotated[float, POSITIVE, "the ratio of a whole reply above which it is dropped",
                      "it grows with the length of replies; lower where effective_share falls"] = 3.0,
) -> Tensor:
    """prod_t w_t of the whole reply where it is at most `widest`, else 0, for all its tokens alike (Liu et
    al. 2025, "When speed kills stability"; 3 is TRL's).

    Without a limit it is exact: the mean over the sampler's replies is that over the policy's own.
    """
    ratio = row_sum(torch.where(mask, old_logp - sampler_logp, 0.0)).exp()
    return torch.where(ratio <= widest, ratio, 0.0)[:, None].expand_as(old_logp)

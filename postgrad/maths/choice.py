"""Which tokens of a step are treated apart. One signature:

    (mask [B, T], adv [B, T], *, further columns) -> bool [B, T], true within the mask alone

A row of the table asks once for a step, with the whole step in hand, so that any split into passes gives the
same update: `choose` says which tokens count at all, `mark` which ones its surrogate treats otherwise.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from postgrad.maths.noise import widest
from postgrad.system.settings import FRACTION


def _top(x: Tensor, mask: Tensor, share: float) -> Tensor:  # [B, T] -> [B, T] bool
    """The largest share of x over the mask, at least one token; of equal ones the first."""
    order = torch.where(mask, x, -torch.inf).flatten().sort(descending=True, stable=True).indices
    rank = torch.empty_like(order).scatter(0, order, torch.arange(len(order), device=order.device))
    return mask & (rank < (share * widest(mask.sum())).floor().clamp(min=1)).view_as(mask)


def top_entropy(
    mask: Tensor, adv: Tensor, *, entropy: Tensor,
    share: Annotated[float, FRACTION, "the share of a step's tokens that count, at least one",
                     "0.2 in the paper; 1 is all"] = 0.2,
) -> Tensor:
    """The tokens at which the policy was least decided: the largest share of the step's entropies, at least
    one token (Wang et al. 2025, 2506.01939; a share of 0.2).

    The normaliser runs over the chosen tokens; the paper's over all.
    """
    return _top(entropy, mask, share)


def top_covariance(
    mask: Tensor, adv: Tensor, *, old_logp: Tensor,
    share: Annotated[float, FRACTION, "the share of a step's tokens that is held back, at least one",
                     "2e-3 in the paper for a 7B model; more where entropy falls to 0"] = 2e-4,
) -> Tensor:
    """The tokens that lower the entropy most: the largest share of (A - mean A)(log pi - mean log pi), means
    over the step, at least one token (KL-Cov, Cui et al. 2025, 2505.22617)."""
    count = mask.sum().clamp(min=1)
    apart = [x - torch.where(mask, x, 0.0).sum() / count for x in (adv, old_logp)]
    return _top(apart[0] * apart[1], mask, share)

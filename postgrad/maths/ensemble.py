"""Several reward models as one: members' scores [B, K] to a score [B].

A policy finds the answers that one model overrates; where the members disagree, their data did not decide.
"""

from __future__ import annotations

from torch import Tensor


def mean(scores: Tensor) -> Tensor:  # [B, K] -> [B]
    """What they say on average."""
    return scores.mean(1)


def minimum(scores: Tensor) -> Tensor:
    """The most sceptical member (worst-case optimisation, Coste et al. 2023, 2310.02743)."""
    return scores.amin(1)


def penalised(scores: Tensor, *, weight: float = 1.0) -> Tensor:
    """mean - weight * variance between the members (uncertainty-weighted optimisation, the same paper).

    Alike: the mean.
    """
    return scores.mean(1) - weight * scores.var(1, unbiased=False)


RULES = {"mean": mean, "min": minimum, "penalised": penalised}

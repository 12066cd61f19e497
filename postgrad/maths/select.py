"""Which of a prompt's samples are kept: best-of-n, rejection sampling,
and pairs for online preference learning."""

from __future__ import annotations

import math
from typing import Annotated

from torch import Tensor

from postgrad.maths.credit import by_prompt, flat_groups

ROUNDING = 1e-6  # a sum of weighted parts may miss its best by so much


def _first(hit: Tensor) -> Tensor:  # [P, G] bool -> [P, G] bool
    """The first True of each row alone."""
    return hit & (hit.cumsum(1) == 1)


def best_of_group(score: Tensor, group_size: int) -> Tensor:  # [B] -> [B] bool
    """The best sample of each prompt; of several equally good ones, the first."""
    group = by_prompt(score, group_size)
    return _first(group == group.amax(1, keepdim=True)).view(-1)


def passing(
    score: Tensor, group_size: int, *, best: float,
    threshold: Annotated[float, "the share of the best score that a reply needs to be imitated",
                         "lower where no reply reaches it"] = 1.0,
) -> Tensor:  # [B] -> [B] bool
    """Every sample that scores at least this share of the best score there is: rejection sampling.

    A prompt may keep none, or all. passing([1.2, 1.0], 2, best=1.2, threshold=1.0) -> [True, False]
    """
    return by_prompt(score, group_size).view(-1) >= threshold * best - ROUNDING


def best_and_worst(score: Tensor, group_size: int) -> tuple[Tensor, Tensor]:  # [B] -> [K], [K] row indices
    """The rows of the best and the worst sample of each prompt; prompts whose samples all score the same give
    no pair."""
    group = by_prompt(score, group_size)
    best = _first(group == group.amax(1, keepdim=True)).view(-1).nonzero().squeeze(1)
    worst = _first(group == group.amin(1, keepdim=True)).view(-1).nonzero().squeeze(1)
    useful = ~flat_groups(score, group_size)
    return best[useful], worst[useful]


def best_of_n_kl(n: int) -> float:
    """The most that KL(best-of-n || base) can be: log n - (n-1)/n (Beirami et al. 2024, 2401.01879).

    0 at n = 1.
    """
    return math.log(n) - (n - 1) / n


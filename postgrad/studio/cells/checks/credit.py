"""Invariants of the advantages."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from postgrad.maths import credit
from postgrad.studio.cells.checks.base import Function, assert_close, invariant_of, vector


def advantages_of_group(f: Function, *scores: float) -> Tensor:
    """The advantages of one group, a row of two sampled tokens for each score."""
    mask = torch.tensor([[False, True, True]]).expand(len(scores), 3)
    found: Tensor = f(credit.place_reward(vector(*scores), mask), mask, len(scores))[:, 1]
    return found


@invariant_of("group-zscore")
def half_right(f: Function) -> None:
    """Rewards (1, 0, 0, 1): advantages (+1, -1, -1, +1)."""
    assert_close(advantages_of_group(f, 1, 0, 0, 1), vector(1, -1, -1, 1))


@invariant_of("group-zscore")
def one_of_eight(f: Function) -> None:
    """One of eight right: it gets +sqrt(7) = 2.6458, the others -0.3780."""
    assert_close(advantages_of_group(f, 1, *[0] * 7), vector(math.sqrt(7), *[-1 / math.sqrt(7)] * 7))


@invariant_of("group-zscore")
def no_signal_from_equals(f: Function) -> None:
    """All equal: all zero, and never a NaN."""
    assert_close(advantages_of_group(f, 0.3, 0.3, 0.3, 0.3), 0.0)


@invariant_of("group-zscore")
def shift_and_scale(f: Function) -> None:
    """Shifted or scaled rewards give the same advantages."""
    assert_close(advantages_of_group(f, 12, 10, 13), advantages_of_group(f, 0.2, 0, 0.3))


@invariant_of("group-zscore")
def advantages_sum_to_zero(f: Function) -> None:
    """The advantages of a group sum to 0."""
    assert_close(advantages_of_group(f, 0.9, 0.1, 0.4, 0.7, 0).sum(), 0.0)


@invariant_of("leave-one-out")
def one_of_three(f: Function) -> None:
    """Rewards (1, 0, 0): advantages (1, -0.5, -0.5)."""
    assert_close(advantages_of_group(f, 1, 0, 0), vector(1, -0.5, -0.5))


@invariant_of("leave-one-out")
def a_scaled_centre(f: Function) -> None:
    """It is G / (G - 1) times reward minus the mean of the group."""
    assert_close(advantages_of_group(f, 3, 1, 0, 2),
                 4 / 3 * advantages_of_group(credit.group_centre, 3, 1, 0, 2))


@invariant_of("leave-one-out")
def own_reward_stays_out_of_the_baseline(f: Function) -> None:
    """One's own reward moves one's advantage one to one: it is not in one's own baseline."""
    assert_close(advantages_of_group(f, 5, 1, 0)[0] - advantages_of_group(f, 2, 1, 0)[0], 3.0)


def advantages_of_row(f: Function, reward: Tensor, value: Tensor | None = None,
                      **constants: float) -> Tensor:
    mask = torch.ones(1, len(reward), dtype=torch.bool)
    value = torch.zeros_like(reward) if value is None else value
    found: Tensor = f(reward[None], mask, 1, value=value[None], **constants)[0]
    return found


@invariant_of("gae")
def a_terminal_reward_reaches_every_token(f: Function) -> None:
    """V = 0, gamma = lambda = 1: every token's advantage is the final reward."""
    assert_close(advantages_of_row(f, vector(0, 0, 0, 2), gamma=1.0, lam=1.0), 2.0)


@invariant_of("gae")
def lambda_zero_is_one_step(f: Function) -> None:
    """lambda = 0: A_t = r_t + gamma V_{t+1} - V_t."""
    assert_close(advantages_of_row(f, vector(0, 1, 2), vector(0.5, 0.25, 1), gamma=0.9, lam=0.0),
                 vector(-0.275, 1.65, 1))


@invariant_of("gae")
def lambda_one_is_return_less_value(f: Function) -> None:
    """lambda = 1: A_t = return - V_t."""
    assert_close(advantages_of_row(f, vector(0, 1, 2), vector(0.5, 0.25, 1), gamma=1.0, lam=1.0),
                 vector(2.5, 2.75, 1))


@invariant_of("gae")
def nothing_outside_the_mask(f: Function) -> None:
    """Tokens that were not sampled get 0, and are stepped over."""
    mask = torch.tensor([[True, False, True]])
    reward = vector(0, 0, 1)[None]
    assert_close(f(reward, mask, 1, value=torch.zeros_like(reward), gamma=0.5, lam=1.0)[0], vector(0.5, 0, 1))

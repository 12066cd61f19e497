"""Invariants of a token's loss and of the distance to the reference."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from postgrad.maths import kl, surrogate
from postgrad.studio.cells.checks.base import (
    Function,
    assert_close,
    gradient_at,
    invariant_of,
    number_text,
    vector,
)


def loss_at(f: Function, ratio: float, adv: float) -> tuple[Tensor, Tensor]:
    """Loss and gradient on log pi of one token, clip 0.2."""
    one = torch.ones(1, 1, dtype=torch.bool)
    def call(logp: Tensor) -> Tensor:
        loss: Tensor = f(logp, torch.zeros_like(logp), torch.full_like(logp, adv), one, low=0.2, high=0.2)[0]
        return loss

    logp = vector(math.log(ratio))[None]
    return call(logp)[0], gradient_at(call, logp)[0]


@invariant_of("clip")
def a_good_token_counts_for_at_most_1_2(f: Function) -> None:
    """rho 4, A > 0: the ratio counts as 1.2."""
    assert_close(loss_at(f, 4, 1)[0], vector(-1.2))


@invariant_of("clip")
def a_bad_token_counts_for_at_least_0_8(f: Function) -> None:
    """rho 0.1, A < 0: the ratio counts as 0.8."""
    assert_close(loss_at(f, 0.1, -1)[0], vector(0.8))


@invariant_of("clip")
def flat_past_the_edge(f: Function) -> None:
    """Past the edge the gradient is zero, on each side."""
    assert_close(loss_at(f, 4, 1)[1], vector(0))
    assert_close(loss_at(f, 0.1, -1)[1], vector(0))


@invariant_of("clip")
def clip_leaves_the_way_back_open(f: Function) -> None:
    """A move in the wrong direction is never clipped: rho 4 with A < 0 keeps its gradient."""
    assert_close(loss_at(f, 4, -1)[1], vector(4))
    assert_close(loss_at(f, 0.1, 1)[1], vector(-0.1))


@invariant_of("clip")
def on_policy_it_is_reinforce(f: Function) -> None:
    """At rho = 1 its gradient is that of REINFORCE."""
    plain = lambda *args, low, high: surrogate.policy_gradient(*args)  # noqa: E731
    for adv in (1.5, -0.5):
        assert_close(loss_at(f, 1, adv)[1], loss_at(plain, 1, adv)[1])


@invariant_of("k3")
def k3_is_never_negative(f: Function) -> None:
    """Never below 0, whichever way the two differ."""
    values = f(vector(-3, -1, -0.1, -2), vector(-1, -3, -0.2, -2))
    assert (values >= 0).all(), f"{number_text(values)} holds a number below 0"


@invariant_of("k3")
def zero_at_equality(f: Function) -> None:
    """Zero exactly where both give the same log-probability."""
    assert_close(f(vector(-0.7, -9), vector(-0.7, -9)), 0.0, 1e-12)


@invariant_of("k3")
def its_mean_is_the_kl(f: Function) -> None:
    """Its mean under the policy is KL(pi || ref)."""
    p, q = vector(0.5, 0.3, 0.2), vector(0.2, 0.2, 0.6)
    assert_close((p * f(p.log(), q.log())).sum(), kl.exact_kl(p.log(), q.log()))


@invariant_of("k3")
def worked_number(f: Function) -> None:
    """d = log 2: exp(-d) - 1 + d = 0.1931."""
    assert_close(f(vector(math.log(2)), vector(0)), vector(0.5 - 1 + math.log(2)))


@invariant_of("k3")
def close_by_it_is_half_the_square(f: Function) -> None:
    """For a small d it is d^2 / 2, as k2 is."""
    assert_close(f(vector(1e-4), vector(0)) / kl.k2(vector(1e-4), vector(0)), vector(1), 1e-3)


def weight_of(f: Function, sampler: float, old: float, cap: float, sampled: bool = True) -> float:
    """The weight of one token with these probabilities."""
    at, now = (torch.tensor([[x]], dtype=torch.float64).log() for x in (sampler, old))
    return float(f(at, now, torch.tensor([[sampled]]), cap=cap)[0, 0])


@invariant_of("truncated")
def a_weight_below_the_limit_is_the_ratio(f: Function) -> None:
    """Half as likely for the trainer as for the sampler counts 0.5; a tenth as likely counts 0.1."""
    assert_close([weight_of(f, 0.4, 0.2, 2.0), weight_of(f, 0.5, 0.05, 2.0)], [0.5, 0.1])


@invariant_of("truncated")
def a_weight_above_the_limit_is_the_limit(f: Function) -> None:
    """Three times as likely counts 2 under a limit of 2, and 3 under a limit of 5."""
    assert_close([weight_of(f, 0.1, 0.3, 2.0), weight_of(f, 0.1, 0.3, 5.0)], [2.0, 3.0])


@invariant_of("truncated")
def the_mean_never_rises_above_one(f: Function) -> None:
    """Under the sampler the weights have the mean 1, and less where the limit cuts."""
    sampler, old = (0.7, 0.2, 0.1), (0.35, 0.3, 0.35)
    means = [sum(p * weight_of(f, p, q, cap) for p, q in zip(sampler, old, strict=True))
             for cap in (9.0, 2.0)]
    assert_close(means, [1.0, 0.85])


@invariant_of("truncated")
def what_was_not_sampled_counts_as_it_is(f: Function) -> None:
    """A token outside the mask has the weight 1, whatever its log-probabilities say."""
    assert_close(weight_of(f, 0.1, 0.9, 2.0, sampled=False), 1.0)

"""Invariants of the losses on pairs."""

import math

from postgrad.maths import preference
from postgrad.studio.cells.checks.base import Function, assert_close, gradient_at, invariant_of, vector


@invariant_of("bradley-terry")
def equal_rewards_cost_log_two(f: Function) -> None:
    """Equal rewards: the loss is log 2 = 0.6931."""
    assert_close(f(vector(0, 3), vector(0, 3), vector(0, 0)), math.log(2))


@invariant_of("bradley-terry")
def only_the_gap_counts(f: Function) -> None:
    """Shift both rewards by the same amount: nothing changes."""
    assert_close(f(vector(7.5), vector(6.1), vector(0)), f(vector(1.4), vector(0), vector(0)))


@invariant_of("bradley-terry")
def probabilities_of_both_orders_sum_to_one(f: Function) -> None:
    """P(w > l) + P(l > w) = 1."""
    w, l, none = vector(2, -1), vector(0.5, 3), vector(0, 0)  # noqa: E741
    assert_close((-f(w, l, none)).exp() + (-f(l, w, none)).exp(), 1.0)


@invariant_of("bradley-terry")
def the_gradient_is_the_doubt(f: Function) -> None:
    """The gradient on the chosen reward is -P(l > w): the surer, the smaller."""
    assert_close(gradient_at(lambda w: f(w, vector(0), vector(0)), vector(2)), -1 / (1 + math.exp(2)))


@invariant_of("bradley-terry")
def a_margin_asks_for_more(f: Function) -> None:
    """A gap equal to the margin costs log 2 again."""
    assert_close(f(vector(1.5), vector(0.5), vector(1)), math.log(2))


@invariant_of("dpo")
def policy_is_reference(f: Function) -> None:
    """Policy = reference (both log-ratios 0): log 2, for any beta."""
    for beta in (0.1, 1.0, 5.0):
        assert_close(f(vector(0), vector(0), vector(0), beta=beta), math.log(2))


@invariant_of("dpo")
def ratios_two_and_a_half(f: Function) -> None:
    """Ratio 2 on the chosen, 0.5 on the rejected, beta 1: the preference has probability 0.8."""
    assert_close((-f(vector(math.log(2)), vector(math.log(0.5)), vector(0), beta=1.0)).exp(), 0.8)


@invariant_of("dpo")
def worked_example(f: Function) -> None:
    """Log-ratios +0.3 and +0.9, beta 1: loss 1.0375, gradients -0.6457 and +0.6457."""
    assert_close(f(vector(0.3), vector(0.9), vector(0), beta=1.0), 1.0375, 1e-4)
    assert_close(gradient_at(lambda w: f(w, vector(0.9), vector(0), beta=1.0), vector(0.3)), -0.6457, 1e-4)
    assert_close(gradient_at(lambda x: f(vector(0.3), x, vector(0), beta=1.0), vector(0.9)), 0.6457, 1e-4)


@invariant_of("dpo")
def bradley_terry_of_the_implicit_reward(f: Function) -> None:
    """It is Bradley-Terry with the reward beta log(pi / ref)."""
    w, l, m = vector(1, -2), vector(0.5, 0.25), vector(0, 0.5)  # noqa: E741
    assert_close(f(w, l, m, beta=0.3), preference.bradley_terry(0.3 * w, 0.3 * l, m))


@invariant_of("ipo")
def zero_at_its_target(f: Function) -> None:
    """Zero where the gap is 1 / (2 beta), and nowhere else."""
    assert_close(f(vector(5, 2), vector(0, -3), vector(0, 0), beta=0.1), 0.0)
    assert (f(vector(6, 4), vector(0, 0), vector(0, 0), beta=0.1) > 0).all(), "it is 0 beside its target too"


@invariant_of("ipo")
def wider_than_the_target_costs(f: Function) -> None:
    """A gap beyond the target costs as much as one that falls short by the same:
    no reward for overconfidence."""
    assert_close(f(vector(7), vector(0), vector(0), beta=0.1), f(vector(3), vector(0), vector(0), beta=0.1))

"""The invariants of the functions that can be edited in a cell: a worked number, an identity, a limit. One sentence each.

Each takes the (edited) function and raises AssertionError with what it saw. The sentences are shown beneath the cell.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable

import torch
from torch import Tensor

from postgrad.maths import credit, kl, preference, surrogate

CHECKS: dict[str, list[Callable]] = defaultdict(list)
D = torch.float64


def of(cell: str) -> Callable:
    """Says which cell an invariant belongs to."""
    def place(check: Callable) -> Callable:
        CHECKS[cell].append(check)
        return check
    return place


def vector(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=D)


def shown(x) -> str:
    if isinstance(x, Tensor):
        return shown(x.tolist())
    if isinstance(x, list | tuple):
        return f"({', '.join(map(shown, x))})"
    return f"{x:.4g}" if isinstance(x, float) else str(x)


def same(got, wanted, tolerance: float = 1e-6) -> None:
    """Equal to rounding, or a sentence with both."""
    a, b = (torch.as_tensor(x, dtype=D) for x in (got, wanted))
    b = b.expand_as(a) if b.dim() == 0 else b
    assert a.shape == b.shape and torch.allclose(a, b, 0.0, tolerance), f"{shown(got)} instead of {shown(wanted)}"


def slope(f: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    x = at.clone().requires_grad_()
    value = f(x).sum()
    return torch.autograd.grad(value, x)[0] if value.requires_grad else torch.zeros_like(x)


def group(f: Callable, *scores: float) -> Tensor:
    """The advantages of one group, a row of two sampled tokens for each score."""
    mask = torch.tensor([[False, True, True]]).expand(len(scores), 3)
    return f(credit.place_reward(vector(*scores), mask), mask, len(scores))[:, 1]


@of("bradley-terry")
def equal_rewards_cost_log_two(f):
    """Equal rewards: the loss is log 2 = 0.6931."""
    same(f(vector(0, 3), vector(0, 3), vector(0, 0)), math.log(2))


@of("bradley-terry")
def only_the_gap_counts(f):
    """Shift both rewards by the same amount: nothing changes."""
    same(f(vector(7.5), vector(6.1), vector(0)), f(vector(1.4), vector(0), vector(0)))


@of("bradley-terry")
def probabilities_of_both_orders_sum_to_one(f):
    """P(w > l) + P(l > w) = 1."""
    w, l, none = vector(2, -1), vector(0.5, 3), vector(0, 0)  # noqa: E741
    same((-f(w, l, none)).exp() + (-f(l, w, none)).exp(), 1.0)


@of("bradley-terry")
def the_gradient_is_the_doubt(f):
    """The gradient on the chosen reward is -P(l > w): the surer, the smaller."""
    same(slope(lambda w: f(w, vector(0), vector(0)), vector(2)), -1 / (1 + math.exp(2)))


@of("bradley-terry")
def a_margin_asks_for_more(f):
    """A gap equal to the margin costs log 2 again."""
    same(f(vector(1.5), vector(0.5), vector(1)), math.log(2))


@of("dpo")
def policy_is_reference(f):
    """Policy = reference (both log-ratios 0): log 2, for any beta."""
    for beta in (0.1, 1.0, 5.0):
        same(f(vector(0), vector(0), vector(0), beta=beta), math.log(2))


@of("dpo")
def ratios_two_and_a_half(f):
    """Ratio 2 on the chosen, 0.5 on the rejected, beta 1: the preference has probability 0.8."""
    same((-f(vector(math.log(2)), vector(math.log(0.5)), vector(0), beta=1.0)).exp(), 0.8)


@of("dpo")
def worked_example(f):
    """Log-ratios +0.3 and +0.9, beta 1: loss 1.0375, gradients -0.6457 and +0.6457."""
    same(f(vector(0.3), vector(0.9), vector(0), beta=1.0), 1.0375, 1e-4)
    same(slope(lambda w: f(w, vector(0.9), vector(0), beta=1.0), vector(0.3)), -0.6457, 1e-4)
    same(slope(lambda l: f(vector(0.3), l, vector(0), beta=1.0), vector(0.9)), 0.6457, 1e-4)  # noqa: E741


@of("dpo")
def bradley_terry_of_the_implicit_reward(f):
    """It is Bradley-Terry with the reward beta log(pi / ref)."""
    w, l, m = vector(1, -2), vector(0.5, 0.25), vector(0, 0.5)  # noqa: E741
    same(f(w, l, m, beta=0.3), preference.bradley_terry(0.3 * w, 0.3 * l, m))


@of("ipo")
def zero_at_its_target(f):
    """Zero where the gap is 1 / (2 beta), and nowhere else."""
    same(f(vector(5, 2), vector(0, -3), vector(0, 0), beta=0.1), 0.0)
    assert (f(vector(6, 4), vector(0, 0), vector(0, 0), beta=0.1) > 0).all(), "it is 0 beside its target too"


@of("ipo")
def wider_than_the_target_costs(f):
    """A gap beyond the target costs as much as one that falls short by the same: no reward for overconfidence."""
    same(f(vector(7), vector(0), vector(0), beta=0.1), f(vector(3), vector(0), vector(0), beta=0.1))


@of("group-zscore")
def half_right(f):
    """Rewards (1, 0, 0, 1): advantages (+1, -1, -1, +1)."""
    same(group(f, 1, 0, 0, 1), vector(1, -1, -1, 1))


@of("group-zscore")
def one_of_eight(f):
    """One of eight right: it gets +sqrt(7) = 2.6458, the others -0.3780."""
    same(group(f, 1, *[0] * 7), vector(math.sqrt(7), *[-1 / math.sqrt(7)] * 7))


@of("group-zscore")
def no_signal_from_equals(f):
    """All equal: all zero, and never a NaN."""
    same(group(f, 0.3, 0.3, 0.3, 0.3), 0.0)


@of("group-zscore")
def shift_and_scale(f):
    """Shifted or scaled rewards give the same advantages."""
    same(group(f, 12, 10, 13), group(f, 0.2, 0, 0.3))


@of("group-zscore")
def sums_to_zero(f):
    """The advantages of a group sum to 0."""
    same(group(f, 0.9, 0.1, 0.4, 0.7, 0).sum(), 0.0)


@of("leave-one-out")
def one_of_three(f):
    """Rewards (1, 0, 0): advantages (1, -0.5, -0.5)."""
    same(group(f, 1, 0, 0), vector(1, -0.5, -0.5))


@of("leave-one-out")
def a_scaled_centre(f):
    """It is G / (G - 1) times reward less the mean of the group."""
    same(group(f, 3, 1, 0, 2), 4 / 3 * group(credit.group_centre, 3, 1, 0, 2))


@of("leave-one-out")
def own_reward_stays_out_of_the_baseline(f):
    """One's own reward moves one's advantage one to one: it is not in one's own baseline."""
    same(group(f, 5, 1, 0)[0] - group(f, 2, 1, 0)[0], 3.0)


def row(f: Callable, reward: Tensor, value: Tensor | None = None, **constants) -> Tensor:
    mask = torch.ones(1, len(reward), dtype=torch.bool)
    return f(reward[None], mask, 1, None if value is None else value[None], **constants)[0]


@of("gae")
def a_terminal_reward_reaches_every_token(f):
    """V = 0, gamma = lambda = 1: every token's advantage is the final reward."""
    same(row(f, vector(0, 0, 0, 2), gamma=1.0, lam=1.0), 2.0)


@of("gae")
def lambda_zero_is_one_step(f):
    """lambda = 0: A_t = r_t + gamma V_{t+1} - V_t."""
    same(row(f, vector(0, 1, 2), vector(0.5, 0.25, 1), gamma=0.9, lam=0.0), vector(-0.275, 1.65, 1))


@of("gae")
def lambda_one_is_return_less_value(f):
    """lambda = 1: A_t = return - V_t."""
    same(row(f, vector(0, 1, 2), vector(0.5, 0.25, 1), gamma=1.0, lam=1.0), vector(2.5, 2.75, 1))


@of("gae")
def nothing_outside_the_mask(f):
    """Tokens that were not sampled get 0, and are stepped over."""
    mask = torch.tensor([[True, False, True]])
    same(f(vector(0, 0, 1)[None], mask, 1, None, gamma=0.5, lam=1.0)[0], vector(0.5, 0, 1))


def at(f: Callable, ratio: float, adv: float) -> tuple[Tensor, Tensor]:
    """Loss and gradient on log pi of one token, clip 0.2."""
    one = torch.ones(1, 1, dtype=torch.bool)
    call = lambda logp: f(logp, torch.zeros_like(logp), torch.full_like(logp, adv), one, low=0.2, high=0.2)[0]  # noqa: E731
    logp = vector(math.log(ratio))[None]
    return call(logp)[0], slope(call, logp)[0]


@of("clip")
def a_good_token_counts_for_at_most_1_2(f):
    """rho 4, A > 0: the ratio counts as 1.2."""
    same(at(f, 4, 1)[0], vector(-1.2))


@of("clip")
def a_bad_token_counts_for_at_least_0_8(f):
    """rho 0.1, A < 0: the ratio counts as 0.8."""
    same(at(f, 0.1, -1)[0], vector(0.8))


@of("clip")
def flat_past_the_edge(f):
    """Past the edge the gradient is zero, on each side."""
    same(at(f, 4, 1)[1], vector(0))
    same(at(f, 0.1, -1)[1], vector(0))


@of("clip")
def the_way_back_is_open(f):
    """A move in the wrong direction is never clipped: rho 4 with A < 0 keeps its gradient."""
    same(at(f, 4, -1)[1], vector(4))
    same(at(f, 0.1, 1)[1], vector(-0.1))


@of("clip")
def on_policy_it_is_reinforce(f):
    """At rho = 1 its gradient is that of REINFORCE."""
    plain = lambda *args, low, high: surrogate.policy_gradient(*args)  # noqa: E731
    for adv in (1.5, -0.5):
        same(at(f, 1, adv)[1], at(plain, 1, adv)[1])


@of("k3")
def never_negative(f):
    """Never below 0, whichever way the two differ."""
    values = f(vector(-3, -1, -0.1, -2), vector(-1, -3, -0.2, -2))
    assert (values >= 0).all(), f"{shown(values)} holds a number below 0"


@of("k3")
def zero_at_equality(f):
    """Zero exactly where both give the same log-probability."""
    same(f(vector(-0.7, -9), vector(-0.7, -9)), 0.0, 1e-12)


@of("k3")
def its_mean_is_the_kl(f):
    """Its mean under the policy is KL(pi || ref)."""
    p, q = vector(0.5, 0.3, 0.2), vector(0.2, 0.2, 0.6)
    same((p * f(p.log(), q.log())).sum(), kl.exact_kl(p.log(), q.log()))


@of("k3")
def worked_number(f):
    """d = log 2: exp(-d) - 1 + d = 0.1931."""
    same(f(vector(math.log(2)), vector(0)), vector(0.5 - 1 + math.log(2)))


@of("k3")
def close_by_it_is_half_the_square(f):
    """For a small d it is d^2 / 2, as k2 is."""
    same(f(vector(1e-4), vector(0)) / kl.k2(vector(1e-4), vector(0)), vector(1), 1e-3)


LOGITS, TOKENS = torch.tensor([[[1.0, 2.0, 3.0], [0.0, 0.0, 0.0], [4.0, 0.0, 0.0]]], dtype=D), torch.tensor([[0, 2, 1]])


@of("logp")
def read_one_place_earlier(f):
    """The log-probability of token t is read at token t - 1."""
    same(f(LOGITS, TOKENS)[0], vector(0, 3 - vector(1, 2, 3).logsumexp(0), -math.log(3)))


@of("logp")
def nothing_predicts_the_first(f):
    """Column 0 is zero: nothing predicts the first token."""
    same(f(LOGITS, TOKENS)[0][0], 0.0)


@of("logp")
def a_distribution(f):
    """Over all values of a token, the probabilities sum to 1."""
    same(sum(f(LOGITS, torch.tensor([[0, v, 0]]))[0][1].exp() for v in range(3)), 1.0)


MASK = torch.tensor([[False, True, True, True], [False, True, False, False]])


@of("sequence-mean")
def weights_sum_to_one(f):
    """All weights sum to 1."""
    same(f(MASK, 8).sum(), 1.0)


@of("sequence-mean")
def every_row_counts_the_same(f):
    """A row of three tokens and a row of one count the same: 1/2 each."""
    same(f(MASK, 8).sum(1), vector(0.5, 0.5))


@of("sequence-mean")
def an_empty_row_is_not_there(f):
    """A row without sampled tokens changes nothing for the others."""
    more = torch.cat([MASK, torch.zeros(1, 4, dtype=torch.bool)])
    same(f(more, 8)[:2], f(MASK, 8))


@of("pass-at-k")
def one_sample_is_the_share(f):
    """k = 1 gives c / n."""
    same([f(8, c, 1) for c in range(9)], [c / 8 for c in range(9)])


@of("pass-at-k")
def counted_by_hand(f):
    """4 samples, 1 right, k = 2: half of the pairs hold the right one."""
    same(f(4, 1, 2), 0.5)


@of("pass-at-k")
def certain_when_wrong_ones_run_out(f):
    """Fewer than k wrong samples: certain."""
    same(f(8, 5, 4), 1.0)

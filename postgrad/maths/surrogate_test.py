import math
from functools import partial

import pytest
import torch

from postgrad.maths.surrogate import (
    cispo,
    clipped_ratio,
    clipped_value,
    geometric_mean,
    marked_penalty,
    policy_gradient,
    probability_clip,
    sequence_ratio,
    soft_gate,
    squared_ratio,
    stale_dropped,
)
from postgrad.maths.weights import sequence_mean, token_mean

D = torch.float64
ONE = torch.ones(1, 1, dtype=torch.bool)
clip02 = partial(clipped_ratio, low=0.2, high=0.2)


def at(surrogate, ratio, adv, old=1.0):
    """loss, gradient in logp and clipped, for one token with that ratio and advantage, `old` the probability
    that it was sampled with."""
    logp = torch.tensor([[math.log(ratio * old)]], dtype=D, requires_grad=True)
    old_logp, adv = torch.full((1, 1), math.log(old), dtype=D), torch.full((1, 1), adv, dtype=D)
    loss, clipped = surrogate(logp, old_logp, adv, ONE)
    loss.sum().backward()
    return loss.item(), logp.grad.item(), clipped.item()


def tv(logp, old_logp, adv, mask, **constants):
    """probability_clip where the sampler is our own."""
    return probability_clip(logp, old_logp, adv, mask, sampler_logp=old_logp, **constants)


def test_clipped_ratio_by_hand():
    assert at(clip02, 4.0, 1.0) == (pytest.approx(-1.2), 0.0, True)  # the ratio counts as 1.2
    assert at(clip02, 0.1, -1.0) == (pytest.approx(0.8), 0.0, True)  # as 0.8
    # the way back is never closed
    assert at(clip02, 0.1, 1.0) == (pytest.approx(-0.1), pytest.approx(-0.1), False)
    assert at(clip02, 4.0, -1.0) == (pytest.approx(4.0), pytest.approx(4.0), False)
    assert at(clip02, 1.1, 2.0) == (pytest.approx(-2.2), pytest.approx(-2.2), False)
    wider = partial(clipped_ratio, low=0.2, high=0.28)
    assert at(wider, 1.25, 1.0)[2] is False and at(clip02, 1.25, 1.0)[2] is True


def test_squared_ratio_by_hand():
    """-A log pi + beta/2 (log rho)^2, at log pi = log 4 and log pi_old = 0; its slope: -A + beta log rho."""
    loss, grad, clipped = at(partial(squared_ratio, beta=0.5), 4.0, 3.0)
    assert loss == pytest.approx(-3 * math.log(4) + 0.25 * math.log(4) ** 2)
    assert grad == pytest.approx(-3 + 0.5 * math.log(4)) and clipped is False


def test_cispo_by_hand():
    f = partial(cispo, low=1.0, high=4.0)
    loss, grad, clipped = at(f, 8.0, 1.0)
    # held at 5, still a gradient
    assert (loss, grad, clipped) == (pytest.approx(-5 * math.log(8)), pytest.approx(-5.0), True)
    assert at(f, 0.01, -1.0)[1:] == (pytest.approx(0.01), False)  # no lower clip
    assert at(f, 2.0, 3.0)[1:] == (pytest.approx(-6.0), False)  # the gradient of the unclipped ratio, rho A


def test_probability_clip_by_hand():
    f = partial(tv, low=0.15, high=0.15)
    # a hundredfold of a rare token is a small move; past 1.2 the ratio's clip would have cut it
    assert at(f, 100.0, 1.0, old=1e-5) == (pytest.approx(-100.0), pytest.approx(-100.0), False)
    assert at(clip02, 100.0, 1.0, old=1e-5)[1:] == (0.0, True)
    # from 0.99 to 0.8 the ratio is 0.81: within its clip, and out of the trust region
    assert at(f, 0.8 / 0.99, -1.0, old=0.99) == (0.0, 0.0, True)
    assert at(clip02, 0.8 / 0.99, -1.0, old=0.99)[2] is False
    assert at(f, 0.8 / 0.99, 1.0, old=0.99)[1:] == (pytest.approx(-0.8 / 0.99), False)  # the way back is open
    assert at(f, 1.5, 2.0, old=0.4)[1:] == (0.0, True) and at(f, 1.3, 2.0, old=0.4)[1] == pytest.approx(-2.6)
    # an engine that sampled with 0.7 where the trainer says 0.99: 0.8 has risen from there, by 0.1
    other = partial(probability_clip, low=0.15, high=0.15, sampler_logp=torch.full((1, 1), math.log(0.7)))
    assert at(other, 0.8 / 0.99, -1.0, old=0.99)[1:] == (pytest.approx(0.8 / 0.99), False)
    assert at(other, 0.9 / 0.99, 1.0, old=0.99)[1:] == (0.0, True)
    pulled = partial(f, square=0.5)  # 0.5 (log 1.5)^2 = 0.082201 and 2 * 0.5 log 1.5, also where it is cut
    assert at(pulled, 1.5, 2.0, old=0.4) == (pytest.approx(0.082201, abs=1e-6), pytest.approx(math.log(1.5)),
                                             True)


def test_soft_gate_by_hand():
    f = partial(soft_gate, praised=1.0, blamed=1.05)
    assert at(f, 1.0, 1.0) == (pytest.approx(-2.0), pytest.approx(-1.0), False)  # 4 sigmoid(0)
    # rho 2, A 1: s = sigmoid(1) = 0.731059; loss -4 s, gradient -4 rho s (1 - s) = -8 * 0.196612
    assert at(f, 2.0, 1.0) == (pytest.approx(-2.924234, abs=1e-6), pytest.approx(-1.572896, abs=1e-6), False)
    # rho 2, A -1: s = sigmoid(1.05) = 0.740775; 4 s / 1.05, 8 s (1 - s)
    assert at(f, 2.0, -1.0) == (pytest.approx(2.821999, abs=1e-6), pytest.approx(1.536220, abs=1e-6), False)
    # rho 1/2, A -2: s = sigmoid(-0.525) = 0.371684; 2 * 4 / 2 * s (1 - s)
    assert at(f, 0.5, -2.0)[1] == pytest.approx(0.934140, abs=1e-6)
    assert abs(at(f, 8.0, 1.0)[1]) < 0.03  # far off there is next to nothing, and no edge


def test_geometric_mean_by_hand():
    f = partial(geometric_mean, low=0.4, high=0.4)
    assert at(f, 1.4, 1.0) == (pytest.approx(-1.4), pytest.approx(-1.4), False)  # within exp(0.4) = 1.4918
    assert at(f, 2.0, 1.0) == (pytest.approx(-1.491825, abs=1e-6), 0.0, True)
    assert at(f, 0.5, -1.0) == (pytest.approx(0.670320, abs=1e-6), 0.0, True)  # exp(-0.4)
    assert at(f, 0.5, 1.0)[1:] == (pytest.approx(-0.5), False)  # the way back is open
    assert at(f, 2.0, -1.0)[1:] == (pytest.approx(2.0), False)
    # ratios 2 (held at exp 0.4) and 0.9: exp((0.4 - 0.105361) / 2) = 1.158724; only the second has a gradient
    logp = torch.tensor([[math.log(2.0), math.log(0.9)]], dtype=D, requires_grad=True)
    both, zero = torch.ones(1, 2, dtype=torch.bool), torch.zeros(1, 2, dtype=D)
    loss, clipped = f(logp, zero, torch.ones(1, 2, dtype=D), both)
    (loss * sequence_mean(both, 2)).sum().backward()
    assert loss.tolist() == [[pytest.approx(-1.158724, abs=1e-6)] * 2] and clipped.tolist() == [[True, False]]
    assert logp.grad.tolist() == [[0.0, pytest.approx(-1.158724 / 2, abs=1e-6)]]


@pytest.mark.parametrize("clip", [0.1, 0.4, 9.0])
def test_geometric_mean_with_sequence_mean_is_gmpo(clip):
    """-1/B sum_i A_i exp(mean_t sgn(A) min(sgn(A) log rho, sgn(A) clip(log rho))), and its gradient."""
    logp, old, adv, mask = case(off=0.5)
    mine, theirs = logp.clone().requires_grad_(), logp.clone().requires_grad_()
    total = (geometric_mean(mine, old, adv, mask, low=clip, high=clip)[0] * sequence_mean(mask, 4)).sum()
    terms = []
    for i in (0, 1, 2):
        x, sign = (theirs[i] - old[i])[mask[i]], adv[i][mask[i]][0].sign()
        held = sign * torch.minimum(sign * x, sign * x.clamp(-clip, clip))
        terms.append(adv[i][mask[i]][0] * held.mean().exp())
    paper = -sum(terms) / 3
    torch.testing.assert_close(total, paper)
    torch.testing.assert_close(*torch.autograd.grad(total, mine), *torch.autograd.grad(paper, theirs))


def test_stale_dropped_by_hand():
    """log mu - log pi is 0.4 and 0.8 in the first row, 0.6 on average; 0.4 and 0.5 in the second."""
    logp = torch.full((3, 2), -1.0, dtype=D, requires_grad=True)
    sampler = torch.tensor([[-0.6, -0.2], [-0.6, -0.5], [-0.6, -0.2]], dtype=D)
    adv = torch.tensor([[-1.0], [-1.0], [1.0]], dtype=D).expand(3, 2)
    mask = torch.ones(3, 2, dtype=torch.bool)
    f = partial(stale_dropped, sampler_logp=sampler, low=0.2, high=0.2, far=0.5)
    loss, clipped = f(logp, logp.detach(), adv, mask)
    loss.sum().backward()
    assert logp.grad.tolist() == [[0, 0], [1, 1], [-1, -1]]  # praise is never dropped
    assert clipped.tolist() == [[True, True], [False, False], [False, False]]
    near = partial(stale_dropped, sampler_logp=torch.zeros(1, 1, dtype=D), low=0.2, high=0.2, far=9.0)
    assert at(near, 4.0, 1.0) == at(clip02, 4.0, 1.0) and at(near, 0.1, -1.0) == at(clip02, 0.1, -1.0)


def test_marked_penalty_by_hand():
    free, held = (partial(marked_penalty, marked=torch.tensor([[x]]), penalty=1.0) for x in (False, True))
    assert at(free, 4.0, 1.0) == (pytest.approx(-4.0), pytest.approx(-4.0), False)  # no clip
    assert at(held, 4.0, 1.0) == (pytest.approx(-4 + math.log(4)), pytest.approx(-3.0), True)
    assert at(held, 0.5, 1.0) == (pytest.approx(-0.5 + math.log(2)), pytest.approx(-1.5), True)  # back up
    assert at(held, 1.0, 1.0) == (pytest.approx(-1.0), pytest.approx(-1.0), False)


def case(seed=0, off=0.3):
    draw = torch.Generator().manual_seed(seed)
    mask = torch.tensor([[0, 1, 1, 1, 0], [0, 1, 0, 0, 0], [0, 0, 1, 1, 1], [0, 0, 0, 0, 0]]).bool()
    logp = -torch.rand(4, 5, generator=draw, dtype=D) * mask
    old = (logp + off * torch.randn(4, 5, generator=draw, dtype=D)) * mask
    adv = torch.randn(4, 1, generator=draw, dtype=D) * mask
    return logp, old, adv, mask


MARKED = torch.tensor([[0, 1, 0, 0, 1], [0, 1, 0, 0, 0], [0, 0, 0, 1, 0], [1, 0, 0, 0, 0]]).bool()
YOUNG = [partial(tv, low=0.15, high=0.15, square=0.1),
         partial(soft_gate, praised=1.0, blamed=1.05), partial(geometric_mean, low=0.4, high=0.4),
         partial(marked_penalty, marked=MARKED, penalty=1.0), partial(squared_ratio, beta=0.1)]


@pytest.mark.parametrize("surrogate", [clip02, partial(cispo, low=1.0, high=4.0),
                                       partial(sequence_ratio, low=3e-4, high=4e-4), *YOUNG])
def test_on_policy_the_gradient_is_reinforce(surrogate):
    logp, _, adv, mask = case()
    weight = sequence_mean(mask, 4)
    grads = []
    for f in (surrogate, policy_gradient):
        x = logp.clone().requires_grad_()
        loss, clipped = f(x, logp, adv, mask)
        assert not clipped.any()
        (loss * weight).sum().backward()
        grads.append(x.grad)
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize(("low", "high"), [(3e-4, 4e-4), (0.2, 0.2), (9.0, 9.0)])
def test_sequence_ratio_with_sequence_mean_is_gspo(low, high):
    """-1/B sum_i min(s_i A_i, clip(s_i) A_i), one sequence after the other, and its gradient by autograd
    through s_i itself."""
    logp, old, adv, mask = case()
    mine, theirs = logp.clone().requires_grad_(), logp.clone().requires_grad_()
    loss, clipped = sequence_ratio(mine, old, adv, mask, low=low, high=high)
    total = (loss * sequence_mean(mask, 4)).sum()
    terms = []
    for i in (0, 1, 2):
        s = (theirs[i] - old[i])[mask[i]].mean().exp()
        a = adv[i][mask[i]][0]
        terms.append(torch.min(s * a, s.clamp(1 - low, 1 + high) * a))
        assert clipped[i][mask[i]].all() or not clipped[i].any()  # a sequence is clipped as a whole
    paper = -sum(terms) / 3
    torch.testing.assert_close(total, paper)
    torch.testing.assert_close(*torch.autograd.grad(total, mine), *torch.autograd.grad(paper, theirs))


def test_one_token_sequences_make_the_two_ratios_one():
    logp, old, adv, mask = case()
    single = mask & (mask.cumsum(1) == 1)
    a, b = (f(logp * single, old * single, adv, single, low=0.1, high=0.1)
            for f in (clipped_ratio, sequence_ratio))
    torch.testing.assert_close(a[0], b[0])
    assert torch.equal(a[1], b[1])


ALL = [policy_gradient, clip02, partial(cispo, low=1, high=4), partial(sequence_ratio, low=1, high=1), *YOUNG]


@pytest.mark.parametrize("surrogate", ALL)
def test_nothing_outside_the_mask(surrogate):
    logp, old, adv, mask = case()
    dirty = torch.where(mask, 0.0, 1e6)
    loss, clipped = surrogate(logp + dirty, old - dirty, adv + dirty, mask)
    assert not loss[~mask].any() and not clipped[~mask].any() and loss.isfinite().all()
    clean = surrogate(logp, old, adv, mask)[0]
    assert torch.equal(loss, clean)


def test_clipped_ratio_is_a_pessimist():
    """The clipped objective is never above the unclipped one."""
    logp, old, adv, mask = case(off=1.0)
    loss, clipped = clip02(logp, old, adv, mask)
    free = -(logp - old).exp() * adv * mask
    assert (loss >= free - 1e-15).all()
    assert torch.equal(loss > free + 1e-15, clipped) and clipped.any()
    assert (loss * token_mean(mask, 4)).sum() > (free * token_mean(mask, 4)).sum()


def test_clipped_value_by_hand():
    v, old, r = (torch.tensor([x], dtype=D) for x in (1.0, 0.0, 2.0))
    assert clipped_value(v, old, r, clip=0.2).item() == pytest.approx(1.62)  # held at 0.2: (0.2 - 2)^2 / 2
    assert clipped_value(v, old, r, clip=math.inf).item() == pytest.approx(0.5)
    # the larger of the two
    assert clipped_value(v, old, torch.tensor([-1.0], dtype=D), clip=0.2).item() == pytest.approx(2.0)

import math
from functools import partial

import pytest
import torch

from postgrad.maths.surrogate import cispo, clipped_ratio, clipped_value, policy_gradient, sequence_ratio
from postgrad.maths.weights import sequence_mean, token_mean

D = torch.float64
ONE = torch.ones(1, 1, dtype=torch.bool)
clip02 = partial(clipped_ratio, low=0.2, high=0.2)


def at(surrogate, ratio, adv):
    """loss, gradient in logp and clipped, for one token with that ratio and advantage."""
    logp = torch.tensor([[math.log(ratio)]], dtype=D, requires_grad=True)
    loss, clipped = surrogate(logp, torch.zeros(1, 1, dtype=D), torch.full((1, 1), adv, dtype=D), ONE)
    loss.sum().backward()
    return loss.item(), logp.grad.item(), clipped.item()


def test_clipped_ratio_by_hand():
    assert at(clip02, 4.0, 1.0) == (pytest.approx(-1.2), 0.0, True)  # the ratio counts as 1.2
    assert at(clip02, 0.1, -1.0) == (pytest.approx(0.8), 0.0, True)  # as 0.8
    # the way back is never closed
    assert at(clip02, 0.1, 1.0) == (pytest.approx(-0.1), pytest.approx(-0.1), False)
    assert at(clip02, 4.0, -1.0) == (pytest.approx(4.0), pytest.approx(4.0), False)
    assert at(clip02, 1.1, 2.0) == (pytest.approx(-2.2), pytest.approx(-2.2), False)
    wider = partial(clipped_ratio, low=0.2, high=0.28)
    assert at(wider, 1.25, 1.0)[2] is False and at(clip02, 1.25, 1.0)[2] is True


def test_cispo_by_hand():
    f = partial(cispo, low=1.0, high=4.0)
    loss, grad, clipped = at(f, 8.0, 1.0)
    # held at 5, still a gradient
    assert (loss, grad, clipped) == (pytest.approx(-5 * math.log(8)), pytest.approx(-5.0), True)
    assert at(f, 0.01, -1.0)[1:] == (pytest.approx(0.01), False)  # no lower clip
    assert at(f, 2.0, 3.0)[1:] == (pytest.approx(-6.0), False)  # the gradient of the unclipped ratio, rho A


def case(seed=0, off=0.3):
    draw = torch.Generator().manual_seed(seed)
    mask = torch.tensor([[0, 1, 1, 1, 0], [0, 1, 0, 0, 0], [0, 0, 1, 1, 1], [0, 0, 0, 0, 0]]).bool()
    logp = -torch.rand(4, 5, generator=draw, dtype=D) * mask
    old = (logp + off * torch.randn(4, 5, generator=draw, dtype=D)) * mask
    adv = torch.randn(4, 1, generator=draw, dtype=D) * mask
    return logp, old, adv, mask


@pytest.mark.parametrize("surrogate", [clip02, partial(cispo, low=1.0, high=4.0),
                                       partial(sequence_ratio, low=3e-4, high=4e-4)])
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


ALL = [policy_gradient, clip02, partial(cispo, low=1, high=4), partial(sequence_ratio, low=1, high=1)]


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

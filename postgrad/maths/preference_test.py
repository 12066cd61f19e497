import math

import pytest
import torch

from postgrad.maths import preference as p

D = torch.float64


def T(*x):
    return torch.tensor(x, dtype=D)


def test_scores():
    logp = T(-1.0, -2.0, -4.0).repeat(2, 1)
    mask = torch.tensor([[False, True, True], [False, False, False]])
    assert p.sum_logp(logp, mask).tolist() == [-6, 0]
    assert p.mean_logp(logp, mask).tolist() == [-3, 0]


def test_bradley_terry_by_hand():
    # log 2 at gap 0, P exactly a half
    assert p.bradley_terry(T(0.7), T(0.7), T(0)).exp().item() == pytest.approx(2.0)
    assert p.bradley_terry(T(2), T(1), T(0)).item() == pytest.approx(0.313262)
    torch.testing.assert_close(p.bradley_terry(T(2.0), T(1.0), T(0.4)),
                               p.bradley_terry(T(102.0), T(101.4), T(0)))


def test_labelled_by_hand():
    assert p.label_loss(T(0.0, 0.0), T(1, -1)).exp().tolist() == pytest.approx([2.0, 2.0])
    assert (p.label_loss(T(1.0, -1.0, 1.0), T(1, -1, -1)).tolist()
            == pytest.approx([0.313262, 0.313262, 1.313262], abs=1e-6))
    score, zero = T(0.3, -2.0, 5.0), T(0, 0, 0)
    torch.testing.assert_close(p.label_loss(score, T(1, 1, 1)), p.bradley_terry(score, zero, zero))
    torch.testing.assert_close(p.label_loss(score, T(-1, -1, -1)), p.bradley_terry(zero, score, zero))


def test_600_comparisons_recover_the_ranking_and_the_rewards():
    true = T(2, 1, 0, -1)
    draw = torch.Generator().manual_seed(0)
    first = torch.randint(0, 4, (600,), generator=draw)
    second = (first + torch.randint(1, 4, (600,), generator=draw)) % 4
    wins = torch.rand(600, generator=draw, dtype=D) < torch.sigmoid(true[first] - true[second])
    chosen, rejected = torch.where(wins, first, second), torch.where(wins, second, first)
    reward = torch.zeros(4, dtype=D, requires_grad=True)
    optim = torch.optim.LBFGS([reward], max_iter=50)

    def closure():
        optim.zero_grad()
        loss = p.bradley_terry(reward[chosen], reward[rejected], T(0)).mean()
        loss.backward()
        return loss

    optim.step(closure)
    found = (reward - reward.mean()).detach()
    assert found.argsort(descending=True).tolist() == [0, 1, 2, 3]
    torch.testing.assert_close(found, true - true.mean(), atol=0.25, rtol=0)


@pytest.mark.parametrize("beta", [0.01, 0.1, 1.0, 5.0])
def test_dpo_is_log_2_at_the_reference(beta):
    assert p.dpo(T(0), T(0), T(0), beta=beta).item() == pytest.approx(math.log(2))


def test_dpo_by_hand():
    ratio2 = p.dpo(T(math.log(2)), T(math.log(0.5)), T(0), beta=1.0)
    assert torch.exp(-ratio2).item() == pytest.approx(0.8, abs=1e-15)
    chosen, rejected = T(-2.0).requires_grad_(), T(-1.5).requires_grad_()
    loss = p.dpo(chosen - T(-2.3), rejected - T(-2.4), T(0), beta=1.0)
    loss.backward()
    assert (loss.item() == pytest.approx(1.0375, abs=5e-5)
            and torch.exp(-loss).item() == pytest.approx(0.3543, abs=5e-5))
    assert (chosen.grad.item() == pytest.approx(-0.6457, abs=5e-5)
            and rejected.grad.item() == pytest.approx(0.6457, abs=5e-5))


def test_dpo_gradient_is_beta_sigmoid_of_minus_gap():
    chosen, rejected = T(0.3, -0.8).requires_grad_(), T(0.9, -2.0).requires_grad_()
    p.dpo(chosen, rejected, T(0, 0), beta=0.5).sum().backward()
    expected = 0.5 * torch.sigmoid(-0.5 * (chosen - rejected)).detach()
    torch.testing.assert_close(chosen.grad, -expected)
    torch.testing.assert_close(rejected.grad, expected)


def test_ipo_has_its_minimum_at_half_over_beta():
    assert p.ipo(T(5.0), T(0.0), T(0), beta=0.1).item() == 0
    assert p.ipo(T(0.0), T(0.0), T(0), beta=0.1).item() == pytest.approx(25)
    # a margin of 1 widens the target by 10
    assert p.ipo(T(15.0), T(0.0), T(1.0), beta=0.1).item() == pytest.approx(0)


def test_cdpo():
    chosen, rejected, zero = T(0.3, -1.0), T(0.9, -3.0), T(0, 0)
    torch.testing.assert_close(p.cdpo(chosen, rejected, zero, beta=0.5, eps=0.0),
                               p.dpo(chosen, rejected, zero, beta=0.5))
    half = p.cdpo(chosen, rejected, zero, beta=0.5, eps=0.5)
    # half the labels wrong: no direction
    torch.testing.assert_close(half, p.cdpo(rejected, chosen, zero, beta=0.5, eps=0.5))
    gap = T(math.log(9)).requires_grad_()  # at P(w > l) = 1 - eps the smoothed loss is at its minimum
    p.cdpo(gap, T(0.0), T(0), beta=1.0, eps=0.1).backward()
    assert gap.grad.item() == pytest.approx(0, abs=1e-15)


def test_simpo_without_margin_is_dpo_on_means_with_a_uniform_reference():
    logp = torch.log_softmax(torch.randn(4, 6, generator=torch.Generator().manual_seed(0), dtype=D), -1)
    mask = torch.tensor([[0, 1, 1, 0, 0, 0], [0, 1, 1, 1, 1, 1], [0, 0, 1, 1, 1, 0],
                         [0, 1, 0, 0, 0, 0]]).bool()
    score = p.mean_logp(logp, mask)
    ratio = score - p.mean_logp(torch.full_like(logp, -math.log(50)), mask)
    zero = T(0, 0)
    torch.testing.assert_close(
        p.simpo(score[::2], score[1::2], zero, beta=2.0, gamma=0.0),
        p.dpo(ratio[::2], ratio[1::2], zero, beta=2.0)
    )
    # the gap asked for: met
    assert p.simpo(T(-1.0), T(-1.5), T(0), beta=2.0, gamma=1.0).item() == pytest.approx(math.log(2))


def test_orpo_by_hand():
    # p = 0.8 and 0.5: odds 4 and 1, log-odds gap log 4, sigmoid 0.8
    loss = p.orpo(T(math.log(0.8)), T(math.log(0.5)), T(0), lam=0.1)
    assert loss.item() == pytest.approx(-1.1 * math.log(0.8))
    assert p.orpo(T(math.log(0.8)), T(math.log(0.5)), T(0), lam=0.0).item() == pytest.approx(-math.log(0.8))
    sure = torch.zeros(1, requires_grad=True)  # p rounds to 1 in float32: large, never infinite
    p.orpo(sure, torch.tensor([-1.0]), torch.zeros(1), lam=0.1).backward()
    assert p.log_odds(torch.zeros(1)).isfinite().all() and sure.grad.isfinite().all()


def test_cpo_is_dpo_without_reference_plus_likelihood():
    assert p.cpo(T(-2.0), T(-2.0), T(0), beta=0.1, alpha=1.0).item() == pytest.approx(math.log(2) + 2.0)
    torch.testing.assert_close(p.cpo(T(-2.0), T(-5.0), T(0), beta=0.1, alpha=0.0),
                               p.dpo(T(-2.0), T(-5.0), T(0), beta=0.1))


def test_rpo_is_dpo_plus_the_likelihood_per_token():
    pair, side = (T(2.0), T(1.0), T(0.5)), {"chosen_logp": T(-9.0), "chosen_length": T(6.0)}
    dpo = p.dpo(*pair, beta=0.3)
    torch.testing.assert_close(p.rpo(*pair, **side, beta=0.3, alpha=2.0), dpo + 3.0)  # 1.5 nats a token
    torch.testing.assert_close(p.rpo(*pair, **side, beta=0.3, alpha=0.0), dpo)


def test_kto_by_hand():
    f = {"beta": 1.0, "wanted": 1.0, "unwanted": 3.0}
    # at the baseline: lambda / 2
    assert p.kto(T(0.7, 0.7), T(1, -1), T(0.7, 0.7), **f).tolist() == [0.5, 1.5]
    gap = math.log(4)
    assert p.kto(T(gap, gap), T(1, -1), T(0, 0), **f).tolist() == pytest.approx([0.2, 2.4])  # lambda (1 - v)
    assert p.kto_baseline(T(-3.0, 1.0)).item() == 0 and p.kto_baseline(T(3.0, 1.0)).item() == 2

import math

import pytest
import torch

from postgrad.maths.kl import adaptive_coefficient, exact_kl, k1, k2, k3, weighted_k3

P, Q = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64), torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)


def test_by_hand():
    logp, ref = torch.tensor(math.log(0.5)), torch.tensor(math.log(0.25))  # d = log 2
    assert k1(logp, ref).item() == pytest.approx(0.693147)
    assert k2(logp, ref).item() == pytest.approx(0.2402265)
    assert k3(logp, ref).item() == pytest.approx(0.1931472)  # 1/2 - 1 + log 2
    assert exact_kl(P.log(), Q.log()).item() == pytest.approx(0.274887)  # 0.3 log 2.5
    assert exact_kl(P.log() + 3, P.log()).item() == pytest.approx(0, abs=1e-12)


def test_k1_and_k3_are_unbiased_and_k2_is_not():
    exact = exact_kl(P.log(), Q.log())
    mean = {k.__name__: (P * k(P.log(), Q.log())).sum() for k in (k1, k2, k3)}
    torch.testing.assert_close(mean["k1"], exact)
    torch.testing.assert_close(mean["k3"], exact)
    assert abs(mean["k2"] - exact) > 0.01
    assert (k3(P.log(), Q.log()) >= 0).all() and (k1(P.log(), Q.log()) < 0).any()


def in_a_loss(estimator):
    """The gradient of the mean of an estimator over all three samples,
    the sampling probabilities held fixed."""
    logits = P.log().requires_grad_()
    (P * estimator(torch.log_softmax(logits, -1), Q.log())).sum().backward()
    return logits.grad


def test_weighted_k3_is_unbiased_on_samples_of_an_older_policy_and_so_is_its_gradient():
    old = torch.tensor([0.3, 0.3, 0.4], dtype=torch.float64)
    logits = P.log().requires_grad_()
    mean = (old * weighted_k3(torch.log_softmax(logits, -1), Q.log(), old_logp=old.log())).sum()
    mean.backward()
    torch.testing.assert_close(mean, exact_kl(P.log(), Q.log()))
    torch.testing.assert_close(logits.grad, gradient(lambda x: exact_kl(x, Q.log())))
    # on policy the gradient is k2's
    torch.testing.assert_close(in_a_loss(lambda p, q: weighted_k3(p, q, old_logp=P.log())), in_a_loss(k2))


def in_the_reward():
    """-E[ -d grad log pi ], what a policy gradient makes of a KL penalty in the reward."""
    logits = P.log().requires_grad_()
    logp = torch.log_softmax(logits, -1)
    (P * k1(P.log(), Q.log()) * logp).sum().backward()
    return logits.grad


def gradient(divergence):
    logits = P.log().requires_grad_()
    divergence(logits).backward()
    return logits.grad


def test_the_gradient_each_estimator_has_in_a_loss():
    reverse = gradient(lambda logits: exact_kl(logits, Q.log()))  # KL(pi || ref)
    forward = gradient(lambda logits: exact_kl(Q.log(), logits))  # KL(ref || pi)
    assert in_a_loss(k1).abs().max() < 1e-15
    torch.testing.assert_close(in_a_loss(k2), reverse)
    torch.testing.assert_close(in_a_loss(k3), forward)
    torch.testing.assert_close(in_the_reward(), reverse)
    assert (forward - reverse).abs().max() > 0.05


def test_adaptive_coefficient():
    assert adaptive_coefficient(0.1, observed=6.0, target=6.0) == 0.1
    # clipped
    assert adaptive_coefficient(0.1, observed=60.0, target=6.0) == pytest.approx(0.102)
    assert adaptive_coefficient(0.1, observed=5.4, target=6.0) == pytest.approx(0.099)
    assert adaptive_coefficient(0.1, observed=5.4, target=6.0, gain=0.5) == pytest.approx(0.095)


def test_sixty_collections_at_ten_times_the_target_treble_the_coefficient():
    beta = 0.02
    for _ in range(60):
        beta = adaptive_coefficient(beta, observed=60.0, target=6.0)
    assert beta / 0.02 == pytest.approx(1.02**60) and beta / 0.02 > 3

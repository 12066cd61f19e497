"""Estimators of KL(pi || ref) from log-probs of sampled tokens, the exact sum, and the adaptive coefficient.

With d = logp - ref_logp on samples of pi (Schulman 2020, "Approximating KL divergence"). Two questions have
two answers: what an estimator's mean is, and what its gradient is when it stands in a loss, where the samples
are fixed and only logp moves.

estimator          mean           gradient of its mean in a loss, on policy
k1 = d             KL(pi||ref)    0: E[grad log pi] = 0, so k1 in a loss does nothing
k2 = d^2/2         not the KL     grad KL(pi||ref): the right gradient from the biased value
k3 = e^-d - 1 + d  KL(pi||ref)    grad KL(ref||pi): the other direction
weighted k3        KL(pi||ref)    grad KL(pi||ref), on samples of an older policy too
k1 in the reward   KL(pi||ref)    grad KL(pi||ref): there the score function carries it
"""

from __future__ import annotations

import torch
from torch import Tensor


def k1(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """d. Unbiased, of either sign.

    In a loss: E[grad d] = E[grad log pi] = 0. In the reward: exactly grad KL(pi||ref).
    """
    return logp - ref_logp


def k2(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """d^2 / 2. Biased, never negative. In a loss: E[d grad log pi] = grad KL(pi||ref)."""
    return 0.5 * (logp - ref_logp) ** 2


def k3(logp: Tensor, ref_logp: Tensor) -> Tensor:
    """exp(-d) - 1 + d. Unbiased, never negative. In a loss: E[(1 - ref/pi) grad log pi] = grad KL(ref||pi).

    To second order in d it is k2, so close to the reference both pull the same way.
    """
    d = logp - ref_logp
    return torch.expm1(-d) + d


def weighted_k3(logp: Tensor, ref_logp: Tensor, *, old_logp: Tensor) -> Tensor:
    """rho k3, rho = pi/pi_old: k3 on samples of an older policy (DeepSeek-V3.2, 2512.02556).

    Its mean over samples of pi_old is KL(pi||ref), and so is that of its gradient, the ratio's with it: in a
    loss, on policy, (k3 + 1 - ref/pi) grad log pi = d grad log pi, as k2.
    """
    return (logp - old_logp).exp() * k3(logp, ref_logp)


def exact_kl(logits_p: Tensor, logits_q: Tensor) -> Tensor:  # [..., V], [..., V] -> [...]
    """KL(p || q) = sum_v p_v (log p_v - log q_v), over the whole vocabulary. Its gradient is its gradient."""
    logp, logq = torch.log_softmax(logits_p, -1), torch.log_softmax(logits_q, -1)
    return (logp.exp() * (logp - logq)).sum(-1)


def adaptive_coefficient(beta: float, observed: float, target: float, gain: float = 0.1) -> float:
    """The KL coefficient, steered towards a target KL by a clipped proportional controller.

        e = clip(observed / target - 1, -0.2, 0.2),    beta <- beta (1 + gain e)
    Ziegler et al. 2019 (1909.08593), section 2.2. With observed = target it stays.
    """
    error = min(max(observed / target - 1.0, -0.2), 0.2)
    return beta * (1.0 + gain * error)

"""What is minimised at each token, given its advantage.

One signature, parameters bound in the table by functools.partial:

    (logp, old_logp, adv, mask), all [B, T]  ->  loss [B, T], clipped [B, T] bool

ratio rho = exp(logp - old_logp). `clipped` marks the tokens on which the clip is at work. No mean is taken
here: the loss of a step is (loss * weight).sum(). On policy (rho = 1, nothing clipped) every one of them has
the gradient of policy_gradient, except sequence_ratio and geometric_mean, which have it when all tokens of a
row share one weight, times 1/length through their sequence_mean.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from postgrad.maths.logprob import row_sum
from postgrad.system.settings import NOT_NEGATIVE, POSITIVE

Low = Annotated[float, NOT_NEGATIVE,
                "how far the ratio pi/pi_old may fall below 1 before a token's gradient is cut",
                "lower holds the policy nearer to its samples; it matters with epochs or minibatches above 1 "
                "alone"]
High = Annotated[float, NOT_NEGATIVE,
                 "how far the ratio pi/pi_old may rise above 1 before a token's gradient is cut",
                 "0.28 (DAPO) lets unlikely tokens grow where entropy falls too soon; lower where approx_kl "
                 "jumps"]


def policy_gradient(logp: Tensor, old_logp: Tensor, adv: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """REINFORCE: -A log pi. The ratio is not looked at: for one update on fresh samples (Williams 1992)."""
    return torch.where(mask, -adv * logp, 0.0), torch.zeros_like(mask)


def divergence(logp: Tensor, old_logp: Tensor, adv: Tensor, mask: Tensor, *,
               teacher_kl: Tensor) -> tuple[Tensor, Tensor]:
    """KL(pi || teacher) at each state that was visited, over the whole vocabulary: neither the advantage nor
    the ratio is looked at.

        loss_t = sum_v pi(v | s_t) (log pi(v | s_t) - log teacher(v | s_t))
    GKD (Agarwal et al. 2023, 2306.13649) on the student's samples with the reverse KL. Its gradient is the
    mean, over the token that is sampled, of policy_gradient's with A_t = log teacher - log pi.
    """
    return torch.where(mask, teacher_kl, 0.0), torch.zeros_like(mask)


def _clip(ratio: Tensor, adv: Tensor, mask: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    """-min(rho A, clip(rho, 1 - low, 1 + high) A), and where the clip won."""
    free, held = ratio * adv, ratio.clamp(1.0 - low, 1.0 + high) * adv
    return torch.where(mask, -torch.minimum(free, held), 0.0), mask & (held < free)


def clipped_ratio(
    logp: Tensor, old_logp: Tensor, adv: Tensor, mask: Tensor, *, low: Low = 0.2, high: High = 0.2
) -> tuple[Tensor, Tensor]:
    """PPO's clipped surrogate, one ratio per token: -min(rho A, clip(rho, 1 - low, 1 + high) A).

    Schulman et al. 2017 (1707.06347); low != high is DAPO's clip-higher. eps 0.2, rho 4, A > 0: the ratio
    counts as 1.2; rho 0.1, A < 0: as 0.8; past the edge the gradient is zero. At rho = 1 its gradient is
    policy_gradient's.
    """
    log_ratio = torch.where(mask, logp - old_logp, 0.0)
    return _clip(log_ratio.exp(), adv, mask, low, high)


def stale_dropped(
    logp: Tensor, old_logp: Tensor, adv: Tensor, mask: Tensor, *, sampler_logp: Tensor, low: Low = 0.2,
    high: High = 0.2,
    far: Annotated[float, NOT_NEGATIVE, "how much likelier, per token in nats, a blamed reply may have been "
                   "when it was sampled before it is dropped",
                   "lower where clip_fraction is 0 and the run is unsteady with old samples"] = 0.5,
) -> tuple[Tensor, Tensor]:
    """clipped_ratio, without the blamed rows from which the policy has gone too far.

        a row is dropped where A < 0 and mean_t (log mu_t - log pi_t) > far
    DeepSeek-V3.2 (2512.02556): mu are the probabilities that the sampler reported, pi the present ones, so
    that both several updates and another engine count. `clipped` holds the dropped rows too.
    """
    loss, clipped = clipped_ratio(logp, old_logp, adv, mask, low=low, high=high)
    gone = torch.where(mask, sampler_logp - logp.detach(), 0.0)
    stale = (row_sum(gone) / mask.sum(1).clamp(min=1) > far)[:, None] & (adv < 0) & mask
    return torch.where(stale, 0.0, loss), clipped | stale


def sequence_ratio(
    logp: Tensor, old_logp: Tensor, adv: Tensor, mask: Tensor, *,
    low: Annotated[float, NOT_NEGATIVE,
                   "how far a whole reply's ratio, per token, may fall below 1 before it is cut",
                   "hundreds of times smaller than a token's clip: change both by the same factor"] = 3e-4,
    high: Annotated[float, NOT_NEGATIVE,
                    "how far a whole reply's ratio, per token, may rise above 1 before it is cut",
                    "hundreds of times smaller than a token's clip: change both by the same factor"] = 4e-4,
) -> tuple[Tensor, Tensor]:
    """GSPO: one ratio for all tokens of a row, the geometric mean of theirs, clipped as a whole.

        s = exp( mean_t (logp_t - old_logp_t) ),    loss_t = -min(s_t A_t, clip(s_t) A_t),
            s_t = sg(s) pi_t / sg(pi_t)
    Zheng et al. 2025 (2507.18071), written as their GSPO-token (eq. 13-15): s_t has the value s, and its
    gradient is s grad log pi_t. With sequence_mean weights 1/(B |y|) and one advantage per row, (loss *
    weight).sum() is the paper's -1/B sum_i min(s_i A_i, clip(s_i) A_i), and its gradient is theirs: the |y|
    terms s/|y| grad log pi_t sum to grad s.
    """
    log_ratio = torch.where(mask, logp - old_logp, 0.0)
    mean = row_sum(log_ratio) / mask.sum(1).clamp(min=1)
    ratio = mean.exp().detach()[:, None] * (logp - logp.detach()).exp()
    return _clip(ratio, adv, mask, low, high)


def cispo(
    logp: Tensor, old_logp: Tensor, adv: Tensor, mask: Tensor, *,
    low: Annotated[float, NOT_NEGATIVE, "how far below 1 a token's importance weight may fall; 1 is no limit",
                   "leave it: the method has no lower clip"] = 1.0,
    high: Annotated[float, NOT_NEGATIVE, "how far above 1 a token's importance weight may rise; 4 is a "
                    "largest weight of 5",
                    "lower where ratio_max is often above it and the reward is unsteady"] = 4.0,
) -> tuple[Tensor, Tensor]:
    """CISPO: REINFORCE with a clipped, detached importance weight: -sg(clip(rho, 1 - low, 1 + high)) A log
    pi.

    MiniMax-M1 (2506.13585), eq. 4-5: the weight is clipped, the token never drops out of the gradient. low >=
    1 is no lower clip. With rho = 1 it is policy_gradient; with no clip at all its gradient is that of
    the unclipped ratio.
    """
    ratio = torch.where(mask, logp - old_logp, 0.0).exp().detach()
    held = ratio.clamp(1.0 - low, 1.0 + high)
    return torch.where(mask, -held * adv * logp, 0.0), mask & (held != ratio)


def probability_clip(
    logp: Tensor, old_logp: Tensor, adv: Tensor, mask: Tensor, *, sampler_logp: Tensor,
    low: Annotated[float, NOT_NEGATIVE, "how far a blamed token's probability may fall before it leaves the "
                   "gradient", "lower holds the policy nearer to its samples; prime-rl takes 0.2"] = 0.15,
    high: Annotated[float, NOT_NEGATIVE, "how far a praised token's probability may rise before it leaves "
                    "the gradient",
                    "lower holds the policy nearer to its samples; prime-rl takes 0.2"] = 0.15,
    square: Annotated[float, NOT_NEGATIVE, "the weight of the squared log-ratio, a pull to the policy that "
                      "sampled", "1e-3 (prime-rl) where several updates carry the policy too far"] = 0.0,
) -> tuple[Tensor, Tensor]:
    """DPPO: a token leaves the gradient once its PROBABILITY has moved too far the way its advantage pushes.

        keep = p - mu <= high where A > 0, p - mu >= -low elsewhere
        loss = -keep rho A + square (log rho)^2
    Qi et al. 2026 (2602.04879), the trust region by total variation, of which |p - mu| is the sampled
    token's share, mu its probability as the sampler reported it: p_old where the sampler is our own. A rare
    token may grow a hundredfold (1e-5 to 1e-3), a sure one may not fall from 0.99 to 0.8: the ratio's clip
    has both the other way round. square: prime-rl's pull to the policy that sampled.
    """
    log_ratio = torch.where(mask, logp - old_logp, 0.0)
    moved = (logp.exp() - sampler_logp.exp()).detach()
    keep = torch.where(adv > 0, moved <= high, moved >= -low)
    loss = square * log_ratio**2 - torch.where(keep, log_ratio.exp() * adv, 0.0)
    return torch.where(mask, loss, 0.0), mask & ~keep


def soft_gate(
    logp: Tensor, old_logp: Tensor, adv: Tensor, mask: Tensor, *,
    praised: Annotated[float, POSITIVE, "how fast a praised token's gradient falls as its ratio leaves 1",
                       "more holds the policy nearer to its samples"] = 1.0,
    blamed: Annotated[float, POSITIVE, "how fast a blamed token's gradient falls as its ratio leaves 1",
                      "a little above `praised`: blame spreads over all other tokens"] = 1.05,
) -> tuple[Tensor, Tensor]:
    """SAPO: a sigmoid in place of the clip: -A (4/tau) sigmoid(tau (rho - 1)), tau = `praised` where A > 0,
    `blamed` elsewhere.

    Gao et al. 2025 (2511.20347). The gradient is policy_gradient's times 4 rho s (1 - s), s the sigmoid:
    1 at rho = 1, and falling smoothly on both sides; a larger tau falls sooner. Nothing is cut.
    """
    ratio = torch.where(mask, logp - old_logp, 0.0).exp()
    tau = torch.where(adv > 0, praised, blamed).to(logp)
    gate = torch.sigmoid(tau * (ratio - 1.0)) * 4.0 / tau
    return torch.where(mask, -gate * adv, 0.0), torch.zeros_like(mask)


def geometric_mean(
    logp: Tensor, old_logp: Tensor, adv: Tensor, mask: Tensor, *,
    low: Annotated[float, NOT_NEGATIVE, "how far a token's log-ratio may fall before it is held",
                   "lower for mixture-of-experts models, where large ratios are noise"] = 0.4,
    high: Annotated[float, NOT_NEGATIVE, "how far a token's log-ratio may rise before it is held",
                    "lower for mixture-of-experts models, where large ratios are noise"] = 0.4,
) -> tuple[Tensor, Tensor]:
    """GMPO: one weight for a row, the geometric mean of its tokens' ratios, each clipped in log space.

        l_t = log rho_t held to [-low, high] where that holds A back,    loss of a row = -A exp(mean_t l_t)
    Zhao et al. 2025 (2507.20673). Written by token as sequence_ratio is: the value is the row's at each of
    its tokens, the gradient exp(mean l) grad l_t, so that sequence_mean weights give the paper's loss and
    its gradient. Unlike GSPO a token is clipped alone, and its row goes on.
    """
    log_ratio = torch.where(mask, logp - old_logp, 0.0)
    held = log_ratio.clamp(-low, high)
    kept = torch.where(adv > 0, torch.minimum(log_ratio, held), torch.maximum(log_ratio, held))
    mean = (row_sum(kept) / mask.sum(1).clamp(min=1)).exp().detach()[:, None]
    return torch.where(mask, -adv * mean * (kept - kept.detach()).exp(), 0.0), mask & (kept != log_ratio)


def marked_penalty(
    logp: Tensor, old_logp: Tensor, adv: Tensor, mask: Tensor, *, marked: Tensor,
    penalty: Annotated[float, NOT_NEGATIVE, "the weight of |log ratio| on the tokens that are held back",
                       "more where entropy falls to 0 even so"] = 1.0,
) -> tuple[Tensor, Tensor]:
    """KL-Cov: the ratio, unclipped, and on the marked tokens a pull back: -rho A + marked penalty |log rho|.

    Cui et al. 2025 (2505.22617); |log rho| stands for the KL there, as in their code. `clipped` are the
    marked tokens that have moved.
    """
    log_ratio = torch.where(mask, logp - old_logp, 0.0)
    pull = torch.where(marked, penalty * log_ratio.abs(), 0.0)
    return torch.where(mask, pull - log_ratio.exp() * adv, 0.0), mask & marked & (log_ratio != 0)


def squared_ratio(
    logp: Tensor, old_logp: Tensor, adv: Tensor, mask: Tensor, *,
    beta: Annotated[float, NOT_NEGATIVE, "the weight of the squared log-ratio, a pull to the policy that "
                    "sampled", "more where the policy leaves its samples too fast"] = 0.05,
) -> tuple[Tensor, Tensor]:
    """DRO: -A log pi + beta/2 (log rho)^2, the squared log-ratio in place of a clip.

    Richemond et al. 2024 (2405.19107), the loss of the policy, token by token. Nothing is clipped.
    """
    log_ratio = torch.where(mask, logp - old_logp, 0.0)
    return torch.where(mask, 0.5 * beta * log_ratio**2 - adv * logp, 0.0), torch.zeros_like(mask)


def clipped_value(value: Tensor, old_value: Tensor, returns: Tensor, *, clip: float) -> Tensor:  # all [B, T]
    """The critic's loss: 1/2 max( (V - R)^2, (clip(V, V_old - clip, V_old + clip) - R)^2 ).

    Ziegler et al. 2019's code: a step of V beyond the clip gains nothing. With clip = inf it is half the
    squared error.
    """
    held = old_value + (value - old_value).clamp(-clip, clip)
    return 0.5 * torch.maximum((value - returns) ** 2, (held - returns) ** 2)

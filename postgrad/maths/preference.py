"""Losses on pairs, on labelled singles and on labelled tokens.

Rows become scores first, then a pair of scores becomes a loss:

    score(logp [B, T], mask [B, T]) -> [B]        minus the reference's score where the method has one:
                                                  the log-ratio
    pair(chosen [U], rejected [U], margin [U]) -> loss [U]
margin is how much better the chosen answer is, in units of reward: a gap that the loss asks for
on top; 0 if unknown.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from postgrad.maths.logprob import row_sum
from postgrad.system.settings import ERROR_RATE, NOT_NEGATIVE, POSITIVE

Beta = Annotated[float, POSITIVE,
                 "the weight of the KL to the start that is in the loss: how much a log-ratio counts as "
                 "reward",
                 "lower lets the policy go further from the start; higher where replies lose their sense"]


def sum_logp(logp: Tensor, mask: Tensor) -> Tensor:  # [B, T], [B, T] -> [B]
    """log pi(y) = sum_t log pi(y_t)."""
    return row_sum(torch.where(mask, logp, 0.0))


def mean_logp(logp: Tensor, mask: Tensor) -> Tensor:  # [B, T], [B, T] -> [B]
    """log pi(y) / |y|, so that a long answer is not worse for being long. An empty row scores 0."""
    return sum_logp(logp, mask) / mask.sum(1).clamp(min=1)


def bradley_terry(chosen: Tensor, rejected: Tensor, margin: Tensor) -> Tensor:
    """-log sigmoid(r_w - r_l - margin): P(w > l) = e^{r_w} / (e^{r_w} + e^{r_l}).

    log 2 at gap 0; shift-invariant.

    Bradley & Terry 1952; reward models: Ouyang et al. 2022 (2203.02155); the margin: Llama 2 (2307.09288).
    """
    return -logsigmoid(chosen - rejected - margin)


def reward(
    chosen: Tensor, rejected: Tensor, margin: Tensor, *,
    smoothing: Annotated[float, ERROR_RATE, "the share of labels that are taken to be wrong",
                         "the recipe sets it: head.smoothing"] = 0.0,
    centre: Annotated[float, NOT_NEGATIVE, "how strongly scores are drawn towards 0",
                      "the recipe sets it: head.centre"] = 0.0,
) -> Tensor:
    """bradley_terry for a scalar head: smoothing is the share of labels taken to be wrong,
    centre pulls scores towards 0.

        (1 - eps) BT(w, l) + eps BT(l, w) + centre (r_w + r_l)^2
    The labels say nothing of a shift of all scores; centre fixes it (Eisenstein et al. 2023, 2312.09244), so
    that several models can be compared. smoothing = centre = 0 is bradley_terry.
    """
    right, wrong = bradley_terry(chosen, rejected, margin), bradley_terry(rejected, chosen, -margin)
    return (1 - smoothing) * right + smoothing * wrong + centre * (chosen + rejected) ** 2


def label_loss(score: Tensor, label: Tensor) -> Tensor:  # label +1 right, -1 wrong; any one shape
    """-log sigmoid(label score): the cross-entropy of P(right) = sigmoid(score). log 2 at score 0.

    Of steps: Lightman et al. 2023 (2305.20050); of whole answers too: Wang et al. 2023, Math-Shepherd
    (2312.08935). bradley_terry of the score against 0, or of 0 against the score.
    """
    return -logsigmoid(label * score)


def dpo(chosen: Tensor, rejected: Tensor, margin: Tensor, *, beta: Beta = 0.1) -> Tensor:
    """-log sigmoid(beta gap - margin) on log-ratios: bradley_terry with the implicit reward beta log(pi/ref).

    Rafailov et al. 2023 (2305.18290); with a margin: ODPO (2402.10571). pi = ref gives log 2 for any beta.
    """
    return bradley_terry(beta * chosen, beta * rejected, margin)


def ipo(chosen: Tensor, rejected: Tensor, margin: Tensor, *, beta: Beta = 0.1) -> Tensor:
    """(gap - 1/(2 beta))^2 on log-ratios: a target for the gap instead of "as wide as can be" (Azar et
    al. 2023, 2310.12036).

    A margin widens the target by margin / beta.
    """
    return (chosen - rejected - (0.5 + margin) / beta) ** 2


def cdpo(
    chosen: Tensor, rejected: Tensor, margin: Tensor, *, beta: Beta = 0.1,
    eps: Annotated[float, ERROR_RATE, "the share of labels that are taken to be wrong",
                   "about what annotators disagree by; 0 is DPO"] = 0.1,
) -> Tensor:
    """(1 - eps) DPO + eps DPO of the swapped pair: a fraction eps of the labels is wrong (Mitchell 2023).

    eps = 0 is DPO.
    """
    return ((1 - eps) * dpo(chosen, rejected, margin, beta=beta)
            + eps * dpo(rejected, chosen, -margin, beta=beta))


def simpo(
    chosen: Tensor, rejected: Tensor, margin: Tensor, *,
    beta: Annotated[float, POSITIVE, "how much a reply's mean log-prob counts as reward",
                    "2 to 10, tuned with gamma for each model"] = 2.0,
    gamma: Annotated[float, NOT_NEGATIVE, "the margin by which the chosen reply's reward should lead",
                     "from 0.3 to 1.6 in the paper; more separates the pairs further"] = 1.0,
) -> Tensor:
    """-log sigmoid(beta gap - gamma) on mean log-probs, no reference (Meng et al. 2024, 2405.14734).

    gamma = 0 is DPO on mean scores with a uniform reference.
    """
    return bradley_terry(beta * chosen, beta * rejected, gamma + margin)


def log_odds(logp: Tensor) -> Tensor:
    """log(p / (1 - p)). A p that rounds to 1 counts as the largest float below it."""
    logp = logp.clamp(max=-torch.finfo(logp.dtype).eps)
    return logp - torch.log(-torch.expm1(logp))


def orpo(
    chosen: Tensor, rejected: Tensor, margin: Tensor, *,
    lam: Annotated[float, NOT_NEGATIVE, "the weight of the odds-ratio penalty beside imitation",
                   "0.1 to 0.25 in the paper; more where rejected replies stay as likely as chosen "
                   "ones"] = 0.1,
) -> Tensor:
    """NLL of the chosen answer + lam * -log sigmoid(log-odds gap), on mean log-probs (Hong et al.
    2024, 2403.07691)."""
    return -chosen + lam * bradley_terry(log_odds(chosen), log_odds(rejected), margin)


def cpo(
    chosen: Tensor, rejected: Tensor, margin: Tensor, *, beta: Beta = 0.1,
    alpha: Annotated[float, NOT_NEGATIVE, "the weight of imitating the chosen reply",
                     "0 where the chosen replies are not worth imitating"] = 1.0,
) -> Tensor:
    """DPO with a uniform reference + alpha * NLL of the chosen answer, on summed log-probs (Xu et al.
    2024, 2401.08417)."""
    return dpo(chosen, rejected, margin, beta=beta) - alpha * chosen


def rpo(
    chosen: Tensor, rejected: Tensor, margin: Tensor, *, chosen_logp: Tensor, chosen_length: Tensor,
    beta: Beta = 0.1,
    alpha: Annotated[float, NOT_NEGATIVE, "the weight of imitating the chosen reply beside DPO",
                     "0 is DPO; more where chosen replies become less likely in training"] = 1.0,
) -> Tensor:
    """DPO + alpha * NLL of the chosen answer per token (Pang et al. 2024, 2404.19733; at their weight of 1
    for both). alpha = 0 is DPO."""
    return dpo(chosen, rejected, margin, beta=beta) - alpha * chosen_logp / chosen_length


def kto(
    score: Tensor, label: Tensor, baseline: Tensor, *, beta: Beta = 0.1,
    wanted: Annotated[float, NOT_NEGATIVE, "the weight of a good answer",
                      "set by the recipe, so that good and bad answers count alike"] = 1.0,
    unwanted: Annotated[float, NOT_NEGATIVE, "the weight of a bad answer",
                        "set by the recipe, so that good and bad answers count alike"] = 1.0,
) -> Tensor:  # score, label (+1 wanted, -1 unwanted), baseline: all [U] -> [U]
    """lambda - v: v = lambda sigmoid(label beta (log-ratio - baseline)), lambda = `wanted` or `unwanted` by
    label.

    Ethayarajh et al. 2024 (2402.01306). At the baseline the loss is lambda / 2. The baseline is a constant of
    the step.
    """
    weight = torch.where(label > 0, wanted, unwanted)
    return weight * torch.sigmoid(-label * beta * (score - baseline.detach()))  # 1 - sigmoid(x) = sigmoid(-x)


def kto_baseline(score: Tensor) -> Tensor:  # [U] -> []
    """KTO's estimate of KL(pi||ref): the mean log-ratio of answers to OTHER prompts, at least 0.
    No gradient."""
    return score.detach().mean().clamp(min=0.0)

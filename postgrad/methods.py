"""THE TABLE: one row per algorithm. Two algorithms are compared by reading two rows; a variant is a row, never a flag.

A row names functions of maths/ with their constants. Where a row departs from its paper, its comment says so. What is common to
all rows and to no paper: a normaliser runs over the whole step (papers write it per prompt), and no row has a learning rate.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from postgrad.maths import credit, kl, preference, select, surrogate, weights

SOURCES = ("conversations", "pairs", "singles", "steps", "outcomes", "rollouts", "rollouts to pairs",
           "rollouts to conversations")


@dataclass(frozen=True, kw_only=True)
class Supervised:
    """Imitate: -logp on the trained tokens. select: the rollouts to imitate, (score [B], group_size) -> bool [B]."""

    kind: ClassVar[str] = "supervised"
    reference: ClassVar[bool] = False
    name: str
    source: str
    paper: str
    about: str
    weigh: Callable
    select: Callable | None = None


@dataclass(frozen=True, kw_only=True)
class Preference:
    """Prefer: rows to scores, scores to a loss per pair, labelled single or labelled token. score None: the scalar head.

    reference: the reference's score is subtracted, so that loss sees log-ratios.
    """

    kind: ClassVar[str] = "preference"
    name: str
    source: str
    paper: str
    about: str
    score: Callable | None
    reference: bool
    loss: Callable


@dataclass(frozen=True, kw_only=True)
class Policy:
    """Reinforce: rewards to advantages (credit), advantages to a loss per token (surrogate), tokens to a step (weigh).

    unbiased: on policy, the mean gradient is a constant times the exact gradient of E[reward] - kl_in_reward KL(pi||ref).
    """

    kind: ClassVar[str] = "policy"
    name: str
    source: str = "rollouts"
    paper: str
    about: str
    credit: Callable
    surrogate: Callable
    weigh: Callable
    kl_in_reward: float = 0.0
    kl_in_loss: float = 0.0
    kl: Callable = kl.k3          # the estimator of kl_in_loss
    critic: bool = False
    value_weight: float = 0.0
    value_clip: float = 0.0
    entropy: float = 0.0          # the weight of the entropy bonus
    whiten: bool = False          # advantages to mean 0, std 1 over the step
    resample_flat: bool = False   # groups with equal scores are sampled again
    overlong: bool = False        # the score falls towards the length limit
    unbiased: bool = False

    @property
    def reference(self) -> bool:
        return self.kl_in_reward > 0 or self.kl_in_loss > 0


Method = Supervised | Preference | Policy

SUPERVISED = (
    Supervised(
        name="sft", source="conversations",
        weigh=weights.token_mean, select=None,
        paper="Ouyang et al. 2022, InstructGPT, arXiv:2203.02155",
        about="negative log-likelihood of the assistant's tokens",
    ),
    # The paper picks at test time; imitating what was picked is RAFT's step (Dong et al. 2023, arXiv:2304.06767).
    Supervised(
        name="best_of_n", source="rollouts to conversations",
        weigh=weights.token_mean, select=select.best_of,
        paper="Stiennon et al. 2020, arXiv:2009.01325",
        about="sample n, imitate the best, even where the best is poor",
    ),
    # R1 keeps the correct samples of its second stage, then filters for readability: that filter is the verifier's affair here.
    Supervised(
        name="rejection", source="rollouts to conversations",
        weigh=weights.token_mean, select=partial(select.passing, threshold=1.0),
        paper="DeepSeek-AI 2025, R1 (v1) section 2.3.3, arXiv:2501.12948",
        about="sample n, imitate every sample that passes",
    ),
)

PREFERENCE = (
    Preference(
        name="reward", source="pairs",
        score=None, reference=False, loss=partial(preference.reward, smoothing=0.0, centre=0.0),
        paper="Ouyang et al. 2022, InstructGPT, arXiv:2203.02155; margin: Llama 2, arXiv:2307.09288",
        about="a scalar head learns which answer was preferred",
    ),
    # The papers have people label the steps, and stop at the first mistake; here a task's checker does, and what follows a
    # mistake is labelled wrong as well: a label says whether all is right so far (Uesato et al.).
    Preference(
        name="process", source="steps",
        score=None, reference=False, loss=preference.labelled,
        paper="Lightman et al. 2023, arXiv:2305.20050; Uesato et al. 2022, arXiv:2211.14275",
        about="a scalar head learns after every step whether all is right so far",
    ),
    # The paper's verifier predicts at every token, with a language-model loss beside it; here at the last token alone. The
    # cross-entropy is that of Math-Shepherd (arXiv:2312.08935).
    Preference(
        name="outcome", source="outcomes",
        score=None, reference=False, loss=preference.labelled,
        paper="Cobbe et al. 2021, arXiv:2110.14168",
        about="a scalar head learns at the end whether the answer is right",
    ),
    # beta 0.1 is the paper's default; its TL;DR runs have 0.5.
    Preference(
        name="dpo", source="pairs",
        score=preference.sum_logp, reference=True, loss=partial(preference.dpo, beta=0.1),
        paper="Rafailov et al. 2023, arXiv:2305.18290",
        about="the policy is its own reward model: beta log(pi/ref)",
    ),
    # The paper's tau is called beta here; it trains bandits alone, so 0.1 is DPO's. Its log pi(y) is a sum over the tokens; TRL
    # takes the mean, on the authors' advice, so that beta does not depend on the length.
    Preference(
        name="ipo", source="pairs",
        score=preference.sum_logp, reference=True, loss=partial(preference.ipo, beta=0.1),
        paper="Azar et al. 2023, arXiv:2310.12036",
        about="a squared loss with a target gap: no drift on separable pairs",
    ),
    # The note has no value for eps; its author's code proposes 0.1, untested, as a start.
    Preference(
        name="cdpo", source="pairs",
        score=preference.sum_logp, reference=True, loss=partial(preference.cdpo, beta=0.1, eps=0.1),
        paper="Mitchell 2023, A note on DPO with noisy preferences (ericmitchell.ai/cdpo.pdf)",
        about="DPO that expects one label in ten to be wrong",
    ),
    # beta and gamma as for Llama-3-Base (the authors' code has gamma/beta, 0.5); the paper tunes both for each model.
    Preference(
        name="simpo", source="pairs",
        score=preference.mean_logp, reference=False, loss=partial(preference.simpo, beta=2.0, gamma=1.0),
        paper="Meng et al. 2024, arXiv:2405.14734",
        about="mean log-prob as the reward, a target margin, no reference",
    ),
    # lambda as for Mistral (0.2 for Llama 2, 0.25 for Phi-2). The likelihood term is taken over the answer alone (the authors'
    # code, unless told otherwise, has the prompt's tokens in it too).
    Preference(
        name="orpo", source="pairs",
        score=preference.mean_logp, reference=False, loss=partial(preference.orpo, lam=0.1),
        paper="Hong et al. 2024, arXiv:2403.07691",
        about="supervised fine-tuning plus an odds-ratio penalty, no reference",
    ),
    # The likelihood term is the paper's log pi(y_w), a sum; the authors' code takes the mean over the batch's tokens.
    Preference(
        name="cpo", source="pairs",
        score=preference.sum_logp, reference=False, loss=partial(preference.cpo, beta=0.1, alpha=1.0),
        paper="Xu et al. 2024, arXiv:2401.08417",
        about="DPO with a uniform reference, plus the likelihood of the chosen answer",
    ),
    # Weights 1 and 1: for unequal counts of good and bad answers the paper wants wanted n_good / (unwanted n_bad) in [1, 3/2].
    Preference(
        name="kto", source="singles",
        score=preference.sum_logp, reference=True, loss=partial(preference.kto, beta=0.1, wanted=1.0, unwanted=1.0),
        paper="Ethayarajh et al. 2024, arXiv:2402.01306",
        about="single answers labelled good or bad, against a KL baseline",
    ),
    # The paper samples two and asks a model which is better; here the best and the worst of a group by score.
    Preference(
        name="online_dpo", source="rollouts to pairs",
        score=preference.sum_logp, reference=True, loss=partial(preference.dpo, beta=0.1),
        paper="Guo et al. 2024, arXiv:2402.04792",
        about="DPO on the best and worst of the policy's own samples",
    ),
)

POLICY = (
    # KL 0.02 is InstructGPT's; value weight and clip, whitening and lambda are those of Ziegler's code, which by default also
    # scales the rewards to std 1: left out. The entropy bonus is PPO's own c2, far below its 0.01 for Atari; Ziegler's loss
    # has none. PPO-ptx and the adaptive KL coefficient are the recipe's.
    Policy(
        name="ppo",
        credit=partial(credit.gae, gamma=1.0, lam=0.95), surrogate=partial(surrogate.clipped_ratio, low=0.2, high=0.2),
        weigh=weights.token_mean, kl_in_reward=0.02, critic=True, value_weight=0.1, value_clip=0.2, entropy=0.001, whiten=True,
        paper="Schulman et al. 2017, arXiv:1707.06347; Ziegler et al. 2019, arXiv:1909.08593; InstructGPT, arXiv:2203.02155",
        about="a critic judges every token; KL in the reward",
    ),
    # The KL coefficient of reinforce and rloo is that of the RLOO paper's TL;DR runs (0.1 on Anthropic-HH). Its REINFORCE
    # subtracts the mean of all rewards so far; here nothing is subtracted.
    Policy(
        name="reinforce",
        credit=credit.raw, surrogate=surrogate.policy_gradient,
        weigh=weights.sequence_sum, kl_in_reward=0.03, unbiased=True,
        paper="Williams 1992, Machine Learning 8; on language: Ahmadian et al. 2024, arXiv:2402.14740",
        about="reward times grad log pi, no baseline",
    ),
    Policy(
        name="rloo",
        credit=credit.leave_one_out, surrogate=surrogate.policy_gradient,
        weigh=weights.sequence_sum, kl_in_reward=0.03, unbiased=True,
        paper="Kool et al. 2019; on language: Ahmadian et al. 2024, arXiv:2402.14740",
        about="the other samples of the prompt are the baseline",
    ),
    # The paper does not print its clip range; 0.2 is PPO's, and Dr. GRPO's in its runs (R1 v2 reports 10).
    Policy(
        name="grpo",
        credit=credit.group_zscore, surrogate=partial(surrogate.clipped_ratio, low=0.2, high=0.2),
        weigh=weights.sequence_mean, kl_in_loss=0.04,
        paper="Shao et al. 2024, DeepSeekMath, arXiv:2402.03300",
        about="z-score within the group instead of a critic, KL in the loss",
    ),
    Policy(
        name="dr_grpo",
        credit=credit.group_centre, surrogate=partial(surrogate.clipped_ratio, low=0.2, high=0.2),
        weigh=weights.fixed_length, unbiased=True,
        paper="Liu et al. 2025, arXiv:2503.20783",
        about="GRPO without the std and without the length in the normaliser",
    ),
    # The soft length limit takes the last fifth of the budget, as 4096 of 20480 tokens in the paper.
    Policy(
        name="dapo",
        credit=credit.group_zscore, surrogate=partial(surrogate.clipped_ratio, low=0.2, high=0.28),
        weigh=weights.token_mean, resample_flat=True, overlong=True,
        paper="Yu et al. 2025, arXiv:2503.14476",
        about="wider clip upwards, token mean, flat groups resampled, soft length limit, no KL",
    ),
    Policy(
        name="gspo",
        credit=credit.group_zscore, surrogate=partial(surrogate.sequence_ratio, low=3e-4, high=4e-4),
        weigh=weights.sequence_mean,
        paper="Zheng et al. 2025, arXiv:2507.18071",
        about="one ratio and one clip per sequence",
    ),
    # No lower clip, as in the paper, which does not print its upper one; a largest weight of 5 is ScaleRL's (arXiv:2510.13786).
    # M1 also took over DAPO's resampling and length penalty: left out here, the row is its surrogate.
    Policy(
        name="cispo",
        credit=credit.group_zscore, surrogate=partial(surrogate.cispo, low=1.0, high=4.0),
        weigh=weights.token_mean,
        paper="MiniMax 2025, MiniMax-M1, arXiv:2506.13585",
        about="the importance weight is clipped, never the token",
    ),
    # nanochat normalises by tokens per prompt and pass; here over the whole step.
    Policy(
        name="nano",
        credit=credit.group_centre, surrogate=surrogate.policy_gradient,
        weigh=weights.token_mean,
        paper="Karpathy 2025, nanochat (github.com/karpathy/nanochat)",
        about="GRPO with nearly all taken away: on policy, no ratio, no KL, no std",
    ),
)

METHODS: dict[str, Method] = {row.name: row for row in (*SUPERVISED, *PREFERENCE, *POLICY)}


def get(name: str) -> Method:
    """The row of that name."""
    if name in METHODS:
        return METHODS[name]
    close = difflib.get_close_matches(name.lower().replace("-", "_"), METHODS, n=1)
    hint = f"did you mean {close[0]!r}?" if close else f"choose one of {', '.join(METHODS)}."
    raise ValueError(f"there is no method {name!r}: {hint}")

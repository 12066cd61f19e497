"""The rows that learn from samples of the policy.

POLICY: rewards become advantages. DISTILLATION: a teacher's log-prob of each sampled token stands in for a
reward. PRESETS: whole recipes, as far as they can be had here, their parts taken from other rows; what is no
matter of a row (a learning rate, the size of a collection) is left to the settings, and omissions stand
in the row's comment.
"""

from __future__ import annotations

from functools import partial

from postgrad.maths import choice, credit, kl, surrogate, weights
from postgrad.methods.row import Policy

POLICY = (
    # KL 0.02 is InstructGPT's; value weight and clip, whitening and lambda are those of Ziegler's code,
    # which by default also scales the rewards to std 1: scale_rewards, off here. Four epochs are Ziegler's
    # and Stiennon's; InstructGPT makes one of eight minibatches. The entropy bonus is PPO's own c2, far below
    # its 0.01 for Atari; Ziegler's loss has none. PPO-ptx and the adaptive KL coefficient are the recipe's.
    Policy(
        name="ppo",
        credit=partial(credit.gae, gamma=1.0, lam=0.95), compares=False,
        surrogate=partial(surrogate.clipped_ratio, low=0.2, high=0.2),
        weigh=weights.token_mean, kl_in_reward=0.02, critic=True, value_weight=0.1, value_clip=0.2,
        entropy=0.001, whiten=True, epochs=4,
        paper="Schulman et al. 2017, arXiv:1707.06347; Ziegler et al. 2019, arXiv:1909.08593; InstructGPT, "
              "arXiv:2203.02155",
        about="a critic judges every token; KL in the reward",
    ),
    # The KL coefficient of reinforce and rloo is that of the RLOO paper's TL;DR runs (0.1 on
    # Anthropic-HH). Its REINFORCE
    # subtracts the mean of all rewards so far; here nothing is subtracted.
    Policy(
        name="reinforce",
        credit=credit.raw, compares=False, surrogate=surrogate.policy_gradient,
        weigh=weights.sequence_sum, kl_in_reward=0.03, ratio=False, unbiased=True,
        paper="Williams 1992, Machine Learning 8; on language: Ahmadian et al. 2024, arXiv:2402.14740",
        about="reward times grad log pi, no baseline",
    ),
    Policy(
        name="rloo",
        credit=credit.leave_one_out, surrogate=surrogate.policy_gradient,
        weigh=weights.sequence_sum, kl_in_reward=0.03, ratio=False, unbiased=True,
        paper="Kool et al. 2019; on language: Ahmadian et al. 2024, arXiv:2402.14740",
        about="the other samples of the prompt are the baseline",
    ),
    # The paper does not print its clip range; 0.2 is PPO's, and Dr. GRPO's in its runs (R1 v2 reports 10). It
    # makes one update of each collection, so that the ratio is 1 and nothing is clipped.
    Policy(
        name="grpo",
        credit=credit.group_zscore, surrogate=partial(surrogate.clipped_ratio, low=0.2, high=0.2),
        weigh=weights.sequence_mean, kl_in_loss=0.04,
        paper="Shao et al. 2024, DeepSeekMath, arXiv:2402.03300",
        about="z-score within the group instead of a critic, KL in the loss",
    ),
    # The paper adds the advantage of a turn's own reward to that of the outcome, for two turns; here a turn
    # is praised for all that is paid from it on, for any number of them. Otherwise grpo, which it is where
    # there is one turn.
    Policy(
        name="turn_grpo",
        credit=credit.turn_zscore, surrogate=partial(surrogate.clipped_ratio, low=0.2, high=0.2),
        weigh=weights.sequence_mean, kl_in_loss=0.04,
        paper="Zeng et al. 2025, arXiv:2505.11821",
        about="grpo with rewards between turns: a turn is compared with the same turn of the group",
    ),
    Policy(
        name="dr_grpo",
        credit=credit.group_centre, surrogate=partial(surrogate.clipped_ratio, low=0.2, high=0.2),
        weigh=weights.fixed_length, unbiased=True,
        paper="Liu et al. 2025, arXiv:2503.20783",
        about="GRPO without the std and without the length in the normaliser",
    ),
    # The soft length limit takes the last fifth of the budget, as 4096 of 20480 tokens in the paper; 16
    # updates of each collection, as there.
    Policy(
        name="dapo",
        credit=credit.group_zscore, surrogate=partial(surrogate.clipped_ratio, low=0.2, high=0.28),
        weigh=weights.token_mean, resample_flat=True, overlong=True, minibatches=16,
        paper="Yu et al. 2025, arXiv:2503.14476",
        about="wider clip upwards, token mean, flat groups resampled, soft length limit, no KL",
    ),
    # Four minibatches, as the paper's runs.
    Policy(
        name="gspo",
        credit=credit.group_zscore, surrogate=partial(surrogate.sequence_ratio, low=3e-4, high=4e-4),
        weigh=weights.sequence_mean, minibatches=4,
        paper="Zheng et al. 2025, arXiv:2507.18071",
        about="one ratio and one clip per sequence",
    ),
    # No lower clip, as in the paper, which does not print its upper one;
    # a largest weight of 5 is ScaleRL's (arXiv:2510.13786).
    # M1 also took over DAPO's resampling and length penalty: left out here, the row is its surrogate, with
    # M1's 16 updates of each collection.
    Policy(
        name="cispo",
        credit=credit.group_zscore, surrogate=partial(surrogate.cispo, low=1.0, high=4.0),
        weigh=weights.token_mean, minibatches=16,
        paper="MiniMax 2025, MiniMax-M1, arXiv:2506.13585",
        about="the importance weight is clipped, never the token",
    ),
    # nanochat normalises by tokens per prompt and pass; here over the whole step.
    Policy(
        name="nano",
        credit=credit.group_centre, surrogate=surrogate.policy_gradient,
        weigh=weights.token_mean, ratio=False,
        paper="Karpathy 2025, nanochat (github.com/karpathy/nanochat)",
        about="GRPO with nearly all taken away: on policy, no ratio, no KL, no std",
    ),
    # The paper's clip by total variation (it has one by KL too), with the threshold, the eight minibatches
    # and Dr. GRPO's advantages and weights of its authors' script. prime-rl, whose default it is, takes
    # low=high=0.2, the token mean and square=1e-3 (from Kimi K2.5, arXiv:2602.02276). The probability that a
    # token moves away from is the sampler's, as in the paper; the ratio is to our own policy as it was, which
    # is the sampler but where that is another engine: there the paper's ratio is this one times a correction
    # (method.correction=tis).
    Policy(
        name="dppo",
        credit=credit.group_centre,
        surrogate=partial(surrogate.probability_clip, low=0.15, high=0.15, square=0.0),
        weigh=weights.fixed_length, minibatches=8, unbiased=True,
        paper="Qi et al. 2026, arXiv:2602.04879",
        about="the clip is on the change of a token's probability, not on its ratio",
    ),
    # An all-wrong group gets 0, as in the authors' code and prime-rl: unbiased for the terms k <= G - 1. With
    # all_wrong=-1 it is so for k <= G, and failures of prompts that were never solved are pushed down. For
    # verdicts of 0 and 1; for other scores nothing is claimed. Sum over a reply's tokens, as the formula has
    # it.
    Policy(
        name="maxrl",
        credit=partial(credit.over_mean, all_wrong=0.0), surrogate=surrogate.policy_gradient,
        weigh=weights.sequence_sum, ratio=False,
        paper="Tajwar et al. 2026, arXiv:2602.02710",
        about="the group's mean as the scale: climbs sum of pass@k / k, towards log-likelihood",
    ),
    # The paper's variant with a baseline, for several samples a prompt. The KL weight and its place are those
    # of OpenRLHF's documentation; the paper's runs vary it.
    Policy(
        name="reinforce_pp",
        credit=credit.group_centre, surrogate=partial(surrogate.clipped_ratio, low=0.2, high=0.2),
        weigh=weights.token_mean, whiten=True, kl_in_loss=1e-3, kl_estimator=kl.k2,
        paper="Hu et al. 2025, REINFORCE++, arXiv:2501.03262",
        about="the group's mean is taken off, the spread is that of all tokens; KL by k2",
    ),
    # The paper's temperatures, which are TRL's and verl's too. Four minibatches, as GSPO, from the same team.
    Policy(
        name="sapo",
        credit=credit.group_zscore, surrogate=partial(surrogate.soft_gate, praised=1.0, blamed=1.05),
        weigh=weights.sequence_mean, minibatches=4,
        paper="Gao et al. 2025, arXiv:2511.20347",
        about="a sigmoid of the ratio in place of the clip",
    ),
    # The clip is exp(-0.4) to exp(0.4), as in the paper; verl's default is 0.2. The z-score, the eight
    # minibatches and no KL are those of the authors' script, which runs Dr. GRPO's code.
    Policy(
        name="gmpo",
        credit=credit.group_zscore, surrogate=partial(surrogate.geometric_mean, low=0.4, high=0.4),
        weigh=weights.sequence_mean, minibatches=8,
        paper="Zhao et al. 2025, arXiv:2507.20673",
        about="the geometric mean of a reply's ratios, each clipped by itself",
    ),
    # The std is that of all rewards of the collection; the paper speaks of a batch. One update of each
    # collection: it does not print how many it makes.
    Policy(
        name="lite_ppo",
        credit=credit.batch_scaled, surrogate=partial(surrogate.clipped_ratio, low=0.2, high=0.2),
        weigh=weights.token_mean,
        paper="Liu et al. 2025, arXiv:2508.08221",
        about="mean of the group, std of the collection, token mean, and nothing else",
    ),
    # On policy, without KL or entropy, as in the paper. The paper's baseline holds the sample itself, and so
    # does this one: a bias that falls as 1/G.
    Policy(
        name="opo",
        credit=credit.length_weighted, surrogate=surrogate.policy_gradient,
        weigh=weights.sequence_sum, ratio=False,
        paper="Hao et al. 2025, arXiv:2505.23585",
        about="the baseline weighs rewards by length: the least noise of the gradient",
    ),
    # All but the credit is GRPO's row. The parts are those of a sum of rewards (reward=number+think) with its
    # weights; a single reward is GRPO's, whitened over the rollouts.
    Policy(
        name="gdpo",
        credit=credit.each_reward, surrogate=partial(surrogate.clipped_ratio, low=0.2, high=0.2),
        weigh=weights.sequence_mean, kl_in_loss=0.04,
        paper="Liu et al. 2026, arXiv:2601.05242",
        about="several rewards, each normalised by itself before they are summed",
    ),
    # The share is the paper's for 32B (2e-3 for 7B). The covariance is taken once for a step, from the policy
    # that sampled; in the paper's code from the present one, and anew in each micro-batch, so that its update
    # depends on the split. Eight minibatches, as its script for 32B, which leaves flat groups out too. The
    # penalty of 1 is the paper's; verl's default is 0.1.
    Policy(
        name="kl_cov",
        credit=credit.group_zscore, surrogate=partial(surrogate.marked_penalty, penalty=1.0),
        mark=partial(choice.top_covariance, share=2e-4), weigh=weights.token_mean, minibatches=8,
        paper="Cui et al. 2025, arXiv:2505.22617",
        about="the few tokens that would lower the entropy most are held back",
    ),
)

DISTILLATION = (
    # The sum over the vocabulary, as GKD and TRL's trainer; Thinking Machines' runs let the sampled token
    # stand for it, which has the same mean and far more noise. A choice answers for itself alone, and not for
    # where it leads. It is exact at every state, whoever came there, so that further updates on a collection
    # need no ratio. The advantages, the teacher's word on each token that was sampled, are shown and not
    # learned from; verdicts are logged, and have no say.
    Policy(
        name="opd",
        credit=credit.distil_per_token, compares=False, surrogate=surrogate.divergence,
        weigh=weights.token_mean,
        paper="Lu et al. 2025, On-Policy Distillation (thinkingmachines.ai); Agarwal et al. 2023, GKD, "
              "arXiv:2306.13649; Gu et al. 2023, MiniLLM, arXiv:2306.08543",
        about="the KL to a better model, over the whole vocabulary, wherever the policy's samples lead",
    ),
    # The teacher stands still, as TRL's does by default; the paper's follows the policy as a moving average.
    # The paper sums over the vocabulary; here the sampled token stands for it, as in Thinking Machines' runs:
    # the teacher reads other rows than the policy. One update of each collection, so that the ratio is 1.
    # gamma=0: a token answers for itself alone; 1 with a sum over the sequence is unbiased for
    # KL(pi || teacher), and noisier. The demonstration is a turn of its own, before the question is asked
    # again; the paper puts it into the question, in words. Where demonstrations do not raise the model's own
    # pass@1, the run is refused. Verdicts are logged, and have no say.
    Policy(
        name="sdft",
        credit=partial(credit.distil, gamma=0.0), compares=False,
        surrogate=partial(surrogate.clipped_ratio, low=0.2, high=0.2), weigh=weights.token_mean, shown=True,
        paper="Shenfeld et al. 2026, Self-Distillation Enables Continual Learning, arXiv:2601.19897",
        about="the model itself, shown a demonstration, is the teacher",
    ),
)

PRESETS = (
    # Had: CISPO with a largest weight of 5, the mean by prompt, advantages by their std over the collection,
    # groups without a signal left out (drawn again here; rollouts.resample_limit=0 is the paper's), logits in
    # float32 (so in every row). Eight updates of each collection stand for PipelineRL with k = 8: samples are
    # up to seven updates old. Left out: prompts with a pass rate of 0.9 never drawn again, the forced end of
    # a thought. Its runs have 48 prompts of 16 samples: prompts_per_step=48 group_size=16.
    Policy(
        name="scalerl",
        credit=credit.advantage_scaled, surrogate=partial(surrogate.cispo, low=1.0, high=4.0),
        weigh=weights.prompt_mean, resample_flat=True, minibatches=8,
        paper="Khatri et al. 2025, arXiv:2510.13786",
        about="ScaleRL: CISPO, the std of all advantages, the mean by prompt, flat groups left out",
    ),
    # Had: the unbiased KL (k3 times the ratio), blamed replies dropped that the policy has left behind. The
    # paper does not print its clip, the weight of the KL (it varies by domain, 0 for maths), the threshold or
    # the updates of a collection: 0.2 is PPO's, 1e-3 and the 16 are R1's, 0.5 is other codes'. Left out:
    # routing and sampling masks kept from the sampler (our models are dense, and sampled from the full
    # softmax).
    Policy(
        name="deepseek_v32",
        credit=credit.group_centre,
        surrogate=partial(surrogate.stale_dropped, low=0.2, high=0.2, far=0.5),
        weigh=weights.sequence_mean, kl_in_loss=1e-3, kl_estimator=kl.weighted_k3, minibatches=16,
        paper="DeepSeek-AI 2025, DeepSeek-V3.2, arXiv:2512.02556",
        about="DeepSeek-V3.2: GRPO with an unbiased KL, without stale blamed replies",
    ),
)

"""Rows that name a whole recipe, as far as it can be had here: `postgrad train scalerl:words`.

A preset is a row like any other, its parts taken from other rows. What is no matter of a row (a learning
rate, the size of a collection) is left to the settings; what the recipe has and this house has not is said in
the row's comment.
"""

from __future__ import annotations

from functools import partial

from postgrad.maths import credit, kl, surrogate, weights
from postgrad.methods.row import Policy

PRESETS = (
    # Had: CISPO with a largest weight of 5, advantages by the std of the collection, groups without a signal
    # left out (drawn again here; rollouts.resample_limit=0 is the paper's), logits in float32 (so in every
    # row). Eight updates of each collection stand for PipelineRL with k = 8: samples are up to seven updates
    # old. Left out: the mean by prompt (over the step here, as in every row), prompts with a pass rate
    # of 0.9 never drawn again, the forced end of a thought. Its runs have 48 prompts of 16 samples:
    # prompts_per_step=48 group_size=16.
    Policy(
        name="scalerl",
        credit=credit.batch_scaled, surrogate=partial(surrogate.cispo, low=1.0, high=4.0),
        weigh=weights.token_mean, resample_flat=True, minibatches=8,
        paper="Khatri et al. 2025, arXiv:2510.13786",
        about="ScaleRL: CISPO, the std of the collection, flat groups left out",
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
        surrogate_wants=("sampler_logp",), weigh=weights.sequence_mean, kl_in_loss=1e-3, kl=kl.weighted_k3,
        kl_wants=("old_logp",), minibatches=16,
        paper="DeepSeek-AI 2025, DeepSeek-V3.2, arXiv:2512.02556",
        about="DeepSeek-V3.2: GRPO with an unbiased KL, without stale blamed replies",
    ),
)

"""The rows that learn from a teacher's word on each token of the policy's own samples."""

from __future__ import annotations

from functools import partial

from postgrad.maths import credit, surrogate, weights
from postgrad.methods.row import Policy

DISTILLATION = (
    # The sum over the vocabulary, as GKD and TRL's trainer; Thinking Machines' runs let the sampled token
    # stand for it, which has the same mean and far more noise. A choice answers for itself alone, and not for
    # where it leads. It is exact at every state, whoever came there, so that further updates on a collection
    # need no ratio. The advantages, the teacher's word on each token that was sampled, are shown and not
    # learned from; verdicts are logged, and have no say.
    Policy(
        name="opd",
        credit=credit.told, credit_wants=("teacher_logp", "old_logp"), compares=False,
        surrogate=surrogate.divergence, surrogate_wants=("teacher_kl",), weigh=weights.token_mean,
        paper="Lu et al. 2025, On-Policy Distillation (thinkingmachines.ai); Agarwal et al. 2023, GKD, "
              "arXiv:2306.13649; Gu et al. 2023, MiniLLM, arXiv:2306.08543",
        about="a better model's word on every token that the policy samples",
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
        credit=partial(credit.distil, gamma=0.0), credit_wants=("teacher_logp", "old_logp"), compares=False,
        surrogate=partial(surrogate.clipped_ratio, low=0.2, high=0.2), weigh=weights.token_mean, shown=True,
        paper="Shenfeld et al. 2026, Self-Distillation Enables Continual Learning, arXiv:2601.19897",
        about="the model itself, shown a demonstration, is the teacher",
    ),
)

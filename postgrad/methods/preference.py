"""The rows that learn from preferences: which of two answers is better, whether one is good,
whether a step is right."""

from __future__ import annotations

from functools import partial

from postgrad.maths import preference
from postgrad.methods.row import Preference

PREFERENCE = (
    Preference(
        name="reward", source="pairs",
        score=None, reference=False, loss=partial(preference.reward, smoothing=0.0, centre=0.0),
        paper="Ouyang et al. 2022, InstructGPT, arXiv:2203.02155; margin: Llama 2, arXiv:2307.09288",
        about="a scalar head learns which answer was preferred",
    ),
    # The papers have people label the steps, and stop at the first mistake;
    # here a task's checker does, and what follows a
    # mistake is labelled wrong as well: a label says whether all is right so far (Uesato et al.).
    Preference(
        name="process", source="steps",
        score=None, reference=False, loss=preference.label_loss,
        paper="Lightman et al. 2023, arXiv:2305.20050; Uesato et al. 2022, arXiv:2211.14275",
        about="a scalar head learns after every step whether all is right so far",
    ),
    # The paper's verifier predicts at every token, with a language-model loss beside it;
    # here at the last token alone. The
    # cross-entropy is that of Math-Shepherd (arXiv:2312.08935).
    Preference(
        name="outcome", source="outcomes",
        score=None, reference=False, loss=preference.label_loss,
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
    # The paper's tau is called beta here; it trains bandits alone, so 0.1 is DPO's. Its log pi(y) is a sum
    # over the tokens; the mean, which its authors advise and TRL takes, makes beta independent of the length.
    # With the sum, the gradient of short replies has a norm of 170, a hundred times what is clipped.
    Preference(
        name="ipo", source="pairs",
        score=preference.mean_logp, reference=True, loss=partial(preference.ipo, beta=0.1),
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
    # beta and gamma as for Llama-3-Base (the authors' code has gamma/beta, 0.5);
    # the paper tunes both for each model.
    Preference(
        name="simpo", source="pairs",
        score=preference.mean_logp, reference=False, loss=partial(preference.simpo, beta=2.0, gamma=1.0),
        paper="Meng et al. 2024, arXiv:2405.14734",
        about="mean log-prob as the reward, a target margin, no reference",
    ),
    # lambda as for Mistral (0.2 for Llama 2, 0.25 for Phi-2).
    # The likelihood term is taken over the answer alone (the authors'
    # code, unless told otherwise, has the prompt's tokens in it too).
    Preference(
        name="orpo", source="pairs",
        score=preference.mean_logp, reference=False, loss=partial(preference.orpo, lam=0.1),
        paper="Hong et al. 2024, arXiv:2403.07691",
        about="supervised fine-tuning plus an odds-ratio penalty, no reference",
    ),
    # The likelihood term is the paper's log pi(y_w), a sum;
    # the authors' code takes the mean over the batch's tokens.
    Preference(
        name="cpo", source="pairs",
        score=preference.sum_logp, reference=False, loss=partial(preference.cpo, beta=0.1, alpha=1.0),
        paper="Xu et al. 2024, arXiv:2401.08417",
        about="DPO with a uniform reference, plus the likelihood of the chosen answer",
    ),
    # The paper weighs DPO by alpha, TRL (rpo_alpha; loss_type sigmoid and sft) the likelihood:
    # at 1, the paper's, they are one.
    Preference(
        name="rpo", source="pairs",
        score=preference.sum_logp, reference=True, loss=partial(preference.rpo, beta=0.1, alpha=1.0),
        paper="Pang et al. 2024, arXiv:2404.19733",
        about="DPO plus the mean log-prob of the chosen answer: it stays likely",
    ),
    # Weights 1 and 1: for unequal counts of good and bad answers the paper wants wanted n_good /
    # (unwanted n_bad) in [1, 3/2].
    Preference(
        name="kto", source="singles",
        score=preference.sum_logp, reference=True,
        loss=partial(preference.kto, beta=0.1, wanted=1.0, unwanted=1.0),
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

"""The table of symptoms, worst first; of two that go together, the cause before its effect."""

from __future__ import annotations

from postgrad.runs.doctor import learned, trust, update
from postgrad.runs.doctor.chart import Symptom
from postgrad.runs.doctor.limits import ENOUGH

SYMPTOMS = (
    # what makes the figures worthless
    Symptom(name="splits share prompts", about="evaluated problems are trained on", find=trust.leaked,
            needs=("data leaked",)),
    Symptom(name="sampler and trainer disagree", about="their log-probabilities of one token differ",
            find=trust.mismatch, needs=("mismatch",)),
    Symptom(name="stale reference", about="policy and reference differ before the first update",
            find=trust.stale_reference, needs=("kl|chosen",)),
    Symptom(name="wrong sign or mask", about="what is praised becomes less likely, or is not trained whole",
            find=trust.wrong_sign, needs=("samples moved",)),
    Symptom(name="verifier errors", about="samples that could not be judged", find=trust.verifier_errors,
            needs=("errors",)),
    # what breaks the training
    Symptom(name="skipped steps", about="updates that were not finite", find=update.skipped_steps,
            needs=("loss",)),
    Symptom(name="rate too high", about="single updates destroy what the model could do",
            find=update.rate_too_high, needs=("loss",), after=ENOUGH),
    Symptom(name="dead reward head", about="it says the same of every answer", find=learned.dead_head,
            needs=("margin", "accuracy", "loss"), after=ENOUGH),
    # what is learned instead
    Symptom(name="form is paid, not content", about="the reward rises with the form alone",
            find=learned.form_paid, needs=("|".join(f"reward/{form}" for form in learned.FORMS),
                                           "reward/correct", "reward"), after=ENOUGH),
    Symptom(name="KL explosion", about="the policy has left the model it began as",
            find=update.kl_explosion, needs=("kl|evaluation kl_reply",), after=ENOUGH),
    Symptom(name="length creep", about="replies grow and do not become better", find=learned.length_creep,
            needs=("length", "reward"), after=ENOUGH),
    Symptom(name="proxy and evaluation diverge", about="what is paid rises, what is evaluated falls",
            find=learned.parting, needs=("evaluation reward|evaluation pass@1",
                                         "evaluation proxy|reward"), after=ENOUGH),
    Symptom(name="entropy collapse", about="samples become alike before anything is learned",
            find=learned.entropy_collapse, needs=("entropy", "reward", "flat_groups"), after=ENOUGH),
    Symptom(name="truncation", about="replies are cut at the limit", find=learned.truncation,
            needs=("truncated",), after=ENOUGH),
    Symptom(name="no signal", about="the samples of a group score alike", find=learned.no_signal,
            needs=("flat_groups", "reward", "reward_std"), after=ENOUGH),
    # what wastes it
    Symptom(name="critic explains nothing", about="its values foresee none of the returns",
            find=update.critic_explains_nothing, needs=("explained_variance", "value", "return"),
            after=ENOUGH),
    Symptom(name="clip always or never at work", about="the clip cuts most tokens, or none", find=update.clip,
            needs=("clip_fraction", "approx_kl"), after=ENOUGH),
    Symptom(name="gradient always clipped", about="max_grad_norm sets the length of every update",
            find=update.gradient_clipped, needs=("grad_norm",), after=ENOUGH),
    Symptom(name="group too small", about="too few samples to compare", find=learned.small_group),
    Symptom(name="duplicated prompts", about="prompts that stand twice", find=trust.repeated,
            needs=("data repeated",)),
    Symptom(name="the run failed", about="it ended with an error", find=learned.failed),
)

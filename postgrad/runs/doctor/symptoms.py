"""The symptoms, one pure function of a run's chart each, in the order in which they are reported."""

from __future__ import annotations

from postgrad.runs.doctor import learning, unsound, updates

MINOR = (  # waste samples or time
    updates.critic_explains_nothing, updates.clip, updates.gradient_clipped, learning.small_group,
    unsound.repeated)

SYMPTOMS = (  # worst first; of two that occur together, the cause before its effect
    # the figures are worthless
    unsound.leaked, unsound.old_weights, unsound.mismatch, unsound.stale_reference,
    unsound.following_reference, unsound.wrong_way, unsound.wrong_sign, unsound.stop_token,
    unsound.other_rows, unsound.verifier_errors, unsound.contradiction,
    # the training breaks
    updates.skipped_steps, updates.rate_too_high, updates.rate_too_low, learning.dead_head,
    updates.tight_leash, learning.reward_collapse,
    # something else is learned
    learning.form_paid, updates.kl_explosion, learning.length_creep, learning.proxy_diverges,
    learning.entropy_collapse, learning.truncation, learning.no_signal,
    *MINOR, learning.failed,
)

"""The exercises, in the order of the chapters: a file each."""

from postgrad.studio.exercises.coding import (
    bias_audit,
    bradley_terry,
    broken_run,
    clipped_surrogate,
    dpo,
    gae,
    group_advantages,
    kl_estimators,
    log_probs,
    new_row,
    pass_at_k,
    reward_hacking,
    simple_grpo,
    verifier,
)

EXERCISES = {module.EXERCISE.name: module.EXERCISE for module in (
    bradley_terry, bias_audit, log_probs, gae, clipped_surrogate, kl_estimators, dpo, group_advantages,
    verifier, pass_at_k, simple_grpo, new_row, reward_hacking, broken_run)}

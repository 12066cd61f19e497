"""The exercises, in the order of the chapters: a file each. Every module defines the same names:

    cases(random)      arguments to try, edge cases among them
    right(*arguments)  what a right answer returns for them, computed by other means than the solution
    EXERCISE           the `Exercise`: texts, hints, solution, mistakes, and these two
"""

from __future__ import annotations

from importlib import import_module

from postgrad.studio.exercises.base import Exercise

MODULES = ("bandit", "bradley_terry", "bias_audit", "log_probs", "gae", "clipped_surrogate", "kl_estimators",
           "dpo", "group_advantages", "verifier", "pass_at_k", "simple_grpo", "new_row", "reward_hacking",
           "broken_run", "distillation", "stale_samples", "turn_returns", "wilson", "paired_bootstrap")
EXERCISES: dict[str, Exercise] = {exercise.name: exercise for exercise in (
    import_module(f"{__name__}.{module}").EXERCISE for module in MODULES)}

"""The numbers that the constants of the table's rows may have, by the names that methods/words.py knows.

A constant of a user's own function has none: what it may be is in that function's text.
"""

from __future__ import annotations

from collections.abc import Callable

from postgrad.system.settings import COUNT, ERROR_RATE, FRACTION, NOT_NEGATIVE, POSITIVE, Range
from postgrad.system.user_code import called

RANGES: dict[str, Range] = {
    "low": NOT_NEGATIVE, "high": NOT_NEGATIVE, "kl_in_loss": NOT_NEGATIVE, "kl_in_reward": NOT_NEGATIVE,
    "truncated_penalty": NOT_NEGATIVE, "kl_stop": NOT_NEGATIVE, "epochs": COUNT, "minibatches": COUNT,
    "probability_clip.square": NOT_NEGATIVE, "soft_gate.praised": POSITIVE, "soft_gate.blamed": POSITIVE,
    "marked_penalty.penalty": NOT_NEGATIVE, "top_covariance.share": FRACTION, "top_entropy.share": FRACTION,
    "stale_dropped.far": NOT_NEGATIVE, "truncated.cap": POSITIVE, "banded.least": NOT_NEGATIVE,
    "banded.most": POSITIVE, "sequence_banded.widest": POSITIVE, "value_weight": NOT_NEGATIVE,
    "value_clip": NOT_NEGATIVE, "gae.gamma": FRACTION, "gae.lam": FRACTION, "distil.gamma": FRACTION,
    "beta": POSITIVE, "simpo.gamma": NOT_NEGATIVE, "cdpo.eps": ERROR_RATE, "orpo.lam": NOT_NEGATIVE,
    "cpo.alpha": NOT_NEGATIVE, "kto.wanted": NOT_NEGATIVE, "kto.unwanted": NOT_NEGATIVE,
    "reward.smoothing": ERROR_RATE, "reward.centre": NOT_NEGATIVE}


def range_of(name: str, function: Callable | None = None) -> Range | None:
    """Of a constant of a function, or of a number that the row itself holds."""
    if function is None:
        return RANGES.get(name)
    module, _, last = called(function).rpartition(".")
    return (RANGES.get(f"{last}.{name}") or RANGES.get(name)) if module.startswith("postgrad.") else None

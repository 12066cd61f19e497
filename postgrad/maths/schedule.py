"""The learning rate's factor at each step: f(step, steps, warmup) -> factor. Steps count from 1 to `steps`.

No step is wasted: step 1 of a warm-up has factor 1/warmup, not 0,
and a decay reaches its floor on the step after the last.
"""

from __future__ import annotations

import math


def warmup_factor(step: int, warmup: int) -> float:
    """step/warmup up to 1: 1/warmup at step 1, 1 at step `warmup`."""
    return min(1.0, step / warmup) if warmup > 0 else 1.0


def _progress(step: int, steps: int, warmup: int) -> float:
    """0 at the first step after the warm-up, 1 on the step after the last."""
    return min(max((step - 1 - warmup) / max(steps - warmup, 1), 0.0), 1.0)


def constant_schedule(step: int, steps: int, warmup: int) -> float:
    """Warm-up, then 1."""
    return warmup_factor(step, warmup)


def linear_schedule(step: int, steps: int, warmup: int, *, floor: float = 0.0) -> float:
    """Warm-up, then a straight line down to the floor."""
    return warmup_factor(step, warmup) * (1.0 - (1.0 - floor) * _progress(step, steps, warmup))


def cosine_schedule(step: int, steps: int, warmup: int, *, floor: float = 0.1) -> float:
    """Warm-up, then half a cosine down to the floor: floor + (1 - floor) (1 + cos(pi progress))
    / 2 (1608.03983)."""
    wave = 0.5 * (1.0 + math.cos(math.pi * _progress(step, steps, warmup)))
    return warmup_factor(step, warmup) * (floor + (1.0 - floor) * wave)


SCHEDULES = {"constant": constant_schedule, "linear": linear_schedule, "cosine": cosine_schedule}

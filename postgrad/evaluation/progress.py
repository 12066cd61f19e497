"""How far a sampling is, reply by reply."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from postgrad.records import Rollout

Progress = Callable[[range], Iterable[int]]  # yields the items of the range, and may display how far it is


@contextmanager
def track_replies(progress: Progress, replies: int, *samplers: Any) -> Iterator[None]:
    """Within the block `progress` advances by one with each reply that one of the samplers ends."""
    ticks, before = iter(progress(range(replies))), [getattr(sampler, "ended", None) for sampler in samplers]

    def advance_and(then: Callable[[Rollout], None] | None) -> Callable[[Rollout], None]:
        def ended(rollout: Rollout) -> None:
            next(ticks, None)
            if then:
                then(rollout)
        return ended

    next(ticks, None)  # its clock starts here
    for sampler, then in zip(samplers, before, strict=True):
        sampler.ended = advance_and(then)
    try:
        yield
        for _ in ticks:  # replies of samplers that report none
            continue
    finally:
        for sampler, then in zip(samplers, before, strict=True):
            sampler.ended = then
        if hasattr(ticks, "close"):
            ticks.close()

"""How far a sampling is, reply by reply."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from postgrad.records import Rollout

Track = Callable[[range], Iterable]  # gives the items back, and may show how far it is


@contextmanager
def counted(track: Track, replies: int, *samplers) -> Iterator[None]:
    """Within the block `track` goes on by one with each reply that one of the samplers ends."""
    ticks, before = iter(track(range(replies))), [getattr(sampler, "ended", None) for sampler in samplers]

    def tell(then: Callable[[Rollout], None] | None) -> Callable[[Rollout], None]:
        def ended(rollout: Rollout) -> None:
            next(ticks, None)
            if then:
                then(rollout)
        return ended

    next(ticks, None)  # its clock starts here
    for sampler, then in zip(samplers, before, strict=True):
        sampler.ended = tell(then)
    try:
        yield
        for _ in ticks:  # those that a sampler did not tell of
            continue
    finally:
        for sampler, then in zip(samplers, before, strict=True):
            sampler.ended = then
        if hasattr(ticks, "close"):
            ticks.close()

"""Collections on a clock: rows on samplers, one trainer, and `rollouts.async_depth` as batches/ahead.py
admits them."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

COLLECTIONS, FIRST = 24, 8  # simulated, and from which on the clock is read


@dataclass(frozen=True, kw_only=True)
class ReplyLengths:
    """How long replies are. kind: equal, or geometric (each token may be the last), cut at the longest."""

    mean: float
    longest: int
    kind: str = "geometric"

    def draw(self, rows: int, rng: random.Random) -> list[int]:
        if self.kind == "equal":
            return [round(self.mean)] * rows
        return [min(self.longest, 1 + int(rng.expovariate(1 / max(self.mean, 1e-9)))) for _ in range(rows)]


class Times(NamedTuple):
    """Seconds between two steps, and how much of it the trainer waited and trained; of a collection, the
    seconds of its sampling."""

    step: float
    waiting: float
    training: float
    sampling: float


def sampling_seconds(lengths: Sequence[int], slots: int, token: Callable[[float, float], float]) -> float:
    """Seconds in which one sampler writes rows of these lengths, at most `slots` at once; a row that ends
    makes room for the next. token(rows, tokens): seconds of one more token for rows that have so many on
    average."""
    waiting = list(lengths)[::-1]
    active: list[tuple[int, int]] = []  # (the token at which it ends, that at which it began)
    at, clock, begun = 0, 0.0, 0  # begun: the sum of where the active ones began
    while waiting or active:
        while waiting and len(active) < slots:
            heapq.heappush(active, (at + waiting.pop(), at))
            begun += at
        until = active[0][0]
        middle = (at + until) / 2 - begun / len(active)
        clock += (until - at) * token(len(active), max(middle, 0.0))
        at = until
        while active and active[0][0] <= at:
            begun -= heapq.heappop(active)[1]
    return clock


def simulate(sample: Callable[[random.Random], float], train: float, hand_over: float, ahead: int,
             seed: int = 0) -> Times:
    """A training with so many collections ahead. sample(rng): seconds of one collection. hand_over: seconds
    from the end of an update until the samplers have its weights; training does not go on before they are
    written where nothing is ahead."""
    rng, ready, free, spent = random.Random(seed), 0.0, 0.0, []
    trained: list[float] = []
    waits = []
    for c in range(COLLECTIONS):
        before = c - ahead - 1
        begins = max(free, trained[before] + hand_over if before >= 0 else 0.0)
        spent.append(sample(rng))
        free = begins + spent[-1]
        starts = max(ready, free)
        waits.append(starts - ready)
        ready = starts + train
        trained.append(ready)
    count = COLLECTIONS - FIRST
    return Times(step=(trained[-1] - trained[FIRST - 1]) / count, waiting=sum(waits[FIRST:]) / count,
                 training=train, sampling=sum(spent[FIRST:]) / count)

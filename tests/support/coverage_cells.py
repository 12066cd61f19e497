"""How often the 95 % intervals hold the truth, on simulated problems of which some are harder than others.

A problem's chance of a right sample is drawn from a beta distribution of mean p; several samples share it.
The sum of its two parameters says how alike problems are: at 0.5 most are always or never solved, at 10 most
have chances near the mean.

    mean     pass@1            pass@k   of k samples              solved   the same, with p as its share
    graded   a reward in [0, 1]                                    same     of two models, as good on each
    gain     a second model that finds half the problems as hard as the first does, and the others anew
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from postgrad.maths.intervals import gain_interval, mean_interval
from postgrad.maths.passk import pass_at_k

PROBLEMS, SAMPLES, SHARES = (20, 100, 500), (1, 4, 16), (0.0, 0.02, 0.1, 0.5, 0.9, 1.0)
ALIKE = 2.0  # a + b of the beta distribution: at p = 1/2 every chance is as likely as any other
LEAST = 0.92
KINDS = ("mean", "pass@k", "graded", "gain", "solved", "same")
ASKED, SPREADS, AMONG = (0.02, 0.2, 0.8), (0.5, 2.0, 10.0), (0.93, 0.97)


@dataclass(frozen=True)
class Cell:
    """n problems, k samples of each, a share p of right samples."""

    kind: str
    n: int
    k: int
    p: float
    alike: float = ALIKE

    @property
    def certain(self) -> bool:
        return self.p in (0.0, 1.0)

    @property
    def mean(self) -> float:
        """Of the chances: p, or for `solved` what makes a share p of the problems solved, by halving."""
        low, high = (0.0, 1.0) if self.kind == "solved" else (self.p, self.p)
        while high - low > 1e-12:
            middle = (low + high) / 2
            low, high = (low, middle) if solved(middle, self.k, self.alike) > self.p else (middle, high)
        return low


def solved(p: float, k: int, alike: float) -> float:
    """The share of problems of which one of k samples is right: 1 - E (1 - q)^k of the beta distribution."""
    if p in (0.0, 1.0):
        return p
    return 1 - math.prod((alike * (1 - p) + j) / (alike + j) for j in range(k))


def chances(rng: np.random.Generator, p: float, alike: float, shape: tuple[int, ...]) -> np.ndarray:
    return rng.beta(alike * p, alike * (1 - p), shape) if 0 < p < 1 else np.full(shape, p)


def other(p: float) -> float:
    """The share of the second model."""
    return 0.1 + 0.8 * p if 0 < p < 1 else p


def truth(cell: Cell) -> float:
    if cell.kind == "gain":
        return (other(cell.p) - cell.p) / 2
    if cell.kind == "pass@k":
        return solved(cell.p, cell.k, cell.alike)
    return 0.0 if cell.kind == "same" else cell.p


def values(cell: Cell, times: int, rng: np.random.Generator) -> Iterator[tuple[list[float], ...]]:
    """One value a problem, `times` times over; of a gain, those of both models."""
    first = chances(rng, cell.mean, cell.alike, (times, cell.n))
    right = rng.binomial(cell.k, first)
    if cell.kind in ("pass@k", "solved"):
        table = np.array([pass_at_k(cell.k, c, cell.k) for c in range(cell.k + 1)])
        return ((row,) for row in table[right].tolist())
    if cell.kind == "graded":  # a reward in [0, 1] with the chance as its mean, neither 0 nor 1
        parts = [rng.beta(3 * first + 1e-9, 3 * (1 - first) + 1e-9) for _ in range(cell.k)]
        return ((row,) for row in np.clip(np.mean(parts, axis=0), 0.0, 1.0).tolist())
    if cell.kind == "mean":
        return ((row,) for row in (right / cell.k).tolist())
    same = rng.random((times, cell.n)) < (0.5 if cell.kind == "gain" else 1.1)
    second = np.where(same, first, chances(rng, other(cell.p), cell.alike, (times, cell.n)))
    return zip((right / cell.k).tolist(), (rng.binomial(cell.k, second) / cell.k).tolist(), strict=True)


def covered(cell: Cell, times: int, seed: int) -> tuple[float, float, float]:
    """How often the interval holds the truth, how often Student's does, and the mean width of ours."""
    rng = np.random.default_rng([seed, KINDS.index(cell.kind), cell.n, cell.k, round(1000 * cell.p)])
    interval, real = gain_interval if cell.kind in ("gain", "same") else mean_interval, truth(cell)
    held, plain, width = 0, 0, 0.0
    for found in values(cell, times, rng):
        _, low, high = interval(*found, within=(0.0, 1.0))
        held += low - 1e-9 <= real <= high + 1e-9
        width += (high - low) / times
        _, low, high = interval(*found)
        plain += math.isfinite(low) and low - 1e-9 <= real <= high + 1e-9
    return held / times, plain / times, width

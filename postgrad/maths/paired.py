"""Two models on the same problems: is the difference real, and if not, how many problems would tell."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

from postgrad.maths.intervals import NORMAL

POWER = 0.8
NORMAL_80 = 0.841621234  # the 80 % quantile of the normal


def sign_flip(differences: Sequence[int]) -> float:
    """The chance of a sum at least as far from 0, were the two models alike: Fisher's test of paired
    differences, one per problem, in whole units (samples more right).

    Were they alike, which of the two did better on a problem would be a coin's choice, so each of the
    2^n ways to turn the signs is as likely as any other (Fisher 1935, section 21). The answer is the share of
    them whose sum is as far from 0 as the one seen, counted exactly: the ways to make each sum are the
    coefficients of the product of (1 + x^|d|). Two-sided. Differences that are all 0: 1.

    sign_flip([1, 1, 1, 1]) -> 2 / 16: only all plus and all minus are as far.
    """
    sizes = [abs(d) for d in differences if d]
    total, seen = sum(sizes), abs(sum(differences))
    width = len(sizes) + 1  # bits of a coefficient, of which none is above 2^n: x = 2^width
    ways = 1
    for size in sizes:
        ways += ways << width * size
    # a sum of signed sizes is total - 2 * (what is turned), so as far as seen means that at most
    # (total - seen) / 2 is turned, or the mirror image of that
    turned = (total - seen) // 2
    low, mask = ways & ((1 << width * (turned + 1)) - 1), (1 << width) - 1
    far = sum((low >> width * i) & mask for i in range(turned + 1))
    return min(1.0, 2 * far / (1 << len(sizes)))


def whole_units(first: Sequence[float], second: Sequence[float], counts: Sequence[int]) -> list[int]:
    """second - first, problem by problem, in whole units: shares of `counts` samples are multiples of one
    over their least common multiple. Above 1,000 units they are rounded to a thousandth."""
    units = min(math.lcm(*counts), 1000)
    return [round((b - a) * units) for a, b in zip(first, second, strict=True)]


def problems_needed(differences: Sequence[float]) -> int | None:
    """How many problems would tell a difference of this size and spread from 0, in 80 of 100 such
    comparisons and at the 5 % level:

        n = ((1.96 + 0.84) std / mean)^2, rounded up

    None where nothing can be said: one problem, or a mean of 0.
    """
    if len(differences) < 2 or not (mean := fmean(differences)):
        return None
    return max(2, math.ceil(round(((NORMAL + NORMAL_80) * stdev(differences) / mean) ** 2, 6)))


def detectable_difference(differences: Sequence[float]) -> float | None:
    """The smallest difference that so many problems of this spread would tell from 0 in 80 of 100
    comparisons: (1.96 + 0.84) std / sqrt(n). None where no spread was seen."""
    if len(differences) < 2 or not (spread := stdev(differences)):
        return None
    return (NORMAL + NORMAL_80) * spread / math.sqrt(len(differences))

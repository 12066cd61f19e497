"""95 % intervals of means: plain floats, for evaluation. Everywhere (mean, low, high).

Values are independent: one per problem, so that samples of one problem count together, or one per seed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence

Interval = tuple[float, float, float]
NORMAL = 1.959963985  # the 97.5 % quantile of the normal
HALF_A_COIN = 0.125  # half the variance of a fair coin, which is the largest that a value in [0, 1] has
POISSON = (0.0, 0.0513, 0.3554, 0.8177)  # `few` of 0, 1, 2 and 3


# 97.5 %, 1 to 10 degrees
STUDENT = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)


def student(degrees: int) -> float:
    """The 97.5 % quantile of Student's t: a table, then the expansion around the normal's
    1.96 (good to 2e-4)."""
    if degrees <= len(STUDENT):
        return STUDENT[degrees - 1]
    z = NORMAL
    terms = ((z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96,
             (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384)
    return z + sum(term / float(degrees**power) for power, term in enumerate(terms, start=1))


def mean_interval(values: Sequence[float], within: tuple[float, float] | None = None) -> Interval:
    """The interval of a mean of independent values. within: the range they have, e.g. (0, 1) for shares.

    With a range it is Wilson's, which stays inside and has a width on equal values, with Student's quantile
    for his 1.96: what the values spread is itself only seen in n of them. Without one it is
    Student's, mean +- t std / sqrt(n), std with n - 1; one value, or equal values, know no spread: infinite.
    """
    if not values:
        raise ValueError("the mean of no values was asked for: evaluate at least one problem.")
    n = len(values)
    mean = math.fsum(values) / n
    squares = math.fsum((x - mean) ** 2 for x in values)
    if within:
        low, high = within
        share, size = (mean - low) / (high - low), (high - low) ** 2
        below, above = wilson(share, effective_count(share, squares / size, n), student(max(n - 1, 1)))
        return mean, low + (high - low) * below, low + (high - low) * above
    if squares <= 1e-20 * n * mean * mean:
        return mean, -math.inf, math.inf
    half = student(n - 1) * math.sqrt(squares / (n - 1) / n)
    return mean, mean - half, mean + half


def effective_count(share: float, squares: float, n: int) -> float:
    """How many yes-or-no answers know as much of a share as n values in [0, 1] whose squared deviations from
    it sum to `squares`:

        n (n p (1-p) + 1/8) / (squares + 1/8),    p = share

    Values that are 0 or 1 have squares = n p (1-p): n. Means of several samples deviate less and count for
    more. The eighth is half of one more value with the largest variance: few problems that agree are no
    proof that all do.
    """
    return n * (n * share * (1 - share) + HALF_A_COIN) / (squares + HALF_A_COIN)


def wilson(share: float, n: float, z: float = NORMAL) -> tuple[float, float]:
    """Low and high of a share of n by Wilson (1927), who knows that 10 of 10 is no certainty: the shares p
    with |share - p| <= z sqrt(p (1-p) / n),

        (share + z^2/2n +- z sqrt(share (1-share)/n + z^2/4n^2)) / (1 + z^2/n)

    Of 1 to 3 hits or misses it holds the truth too seldom: there the end is Poisson's (Brown, Cai &
    DasGupta 2001, section 4.1.1).
    """
    share = min(max(share, 0.0), 1.0)
    middle, half = share + z * z / (2 * n), z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    low, high = ((middle + way * half) / (1 + z * z / n) for way in (-1, 1))
    return (max(0.0, min(share, low, poisson_limit(share * n) / n)),
            min(1.0, max(share, high, 1 - poisson_limit((1 - share) * n) / n)))


def poisson_limit(hits: float) -> float:
    """The mean with which a Poisson variable is `hits` or more 5 times in 100, for up to 3; then infinite."""
    hits = round(hits, 9)
    below = min(int(hits), len(POISSON) - 2)
    return POISSON[below] + (hits - below) * (POISSON[below + 1] - POISSON[below]) if hits <= 3 else math.inf


def gain_interval(first: Sequence[float], second: Sequence[float],
                  within: tuple[float, float] | None = None) -> Interval:
    """The interval of mean(second) - mean(first), value i of both being of the same problem.

    Without a range, that of the mean difference. With one, it is put together from the two intervals
    (Newcombe 1998, method 10; Zou & Donner 2008): with the distances of the means a, b to their ends and r
    the `shrunk_correlation` over problems,

        low  = b - a - sqrt((b - b_low)^2 - 2 r (b - b_low)(a_high - a) + (a_high - a)^2)
        high = b - a + sqrt((b_high - b)^2 - 2 r (b_high - b)(a - a_low) + (a - a_low)^2)

    so it stays in the range of a difference, and has a width where all are equal.
    """
    if within is None:
        return mean_interval([b - a for a, b in zip(first, second, strict=True)])
    a, a_low, a_high = mean_interval(first, within)
    b, b_low, b_high = mean_interval(second, within)
    r = shrunk_correlation(first, second)

    def joined(down: float, up: float) -> float:
        return math.sqrt(max(0.0, down * down - 2 * r * down * up + up * up))

    return b - a, b - a - joined(b - b_low, a_high - a), b - a + joined(b_high - b, a - a_low)


def shrunk_correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """n / (n + 1) of Pearson's: as if on one more problem of the usual spread the two went their own ways,
    for few problems on which they agree are no proof that they always do. 0 where one never varies."""
    n, a, b = len(first), math.fsum(first) / len(first), math.fsum(second) / len(second)
    together = math.fsum((x - a) * (y - b) for x, y in zip(first, second, strict=True))
    alone = math.fsum((x - a) ** 2 for x in first) * math.fsum((y - b) ** 2 for y in second)
    return n / (n + 1) * max(-1.0, min(1.0, together / math.sqrt(alone))) if alone > 0 else 0.0


def grouped_interval(values: Sequence[float], groups: Sequence[Hashable],
                     within: tuple[float, float] | None = None) -> Interval:
    """The interval of a mean over values of which those of one group, e.g. pairs of one prompt, go together.

    Group i moves the mean by (the sum of value - mean in it) g / n, of g groups and n values; the interval is
    that of the g values mean + move. Groups of one size: of their means. One value a group: mean_interval.
    """
    mean = math.fsum(values) / len(values)
    moved: dict[Hashable, float] = defaultdict(float)
    for value, group in zip(values, groups, strict=True):
        moved[group] += value - mean
    _, low, high = mean_interval([mean + by * len(moved) / len(values) for by in moved.values()], within)
    return mean, low, high


def crossed_interval(values: Sequence[float], rows: Sequence[Hashable],
                     columns: Sequence[Hashable]) -> Interval:
    """Student's interval of a mean over values that share rows and columns, e.g. problems and wordings.

    Values of one row are not independent of each other, nor are those of one column. With e = value - mean
    and g clusters,
        variance(by) = g / (g - 1) sum over clusters of (sum of e in the cluster)^2 / n^2
        variance = variance(rows) + variance(columns) - variance(cells), at least the larger of the first two
    (Cameron, Gelbach & Miller 2011), and t has one degree less than there are rows or columns, whichever are
    fewer. A single column is no sample of columns: the interval is over rows alone. One value a row:
    mean_interval without a range. One row: unknown.
    """
    mean = math.fsum(values) / len(values)

    def variance(labels: Sequence[Hashable]) -> float:
        sums: dict[Hashable, float] = defaultdict(float)
        for value, label in zip(values, labels, strict=True):
            sums[label] += value - mean
        return len(sums) / (len(sums) - 1) * math.fsum(x * x for x in sums.values()) / len(values) ** 2

    counts = [n for n in (len(set(rows)), len(set(columns))) if n > 1]
    if len(set(rows)) == 1:
        return mean, -math.inf, math.inf
    spread = variance(rows)
    if len(counts) == 2:
        both = variance(columns)
        spread = max(spread, both, spread + both - variance(list(zip(rows, columns, strict=True))))
    half = student(min(counts) - 1) * math.sqrt(spread)
    return mean, mean - half, mean + half


def ratio_interval(tops: Sequence[float], bottoms: Sequence[float]) -> Interval:
    """The interval of mean(tops) / mean(bottoms), value i of both being of the same problem, by Fieller
    (1954): the ratios r for which the mean of top - r bottom is within t standard errors of 0, the roots of

        (b^2 - t^2 v_bb) r^2 - 2 (a b - t^2 v_ab) r + (a^2 - t^2 v_aa) = 0

    with the means a, b and their variances v. Where b itself may be 0, nothing is known: infinite.
    """
    n = len(tops)
    a, b = math.fsum(tops) / n, math.fsum(bottoms) / n
    if n < 2 or b == 0:
        return (a / b if b else math.nan), -math.inf, math.inf
    t2 = student(n - 1) ** 2 / (n * (n - 1))
    aa = math.fsum((x - a) ** 2 for x in tops) * t2
    bb = math.fsum((y - b) ** 2 for y in bottoms) * t2
    ab = math.fsum((x - a) * (y - b) for x, y in zip(tops, bottoms, strict=True)) * t2
    square, middle, rest = b * b - bb, a * b - ab, a * a - aa
    if square <= 0:
        return a / b, -math.inf, math.inf
    half = math.sqrt(max(0.0, middle * middle - square * rest))
    return a / b, (middle - half) / square, (middle + half) / square

"""pass@k, best-of-n and intervals of means: plain floats, for evaluation."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import groupby


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that k of n samples hold a correct one, c of the n being correct: 1 - C(n-c, k) / C(n, k).

    Unbiased for the policy's pass@k (Chen et al. 2021, 2107.03374),
    as a product that does not overflow. k = 1: c/n.
    """
    if not (0 <= c <= n and 1 <= k <= n):
        raise ValueError(f"pass@{k} of {n} samples with {c} correct: expected 1 <= k <= n and 0 <= c <= n; "
                         "draw more samples.")
    if n - c < k:
        return 1.0
    return 1.0 - math.prod(1.0 - k / i for i in range(n - c + 1, n + 1))


def best_of_n(score: Sequence[float], value: Sequence[float], n: int) -> float:
    """The expected value of the sample with the highest score among n drawn without replacement from these N.

    Sorted by score, the i-th from below is the highest of C(i-1, n-1) of the C(N, n) draws; the samples of a
    tie share theirs evenly. Unbiased for best-of-n with n fresh samples (Nakano et al. 2021, WebGPT,
    2112.09332); exact integers.
    n = 1: the mean of value. n = N: the value at the highest score. score = value = right or wrong: pass@n.
    """
    if not (len(score) == len(value) and 1 <= n <= len(score)):
        raise ValueError(f"best-of-{n} of {len(score)} scores and {len(value)} values: expected as many of "
                         "each, and n of 1 to that many; draw more samples.")
    if any(x != x for x in score):
        raise ValueError("a score is nan: such a sample has no rank; leave it out.")
    ranked = sorted(zip(score, value, strict=True), key=lambda pair: pair[0])
    total, below = [], 0
    for _, tied in groupby(ranked, key=lambda pair: pair[0]):
        values = [v for _, v in tied]
        upto = below + len(values)
        chance = (math.comb(upto, n) - math.comb(below, n)) / math.comb(len(ranked), n)
        total.append(chance * math.fsum(values) / len(values))
        below = upto
    return math.fsum(total)


# 97.5 %, 1 to 10 degrees
STUDENT = (12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281)


def student(degrees: int) -> float:
    """The 97.5 % quantile of Student's t: a table, then the expansion around the normal's
    1.96 (good to 2e-4)."""
    if degrees <= len(STUDENT):
        return STUDENT[degrees - 1]
    z = 1.959963985
    terms = ((z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96,
             (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384)
    return z + sum(term / degrees**power for power, term in enumerate(terms, start=1))


def mean_interval(values: Sequence[float],
                  within: tuple[float, float] | None = None) -> tuple[float, float, float]:
    """Mean, low and high of the 95 % t interval of a mean of independent values (one per problem,
    or one per seed).

    mean +- t std / sqrt(n), std with n - 1; cut to `within`, e.g. (0, 1). One value knows no spread: the
    widest interval. Equal values give a width of 0: on few problems that is the method's blind
    spot, not certainty.
    """
    if not values:
        raise ValueError("the mean of no values was asked for: evaluate at least one problem.")
    low, high = within or (-math.inf, math.inf)
    n = len(values)
    mean = math.fsum(values) / n
    if n == 1:
        return mean, low, high
    std = math.sqrt(math.fsum((x - mean) ** 2 for x in values) / (n - 1))
    half = student(n - 1) * std / math.sqrt(n)
    return mean, max(mean - half, low), min(mean + half, high)


def share_interval(hits: float, n: int) -> tuple[float, float, float]:
    """A share of n and the 95 % interval of Wilson (1927), which knows that 10 of 10 is no certainty.

        (p + z^2/2n +- z sqrt(p (1-p)/n + z^2/4n^2)) / (1 + z^2/n),    p = hits / n,  z = 1.96
    """
    if n < 1 or not 0 <= hits <= n:
        raise ValueError(f"{hits} of {n} is no share: count hits among at least one.")
    p, z = hits / n, 1.959964
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    return p, max(0.0, (middle - half) / (1 + z * z / n)), min(1.0, (middle + half) / (1 + z * z / n))


def crossed_interval(values: Sequence[float], rows: Sequence[Hashable], columns: Sequence[Hashable]
                     ) -> tuple[float, float, float]:
    """Mean, low and high of the 95 % t interval of a mean over values that share rows and columns, e.g.
    problems and wordings.

    Values of one row are not independent of each other, nor are those of one column.
    With e = value - mean and g clusters,
        variance(by) = g / (g - 1) sum over clusters of (sum of e in the cluster)^2 / n^2
        variance = variance(rows) + variance(columns) - variance(cells), at least the larger of the first two
    (Cameron, Gelbach & Miller 2011), and t has one degree less than there are rows or columns,
    whichever are fewer.
    A single column is no sample of columns: the interval is over rows alone. One value a row:
    mean_interval. One row: unknown.
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

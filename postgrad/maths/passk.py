"""pass@k and best-of-n: plain floats, for evaluation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import groupby


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that k of n samples hold a correct one, c of the n being correct: 1 - C(n-c, k) / C(n, k).

    Unbiased for the policy's pass@k (Chen et al. 2021, 2107.03374), as a product that does not overflow. k =
    1: c/n.
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
    2112.09332); exact integers. n = 1: the mean of value. n = N: the value at the highest score. score =
    value = right or wrong: pass@n.
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

"""pass@k, best-of-n and the majority vote: plain floats, for evaluation."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
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


def majority_at_k(answers: Sequence[Hashable | None], right: Sequence[bool],
                  ks: Sequence[int]) -> list[float]:
    """For each k, the chance that the most frequent answer among k samples drawn without replacement from
    these n is right; answers that tie share the vote evenly, and a sample without an answer (None) has none.

    An answer counts as right to the share of its samples that are. Exact: with n_a samples of answer a, r_a
    of them right, the draws in which t answers tie at c votes and nobody has more are counted by

        the product over a of (sum over i < c of C(n_a, i) x^i  +  y C(n_a, c) x^c),

    as the coefficient of x^k y^t; a share r_a / n_a of C(n_a, c) is r_a C(n_a - 1, c - 1) / c.
    k = 1: the share of right samples, where each has an answer. One answer alone: its share, for every k.
    """
    n, votes = len(answers), Counter(a for a in answers if a is not None)
    if not (len(right) == n and all(1 <= k <= n for k in ks)):
        raise ValueError(f"a vote of {list(ks)} among {n} answers and {len(right)} verdicts: expected as "
                         "many of each, and k of 1 to that many; draw more samples.")
    hits = Counter(a for a, is_right in zip(answers, right, strict=True) if is_right and a is not None)
    width = 2 * n + 8  # bits of a coefficient: a polynomial in x is one integer, x = 2^width

    def choose(of: int, most: int) -> int:
        return sum(math.comb(of, i) << width * i for i in range(min(of, most) + 1))

    won = dict.fromkeys(ks, 0.0)
    for c in range(1, max(votes.values(), default=0) + 1):
        rivals = [a for a in votes if votes[a] >= c]
        others = n - sum(votes[a] for a in rivals)
        ways, paid = [choose(others, others)], [0]  # by t: the draws, and c times what they pay together
        for a in rivals:
            fewer, tied = choose(votes[a], c - 1), math.comb(votes[a], c) << width * c
            mine = hits[a] * math.comb(votes[a] - 1, c - 1) << width * c
            paid = [x * fewer + y * tied + z * mine for x, y, z in
                    zip([*paid, 0], [0, *paid], [0, *ways], strict=True)]
            ways = [x * fewer + y * tied for x, y in zip([*ways, 0], [0, *ways], strict=True)]
        for k in won:
            sums = [(total >> width * k) & ((1 << width) - 1) for total in paid]
            won[k] += math.fsum(x / (c * t) / math.comb(n, k) for t, x in enumerate(sums) if t)
    return [won[k] for k in ks]

"""How far two labellers agree beyond chance: plain numbers, for preference data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence


def cohen_kappa(a: Sequence[Hashable], b: Sequence[Hashable]) -> float | None:
    """Agreement of two labellers on the same items, beyond what their habits alone would give (Cohen 1960).

    kappa = (p_o - p_e) / (1 - p_e): p_o the share of items with equal labels, p_e = sum_k p_a(k) p_b(k) that
    of random pairings of their labels. 1: the same on every item; 0: as by chance; below 0: less than by
    chance. None where p_e = 1 (both said one and the same label throughout), for then nothing could be told
    from chance.
    """
    if len(a) != len(b) or not a:
        raise ValueError(f"kappa compares two labellers item by item; there are {len(a)} and {len(b)} "
                         "labels: give those of both on the same items, at least one.")
    n, same = len(a), sum(x == y for x, y in zip(a, b, strict=True))
    of_a, of_b = Counter(a), Counter(b)
    # in n^2-ths, so that p_e = 1 is met exactly
    chance = sum(count * of_b[label] for label, count in of_a.items())
    return None if chance == n * n else (n * same - chance) / (n * n - chance)

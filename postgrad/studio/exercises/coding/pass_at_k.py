"""The chance that one of k answers is right, from n of them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from random import Random

from postgrad.studio.exercises.base import Exercise, Mistake, Property
from postgrad.studio.json_types import Values


def cases(random: Random) -> Iterator[Values]:
    yield from ((4, 2, 2), (5, 0, 3), (5, 5, 3), (6, 1, 6), (8, 6, 4), (3, 1, 1))
    for _ in range(8):
        n = random.randint(4, 11)
        yield n, random.randint(0, n), random.randint(1, n)


def right(n: int, c: int, k: int) -> object:
    """By listing every choice of k among the n."""
    chosen = list(combinations([True] * c + [False] * (n - c), k))
    return sum(any(choice) for choice in chosen) / len(chosen)


EXERCISE = Exercise(
    name="pass-at-k", title="pass@k without bias", chapter=4, function="pass_at_k",
    statement="""
A model answered one problem `n` times, and `c` of the answers were right. pass@k is the chance that
among k answers at least one is right.

Write `pass_at_k(n, c, k)`: the chance that k of these n answers, chosen without putting any back, hold
a right one. Its mean over many samples of n is the true pass@k, whatever n is.

    pass_at_k(4, 2, 2) -> 0.8333

`c` may be 0 or n; `k` is from 1 to n.
""",
    starter="""
def pass_at_k(n, c, k):
    ...
""",
    hints=(
        "Count the opposite: in how many ways can all k be wrong?",
        "There are C(n - c, k) ways to choose k wrong ones, of C(n, k) ways in all.",
        "`math.comb(a, k)` is 0 where k > a, so there is no special case.",
    ),
    solution="""
from math import comb


def pass_at_k(n, c, k):
    return 1 - comb(n - c, k) / comb(n, k)
""",
    mistakes=(
        Mistake(says="You drew with replacement: 1 - (1 - c/n)^k is biased downwards for k > 1.",
                old="1 - comb(n - c, k) / comb(n, k)", new="1 - (1 - c / n) ** k"),
        Mistake(says="You gave the chance that all k are wrong: take it from 1.",
                old="1 - comb(n - c, k)", new="comb(n - c, k)"),
        Mistake(says="You gave the chance that all k are wrong, but for the case in which that cannot be.",
                old="1 - comb(n - c, k) / comb(n, k)",
                new="1.0 if n - c < k else comb(n - c, k) / comb(n, k)"),
        Mistake(says="You gave the chance that all k are right (pass^k); asked for is at least one.",
                old="1 - comb(n - c, k)", new="comb(c, k)"),
        Mistake(says="You counted the right ones: the ways to fail are choices among the n - c wrong ones.",
                old="comb(n - c, k)", new="comb(c, k)"),
        Mistake(says="You multiplied pass@1 by k: chances of events that can happen together do not add up.",
                old="1 - comb(n - c, k) / comb(n, k)", new="min(1, k * c / n)"),
        Mistake(says="You gave pass@1, whatever k is.", old="1 - comb(n - c, k) / comb(n, k)", new="c / n"),
        Mistake(says="Whole-number division: `//` throws the fraction away.", old=" / ", new=" // "),
        Mistake(says="You subtracted k where c belongs: n - c answers are wrong.", old="comb(n - c, k)",
                new="comb(n - k, k)"),
        Mistake(says="You swapped k and n - c: the choices are k of the n - c wrong ones.",
                old="comb(n - c, k)", new="comb(k, n - c)"),
        Mistake(says="You counted the choices of k - 1: it is k.", old="comb(n - c, k) / comb(n, k)",
                new="comb(n - c, k - 1) / comb(n, k - 1)"),
        Mistake(says="You counted one wrong answer too few.", old="comb(n - c, k)",
                new="comb(max(n - c - 1, 0), k)"),
        Mistake(says="You counted one wrong answer too many.", old="comb(n - c, k)",
                new="comb(n - c + 1, k)"),
        Mistake(says="You added right and wrong answers: n - c are wrong.", old="comb(n - c, k)",
                new="comb(n + c, k)"),
        Mistake(says="You multiplied by the number of choices: divide by it.",
                old="comb(n - c, k) / comb(n, k)",
                new="comb(n - c, k) * comb(n, k)"),
        Mistake(says="You added the chance that all k are wrong: take it from 1.", old="1 - comb",
                new="1 + comb"),
        Mistake(says="You gave 0 where fewer answers than k are right: one is enough.",
                old="    return 1 - comb", new="    if c < k:\n        return 0.0\n    return 1 - comb"),
        Mistake(says="You gave 0 where fewer than k answers are wrong: then one of the k must be right, and "
                     "it is 1.",
                old="    return 1 - comb", new="    if n - c < k:\n        return 0.0\n    return 1 - comb"),
        Mistake(says="You left a factor out of the product: there are k of them.",
                old="1 - comb(n - c, k) / comb(n, k)",
                new="1 - comb(max(n - c - 1, 0), k - 1) / comb(n - 1, k - 1) if n > 1 else float(c)"),
        Mistake(says="You gave 1 - c/n: that is the share of wrong answers.",
                old="1 - comb(n - c, k) / comb(n, k)", new="1 - c / n"),
        Mistake(says="You returned percent: a chance is between 0 and 1.",
                old="1 - comb(n - c, k) / comb(n, k)",
                new="100 * (1 - comb(n - c, k) / comb(n, k))"),
        Mistake(says="You gave the mean number of right ones among k, not the chance of one at least.",
                old="1 - comb(n - c, k) / comb(n, k)", new="k * c / n"),
    ),
    cases=cases, right=right,
    properties=(
        Property(says="pass@1 is c/n.", holds=lambda answer, n, c, k: abs(answer(n, c, 1) - c / n) < 1e-6),
        Property(says="No right answer gives 0.", holds=lambda answer, n, c, k: abs(answer(n, 0, k)) < 1e-9),
        Property(says="It never falls with k.", holds=lambda answer, n, c, k:
                 k == n or answer(n, c, k + 1) >= answer(n, c, k) - 1e-9),
        Property(says="One right answer of 1000 is among k of them with chance k/1000.", holds=lambda answer,
                 n, c, k: abs(answer(1000, 1, 50 * k) - 0.05 * k) < 1e-4),
    ),
)

"""An interval for a share, that knows what few samples are worth."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from random import Random

from postgrad.studio.exercises.base import Answer, Exercise, Mistake, Property
from postgrad.studio.exercises.values import near
from postgrad.studio.json_types import Values


def cases(random: Random) -> Iterator[Values]:
    yield 8, 10, 1.96
    yield 0, 12, 1.96
    yield 25, 25, 1.96
    yield 1, 1, 1.0
    yield 3, 4, 2.0
    yield 50, 100, 1.645
    for _ in range(6):
        n = random.randint(5, 400)
        yield random.randint(0, n), n, random.choice((1.0, 1.645, 1.96, 2.576))


def right(hits: int, n: int, z: float) -> object:
    """By halving: where the distance from the share is z standard errors of a p that is assumed."""
    share = hits / n

    def edge(inside: float, outside: float) -> float:
        for _ in range(80):
            p = (inside + outside) / 2
            if abs(share - p) <= z * (p * (1 - p) / n) ** 0.5:
                inside = p
            else:
                outside = p
        return inside
    return [edge(share, 0.0), edge(share, 1.0)]


def stays_within(answer: Answer, hits: int, n: int, z: float) -> bool:
    low, high = answer(hits, n, z)
    return bool(-1e-9 <= low <= hits / n + 1e-9 and hits / n - 1e-9 <= high <= 1 + 1e-9)


def is_a_mirror(answer: Answer, hits: int, n: int, z: float) -> bool:
    low, high = answer(hits, n, z)
    return near(answer(n - hits, n, z), [1 - high, 1 - low], 1e-4)


def narrows(answer: Answer, hits: int, n: int, z: float) -> bool:
    """A hundred times the samples, about a tenth of the width."""
    few, many = answer(500, 1000, z), answer(50_000, 100_000, z)
    return bool(0.09 < (many[1] - many[0]) / (few[1] - few[0]) < 0.11)


EXERCISE = Exercise(
    name="wilson", title="What eight of ten is worth", chapter=10, function="interval",
    statement="""
A model solved 8 of 10 problems. Its share is 0.8, and the share that it would reach on all such problems is
not known. share +- z * sqrt(share (1 - share) / n) calls 10 of 10 certain; Wilson's interval does not.

Write `interval(hits, n, z)`: `hits` of `n` were right, from 0 to n. Return the lowest and the highest p for
which the share seen is no further from p than z of p's own standard errors:

    |share - p| <= z * sqrt(p * (1 - p) / n)          share = hits / n

It is a quadratic in p:

    (share + z^2 / 2n  +-  z * sqrt(share (1 - share) / n + z^2 / 4n^2)) / (1 + z^2 / n)

    interval(8, 10, 1.96) -> (0.4902, 0.9433)
""",
    starter="""
def interval(hits, n, z):
    ...
    return low, high
""",
    hints=(
        "Three pieces: a middle, a half width, and what both are divided by.",
        "z^2 / 4n^2 is (z / (2n))^2; it keeps a width where the share is 0 or 1.",
        "Divide the middle and the half width alike by 1 + z^2 / n.",
    ),
    solution="""
def interval(hits, n, z):
    share = hits / n
    middle = share + z ** 2 / (2 * n)
    half = z * (share * (1 - share) / n + z ** 2 / (4 * n ** 2)) ** 0.5
    whole = 1 + z ** 2 / n
    return (middle - half) / whole, (middle + half) / whole
""",
    mistakes=(
        Mistake(says="That is share +- z standard errors (Wald's interval): it calls 10 of 10 certain, and "
                     "goes beyond 0 and 1.", old="    middle = share",
                new="    e = z * (share * (1 - share) / n) ** 0.5\n    return share - e, share + e\n    "
                    "middle = share"),
        Mistake(says="You cut share +- z standard errors at 0 and 1: it still calls 10 of 10 certain.",
                old="    middle = share",
                new="    e = z * (share * (1 - share) / n) ** 0.5\n    return max(0.0, share - e), min(1.0, "
                    "share + e)\n"
                    "    middle = share"),
        Mistake(says="You did not divide by 1 + z^2 / n.", old="whole = 1 + z ** 2 / n", new="whole = 1"),
        Mistake(says="You divided only the middle by 1 + z^2 / n: the half width is divided too.",
                old="return (middle - half) / whole, (middle + half) / whole",
                new="return middle / whole - half, middle / whole + half"),
        Mistake(says="You divided only the half width by 1 + z^2 / n: the middle is divided too.",
                old="return (middle - half) / whole, (middle + half) / whole",
                new="return middle - half / whole, middle + half / whole"),
        Mistake(says="Your middle is the share alone: Wilson's is drawn towards a half, by z^2 / 2n.",
                old="middle = share + z ** 2 / (2 * n)", new="middle = share"),
        Mistake(says="Your middle adds z^2 / n: it is half of that.", old="z ** 2 / (2 * n)",
                new="z ** 2 / n"),
        Mistake(says="Your root lacks z^2 / 4n^2: without it 10 of 10 has no width.",
                old=" + z ** 2 / (4 * n ** 2)", new=""),
        Mistake(says="Inside the root it is z^2 / 4n^2: n is squared.", old="(4 * n ** 2)", new="(4 * n)"),
        Mistake(says="Inside the root it is z^2 / 4n^2: the 4 is missing.", old="(4 * n ** 2)", new="n ** 2"),
        Mistake(says="Inside the root the z is squared too.", old="+ z ** 2 / (4", new="+ z / (4"),
        Mistake(says="The square root is missing from the half width.", old=" ** 0.5", new=""),
        Mistake(says="The half width lacks its factor z.", old="half = z * (", new="half = ("),
        Mistake(says="You did not divide share (1 - share) by n: that is the variance of one problem, not of "
                     "the mean.", old="share * (1 - share) / n", new="share * (1 - share)"),
        Mistake(says="You divided by n - 1: the variance of a share that is assumed has n.",
                old="share * (1 - share) / n", new="share * (1 - share) / max(n - 1, 1)"),
        Mistake(says="The two ends are swapped: low comes first.",
                old="return (middle - half) / whole, (middle + half) / whole",
                new="return (middle + half) / whole, (middle - half) / whole"),
        Mistake(says="You returned the middle and the half width: asked for are the two ends.",
                old="return (middle - half) / whole, (middle + half) / whole",
                new="return middle / whole, half / whole"),
        Mistake(says="You took the number of hits for their share.", old="share = hits / n",
                new="share = hits"),
        Mistake(says="You gave the interval of the share that failed.", old="share = hits / n",
                new="share = 1 - hits / n"),
        Mistake(says="You returned percent: a share is between 0 and 1.",
                old="return (middle - half) / whole, (middle + half) / whole",
                new="return 100 * (middle - half) / whole, 100 * (middle + half) / whole"),
        Mistake(says="You did not square z in 1 + z^2 / n.", old="1 + z ** 2 / n", new="1 + z / n"),
        Mistake(says="You halved the width: z standard errors lie on either side.",
                old="half = z * (", new="half = z / 2 * ("),
    ),
    cases=cases, right=right, parts={"the low end": itemgetter(0), "the high end": itemgetter(1)},
    properties=(
        Property(says="The share seen lies within, and the ends between 0 and 1.", holds=stays_within),
        Property(says="Hits and misses swapped turn the interval round.", holds=is_a_mirror),
        Property(says="A hundred times the samples have a tenth of the width.", holds=narrows),
    ),
)

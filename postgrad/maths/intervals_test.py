import math
import random
import statistics
from statistics import fmean

import pytest

from postgrad.maths import intervals
from postgrad.maths.intervals import (
    crossed_interval,
    effective_count,
    gain_interval,
    grouped_interval,
    mean_interval,
    poisson_limit,
    ratio_interval,
    shrunk_correlation,
    student,
    wilson,
)


def test_by_hand():
    # mean 3, std sqrt(2.5), n 5: 2.7764 * 0.7071
    assert mean_interval([1, 2, 3, 4, 5]) == pytest.approx((3, 3 - 1.96324, 3 + 1.96324), abs=1e-4)
    with pytest.raises(ValueError, match="at least one"):
        mean_interval([])


def test_wilson_by_hand():
    """The shares p whose z-score from 12/20 is 1.96 on either side."""
    low, high = wilson(0.6, 20)
    assert (low, high) == (pytest.approx(0.386582, abs=1e-6), pytest.approx(0.781193, abs=1e-6))
    for edge in (low, high):
        assert abs(0.6 - edge) / math.sqrt(edge * (1 - edge) / 20) == pytest.approx(1.959964)
    assert wilson(1.0, 10) == (pytest.approx(1 / (1 + 1.959964**2 / 10)), 1.0)


@pytest.mark.parametrize("hits", [1, 2, 3])
def test_of_few_hits_the_end_is_poissons(hits):
    mean = poisson_limit(hits)
    fewer = math.fsum(math.exp(-mean) * mean**i / math.factorial(i) for i in range(hits))
    assert 1 - fewer == pytest.approx(0.05, abs=1e-4)
    assert wilson(hits / 100, 100)[0] == pytest.approx(mean / 100)
    assert wilson(1 - hits / 100, 100)[1] == pytest.approx(1 - mean / 100)
    assert poisson_limit(0) == 0 and poisson_limit(4) == math.inf


@pytest.mark.parametrize("hits", [0, 1, 7, 19, 20])
def test_one_sample_a_problem_is_wilson(hits):
    mean, low, high = mean_interval([1.0] * hits + [0.0] * (20 - hits), (0.0, 1.0))
    assert mean == hits / 20 and (low, high) == pytest.approx(wilson(hits / 20, 20, student(19)))
    assert 0 <= low <= mean <= high <= 1 and high - low > 0.1


def test_effective_by_hand():
    assert effective_count(0.5, 5.0, 20) == pytest.approx(20)  # 10 zeros and 10 ones: squares 20 * 0.25
    # ten shares of 1/4 and ten of 3/4: squares 20 / 16 = 1.25, so 20 * 5.125 / 1.375
    assert effective_count(0.5, 1.25, 20) == pytest.approx(74.5454545)
    # all or none: a problem counts once
    assert effective_count(0.0, 0.0, 20) == effective_count(1.0, 0.0, 20) == 20


@pytest.mark.parametrize("values", [[0.0], [1.0], [0.5], [0.0] * 20, [1.0] * 20, [0.5] * 20,
                                    [0.0] * 19 + [0.1]])
def test_a_share_is_never_certain_and_never_out_of_range(values):
    mean, low, high = mean_interval(values, (0.0, 1.0))
    assert 0 <= low <= mean <= high <= 1 and high - low > 0.05
    scaled = mean_interval([2 * x - 1 for x in values], (-1.0, 1.0))
    assert scaled == pytest.approx((2 * mean - 1, 2 * low - 1, 2 * high - 1))


def test_without_a_range_equal_values_know_no_spread():
    for values in ([0.3], [0.0] * 5, [0.1 + 0.2, 0.3, 0.3]):
        assert mean_interval(values)[1:] == (-math.inf, math.inf)


def test_more_samples_a_problem_narrow_it_and_more_problems_too():
    rng = random.Random(0)
    chance = [rng.betavariate(1, 1) for _ in range(400)]

    def width(n, k):
        shares = [fmean(rng.random() < p for _ in range(k)) for p in chance[:n]]
        _, low, high = mean_interval(shares, (0.0, 1.0))
        return high - low

    assert width(100, 1) > width(100, 4) > width(100, 16) > width(400, 16)
    assert width(100, 16) > 0.8 * width(100, 4)  # and what problems differ in stays


def test_gain_by_hand(monkeypatch):
    """Newcombe (1998), method 10, on his table of 36, 12, 2 and 0: 0.0569 to 0.3404."""
    monkeypatch.setattr(intervals, "poisson_limit", lambda hits: math.inf)  # Wilson's own ends,
    monkeypatch.setattr(intervals, "student", lambda degrees: intervals.NORMAL)  # by the normal,
    monkeypatch.setattr(intervals, "shrunk_correlation", statistics.correlation)  # Pearson's own
    first, second = [1.0] * 48 + [0.0] * 2, [1.0] * 36 + [0.0] * 12 + [1.0] * 2
    assert gain_interval(second, first, (0.0, 1.0)) == pytest.approx((0.2, 0.0569, 0.3404), abs=5e-5)
    assert gain_interval(first, second, (0.0, 1.0)) == pytest.approx((-0.2, -0.3404, -0.0569), abs=5e-5)


def test_correlation_by_hand():
    assert shrunk_correlation([1, 2, 3], [2, 4, 6]) == pytest.approx(3 / 4)  # Pearson's 1, three problems
    assert shrunk_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-3 / 4)
    assert shrunk_correlation([1, 2, 3], [5, 5, 5]) == 0.0


def test_a_gain_is_never_certain_and_never_out_of_range():
    for first, second in (([0.0] * 20, [0.0] * 20), ([0.0] * 20, [1.0] * 20), ([1.0], [0.0]),
                          ([0.5] * 20, [0.5] * 20), ([0.0, 1.0] * 10, [0.0, 1.0] * 10)):
        gain, low, high = gain_interval(first, second, (0.0, 1.0))
        assert -1 <= low <= gain <= high <= 1 and high - low > 0.09
    assert gain_interval([1.0, 5.0, 2.0], [2.0, 7.0, 5.0]) == mean_interval([1.0, 2.0, 3.0])


def test_problems_that_are_hard_for_both_narrow_the_gain():
    rng = random.Random(1)
    hard = [rng.betavariate(0.5, 0.5) for _ in range(100)]
    first, second = ([fmean(rng.random() < p for _ in range(8)) for p in hard] for _ in "ab")

    def width(ours):
        _, low, high = gain_interval(first, ours, (0.0, 1.0))
        return high - low

    assert width(second) < 0.6 * width(rng.sample(second, 100))


def test_pairs_of_one_prompt_count_together():
    values = [1.0, 0.0, 1.0, 1.0, 0.0, 0.0]
    assert grouped_interval(values, range(6), (0, 1)) == pytest.approx(mean_interval(values, (0, 1)))
    # groups of one size: their means
    assert grouped_interval(values, "aabbcc", (0, 1)) == pytest.approx(mean_interval([0.5, 1.0, 0.0], (0, 1)))
    # ten pairs of each of ten prompts that agree are ten pairs, not a hundred
    tens = [float(i % 2) for i in range(10) for _ in range(10)]
    _, low, high = grouped_interval(tens, [i for i in range(10) for _ in range(10)], (0, 1))
    assert (low, high) == pytest.approx(wilson(0.5, 10, student(9)))
    # groups of unequal size: the mean is of the values, Student's interval that of the sums
    uneven, rows = [3.0, 1.0, 2.0, 2.0, 7.0], "aaabc"
    assert grouped_interval(uneven, rows) == pytest.approx(crossed_interval(uneven, rows, "xxxxx"))


@pytest.mark.parametrize(("degrees", "quantile"),
                         [(1, 12.7062), (10, 2.2281), (11, 2.2010), (30, 2.0423), (100, 1.9840)])
def test_student(degrees, quantile):
    assert student(degrees) == pytest.approx(quantile, abs=2e-4)


def test_crossed_interval_by_hand():
    # two rows, two columns: mean 2, e = -2 0 / 0 2. rows: 2 (4 + 4) / 16 = 1, columns the same, cells:
    # 4/3 (4 + 4) / 16 = 2/3
    mean, low, high = crossed_interval([0, 2, 2, 4], "aabb", "xyxy")
    assert ((mean, high - mean) == pytest.approx((2, 12.7062 * math.sqrt(4 / 3)))
            and mean - low == pytest.approx(high - mean))


def test_crossed_interval_reduces_to_the_plain_one():
    values = [1.0, 2.0, 3.0, 4.0, 5.0]
    assert crossed_interval(values, range(5), [0] * 5) == pytest.approx(mean_interval(values))
    twice = [x + d for x in values for d in (-1, 1)]  # two values a row are one, their mean
    assert (crossed_interval(twice, [i for i in range(5) for _ in "ab"], [0] * 10)
            == pytest.approx(mean_interval(values)))
    assert crossed_interval([1.0, 2.0], "aa", "xy") == (1.5, -math.inf, math.inf)


def test_crossed_interval_covers_where_one_over_rows_alone_does_not():
    rng, n, m = random.Random(0), 40, 8
    covered = {"crossed": 0, "rows": 0}
    for _ in range(200):
        column = [rng.gauss(0, 1) for _ in range(m)]
        table = [[row + column[j] + rng.gauss(0, 1) for j in range(m)]
                 for row in (rng.gauss(0, 1) for _ in range(n))]
        _, low, high = crossed_interval([x for row in table for x in row],
                                        [i for i in range(n) for _ in range(m)], list(range(m)) * n)
        covered["crossed"] += low <= 0 <= high
        _, low, high = mean_interval([sum(row) / m for row in table])
        covered["rows"] += low <= 0 <= high
    assert covered["crossed"] >= 184 and covered["rows"] < 140  # 95 % of 200 is 190


def test_a_ratio_by_hand():
    """Fieller's: at both ends the mean of top - r bottom lies just t standard errors from 0."""
    tops, bottoms = [1.0, 0.0, 1.0, 1.0, 0.0, 1.0], [1.0, 1.0, 2.0, 1.0, 0.0, 2.0]
    share, low, high = ratio_interval(tops, bottoms)
    assert share == pytest.approx(4 / 7) and low < share < high
    for end in (low, high):
        rest = [a - end * b for a, b in zip(tops, bottoms, strict=True)]
        assert abs(fmean(rest)) / (statistics.stdev(rest) / math.sqrt(6)) == pytest.approx(student(5))
    ones = ratio_interval([0.5, 0.25, 0.75], [1.0, 1.0, 1.0])  # a bottom that is known: the mean's interval
    assert ones == pytest.approx(mean_interval([0.5, 0.25, 0.75]))


def test_a_ratio_to_what_may_be_nothing_is_unknown():
    assert ratio_interval([1.0, 0.0], [1.0, -0.5])[1:] == (-math.inf, math.inf)
    assert math.isnan(ratio_interval([1.0, 0.0], [0.0, 0.0])[0])
    assert ratio_interval([1.0], [2.0]) == (0.5, -math.inf, math.inf)


def test_a_ratio_is_held_as_often_as_is_said():
    rng, held = random.Random(0), 0
    for _ in range(400):
        weak = [float(rng.random() < 0.4) for _ in range(100)]
        strong = [max(w, float(rng.random() < 0.8)) for w in weak]  # 0.88
        student = [max(w, s * float(rng.random() < 0.5)) for w, s in zip(weak, strong, strict=True)]  # 0.64
        _, low, high = ratio_interval([b - a for a, b in zip(weak, student, strict=True)],
                                      [b - a for a, b in zip(weak, strong, strict=True)])
        held += low <= 0.5 <= high
    assert 0.92 <= held / 400 <= 0.98

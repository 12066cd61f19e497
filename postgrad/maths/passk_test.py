import itertools
import math
import random
from collections import Counter
from itertools import combinations
from statistics import fmean

import pytest

from postgrad.maths.passk import best_of_n, majority_at_k, pass_at_k


def test_by_hand():
    assert pass_at_k(10, 3, 1) == pytest.approx(0.3)
    assert pass_at_k(4, 2, 2) == pytest.approx(5 / 6)  # 1 - C(2,2)/C(4,2)
    assert pass_at_k(5, 0, 3) == 0.0 and pass_at_k(5, 3, 3) == 1.0 and pass_at_k(5, 5, 1) == 1.0


@pytest.mark.parametrize(("n", "c", "k"), [(6, 2, 3), (7, 1, 2), (5, 4, 1), (8, 3, 5)])
def test_it_counts_the_choices(n, c, k):
    hits = [any(i < c for i in chosen) for chosen in itertools.combinations(range(n), k)]
    assert pass_at_k(n, c, k) == pytest.approx(sum(hits) / len(hits))


def test_unbiased_where_the_plug_in_estimate_is_not():
    p, n, k = 0.2, 5, 3
    chance = [math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
    truth = 1 - (1 - p) ** k
    assert math.fsum(w * pass_at_k(n, c, k) for c, w in enumerate(chance)) == pytest.approx(truth)
    assert abs(math.fsum(w * (1 - (1 - c / n) ** k) for c, w in enumerate(chance)) - truth) > 0.05


def test_large_numbers_and_wrong_ones():
    assert pass_at_k(100_000, 3, 1000) == pytest.approx(1 - (99 / 100) ** 3, abs=1e-4)
    with pytest.raises(ValueError, match="draw more samples"):
        pass_at_k(4, 2, 8)


def test_best_of_n_by_hand():
    # of the 6 draws of two, score 4 is the higher in 3, score 3 in 2, score 2 in 1, score 1 in none
    assert best_of_n([3.0, 1.0, 4.0, 2.0], [10, 1000, 0, 1], 2) == pytest.approx((3 * 0 + 2 * 10 + 1 * 1) / 6)
    # a tie at the top is the best of 5 draws of 6, and then it is either of the two
    assert best_of_n([5.0, 5.0, 1.0, 0.0], [7, 9, 3, 100], 2) == pytest.approx(5 / 6 * 8 + 1 / 6 * 3)
    assert best_of_n([0.0] * 3, [1, 2, 6], 2) == pytest.approx(3)  # scores that say nothing: the mean
    assert best_of_n([-math.inf, 0.5], [1, 0], 2) == 0


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("n", [1, 2, 3, 7])
def test_best_of_n_is_the_mean_over_all_subsets(seed, n):
    rng = random.Random(seed)
    score, value = [float(rng.randrange(1 + 2 * seed)) for _ in range(7)], [rng.gauss(0, 1) for _ in range(7)]
    picked = []
    for chosen in itertools.combinations(range(7), n):
        top = max(score[i] for i in chosen)
        best = [value[i] for i in chosen if score[i] == top]
        picked.append(sum(best) / len(best))
    assert best_of_n(score, value, n) == pytest.approx(sum(picked) / len(picked))


def test_best_of_n_with_the_truth_as_its_score_is_pass_at_n():
    for right in range(9):
        truth = [1.0] * right + [0.0] * (8 - right)
        for n in (1, 3, 8):
            assert best_of_n(truth, truth, n) == pytest.approx(pass_at_k(8, right, n))
    values = [0.5, 3.0, -1.0]
    assert (best_of_n([9, 8, 7], values, 1) == pytest.approx(sum(values) / 3)
            and best_of_n([7, 9, 8], values, 3) == 3.0)
    many = [float(i) for i in range(2000)]
    # the largest of n ranks: n(N+1)/(n+1)
    assert best_of_n(many, many, 1000) == pytest.approx(1000 * 2001 / 1001 - 1)


def test_best_of_n_says_what_it_cannot_rank():
    with pytest.raises(ValueError, match="draw more samples"):
        best_of_n([1.0, 2.0], [0, 1], 3)
    with pytest.raises(ValueError, match="2 scores and 1 values"):
        best_of_n([1.0, 2.0], [0], 1)
    with pytest.raises(ValueError, match="nan"):
        best_of_n([1.0, math.nan], [0, 1], 1)


def test_a_vote_by_hand():
    answers, right = ["a", "a", "b", "c"], [True, True, False, False]
    one, two, three, four = majority_at_k(answers, right, [1, 2, 3, 4])
    assert one == 2 / 4                       # the share of right samples
    assert two == pytest.approx((1 + 4 * 0.5) / 6)        # aa; ab, ab, ac, ac tie; bc
    assert three == pytest.approx((1 + 1 + 2 / 3) / 4)    # aab, aac; abc and abc tie in three
    assert four == 1.0


def test_a_vote_without_an_answer_counts_for_nobody():
    assert majority_at_k([None, None, None, "a"], [False] * 3 + [True], [1, 2, 4]) == [0.25, 0.5, 1.0]
    assert majority_at_k([None, None], [False, False], [1, 2]) == [0.0, 0.0]
    assert majority_at_k(["a", "a", "b"], [True, False, False], [3]) == [0.5]  # in form once of twice
    with pytest.raises(ValueError, match="draw more samples"):
        majority_at_k(["a"], [True], [2])


def every_vote(answers, right, k):
    """The vote of every draw of k, in six lines."""
    paid = []
    for drawn in combinations(range(len(answers)), k):
        votes = Counter(answers[i] for i in drawn if answers[i] is not None)
        best = [a for a in votes if votes[a] == max(votes.values())]
        paid.append(fmean([fmean(r for a, r in zip(answers, right, strict=True) if a == one)
                           for one in best]) if best else 0.0)
    return fmean(paid)


def test_a_vote_is_the_mean_over_every_draw():
    rng = random.Random(0)
    for _ in range(40):
        n = rng.randint(1, 8)
        answers = [rng.choice(["a", "b", "c", "d", None]) for _ in range(n)]
        right = [a in ("a", "d") and rng.random() < 0.8 for a in answers]
        ks = range(1, n + 1)
        assert majority_at_k(answers, right, ks) == pytest.approx([every_vote(answers, right, k) for k in ks])


def test_a_vote_of_one_is_pass_at_1_and_of_many_is_exact():
    answers = [f"{i % 7}" for i in range(64)]
    right = [a == "0" for a in answers]
    first, *_, last = majority_at_k(answers, right, [1, 2, 32, 64])
    assert first == pytest.approx(10 / 64) and last == 1.0

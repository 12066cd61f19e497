import math
import random
from itertools import product

import pytest

from postgrad.maths.paired import detectable_difference, problems_needed, sign_flip, whole_units


@pytest.mark.parametrize(("differences", "chance"), [
    ([], 1.0), ([0, 0, 0], 1.0), ([3], 1.0), ([1, -1], 1.0),
    ([1, 1, 1, 1], 2 / 16),                 # all plus and all minus
    ([2, 1, -1], 1.0 * 6 / 8),              # sums of +-2 +-1 +-1: +-4, four times +-2, twice 0
    ([5, 0, 4, 3, 2, 1], 2 / 32),
    ([8] * 10 + [-8], 2 * 12 / 2**11),      # none or one of eleven turned
])
def test_sign_flip_by_hand(differences, chance):
    assert sign_flip(differences) == pytest.approx(chance, abs=1e-15)
    assert sign_flip([-d for d in differences]) == sign_flip(differences)


def test_sign_flip_is_every_way_to_turn_the_signs():
    rng = random.Random(0)
    for _ in range(50):
        found = [rng.randint(-4, 4) for _ in range(rng.randint(1, 9))]
        sums = [abs(sum(sign * d for sign, d in zip(signs, found, strict=True)))
                for signs in product((1, -1), repeat=len(found))]
        assert sign_flip(found) == pytest.approx(sum(s >= abs(sum(found)) for s in sums) / len(sums))


def test_sign_flip_is_exact_on_many_problems():
    found = [8] * 120 + [-8] * 80  # a sign test of 200
    tail = sum(math.comb(200, i) for i in range(81))
    assert sign_flip(found) == pytest.approx(2 * tail / 2**200, rel=1e-12)


def test_differences_are_whole_samples():
    assert whole_units([0.25, 1.0], [0.5, 0.0], [8, 4]) == [2, -8]
    assert whole_units([1 / 3], [1 / 2], [3, 2]) == [1]
    assert whole_units([0.0], [1 / 3], [64, 63, 62, 61]) == [333]


def test_problems_needed_by_hand():
    # mean 0.1, std 0.5: (2.80159 * 5)^2 = 196.2
    found = [0.1 + 0.5 * math.sqrt(3 / 4) * sign for sign in (1, 1, -1, -1)]
    assert problems_needed(found) == 197
    assert detectable_difference(found) == pytest.approx(2.801585 * 0.5 / 2)
    assert problems_needed([0.0, 0.0]) is None and problems_needed([0.5]) is None
    assert problems_needed([1.0, 1.0]) == 2 and detectable_difference([1.0, 1.0]) is None


def test_so_many_problems_tell_the_difference_four_times_in_five():
    rng = random.Random(1)
    needed = problems_needed([1, 0, 0, 0, 0, -1, 1, 0, 0, 1])  # mean 0.2, std 0.632
    assert needed == 79
    told = sum(sign_flip(rng.choices((1, 0, -1), (3, 6, 1), k=needed)) < 0.05 for _ in range(400))
    assert 0.74 <= told / 400 <= 0.88

import math

import pytest
import torch

from postgrad.maths.select import best_and_worst, best_of_group, best_of_n_kl, passing

SCORE = torch.tensor([0.0, 2.0, 2.0, 1.0, 1.0, 1.0])


def test_by_hand():
    assert best_of_group(SCORE, 3).tolist() == [False, True, False, True, False, False]  # ties: the first
    assert passing(SCORE, 3, best=2.0, threshold=1.0).tolist() == [False, True, True, False, False, False]
    assert passing(SCORE, 3, best=2.0, threshold=0.5).tolist() == [False, True, True, True, True, True]
    best, worst = best_and_worst(SCORE, 3)
    assert best.tolist() == [1] and worst.tolist() == [0]  # the flat group gives no pair
    best, worst = best_and_worst(torch.tensor([0.0, 0.0, 5.0, -1.0]), 2)
    assert (best.tolist(), worst.tolist()) == ([2], [3])


def test_best_of_n_kl():
    assert best_of_n_kl(1) == 0
    assert best_of_n_kl(4) == pytest.approx(0.636294)
    # it is attained when no two samples tie: the k-th best of many equally likely answers is picked
    # with density n x^(n-1)
    cells = 100_000
    p = [((k + 1) / cells) ** 4 - (k / cells) ** 4 for k in range(cells)]
    assert math.fsum(x * math.log(x * cells) for x in p) == pytest.approx(best_of_n_kl(4), abs=1e-6)


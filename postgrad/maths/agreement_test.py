import pytest

from postgrad.maths.agreement import cohen_kappa


def labels(table):
    """Two lists of labels with this table of counts: row, what the first said;
    column, what the second said."""
    cells = [(i, j) for i, row in enumerate(table) for j, count in enumerate(row) for _ in range(count)]
    return [i for i, _ in cells], [j for _, j in cells]


@pytest.mark.parametrize(("table", "kappa"), [
    ([[20, 5], [10, 15]], 0.4),           # p_o 0.7, p_e 0.5
    ([[45, 15], [25, 15]], 3 / 23),       # p_o 0.6, p_e 0.54: the same agreement as the next line,
    ([[25, 35], [5, 35]], 7 / 27),        # p_o 0.6, p_e 0.46: less of it by chance
    ([[2, 0, 0], [1, 1, 0], [0, 0, 1]], 11 / 16),  # p_o 4/5, p_e (2*3 + 2*1 + 1)/25
    ([[0, 3], [3, 0]], -1.0),
])
def test_by_hand(table, kappa):
    assert cohen_kappa(*labels(table)) == pytest.approx(kappa)


def test_perfect_agreement_and_independence():
    assert cohen_kappa(*labels([[4, 0, 0], [0, 1, 0], [0, 0, 7]])) == 1.0
    # a table that is the product of its margins
    assert cohen_kappa(*labels([[2 * 3, 2 * 5], [7 * 3, 7 * 5]])) == 0.0


def test_symmetric_and_blind_to_names():
    a, b = labels([[3, 1, 2], [0, 5, 1], [2, 2, 4]])
    assert cohen_kappa(a, b) == cohen_kappa(b, a) == cohen_kappa([f"x{x}" for x in a], [f"x{x}" for x in b])


def test_chance_is_every_label_against_every_other():
    a, b = labels([[3, 1, 2], [0, 5, 1], [2, 2, 4]])
    seen = sum(x == y for x, y in zip(a, b, strict=True)) / len(a)
    chance = sum(x == y for x in a for y in b) / len(a) ** 2
    assert cohen_kappa(a, b) == pytest.approx((seen - chance) / (1 - chance))


def test_where_there_is_no_answer():
    assert cohen_kappa(["a"] * 5, ["a"] * 5) is None
    assert cohen_kappa(["a"] * 5, ["b"] * 5) == 0.0
    for a, b in (([], []), ([1], [1, 2])):
        with pytest.raises(ValueError, match="item by item"):
            cohen_kappa(a, b)

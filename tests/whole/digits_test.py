"""The other road to an answer's value, by which proofs/verifiers.py finds false accepts."""

import pytest

pytest.importorskip("mpmath")
from digits import agree  # noqa: E402


@pytest.mark.parametrize(("gold", "answer", "same"), [
    ("50%", r"$$\left(|0.5|\right)$$", True), ("0.5", r"50\%", True), ("x^2-1", "(x-1)(x+1)", True),
    (r"\pi", r"y = \pi", True), (r"2\sqrt{3}", r"\sqrt{12}", True), ("72", r"3!\cdot 12", True),
    ("(1,2)", "(1, 2)", True), (r"\pi", "3.14159265358979", False),
    (r"2\sqrt{3}", r"(\log_{2}(\infty))^{2}", False), ("50%", "0=0.5", False), ("50%", "0.5%", False),
    ("72", "8 9", False), ("x^2-1", "(x-1)^2", False),
    ("x=3", "y=3", False), ("(1,2)", "(2,1)", False)])
def test_the_value_that_tells_a_false_accept(gold, answer, same):
    assert agree(gold, answer) is same

import pytest

from postgrad.maths.diversity import distinct, repetition, words


def test_words_and_signs():
    assert words("<think>2+3=5, so</think>") == ["<", "think", ">", "2", "+", "3", "=", "5", ",", "so", "<",
                                                  "/", "think", ">"]
    assert words("") == []


def test_distinct_by_hand():
    texts = [words("a b a"), words("a c")]       # a b a a c: three of five; ab ba ac: three of three
    assert distinct(texts, 1) == pytest.approx(3 / 5) and distinct(texts, 2) == 1.0
    assert distinct([words("a b c")] * 4, 2) == 1 / 4
    assert distinct([[], ["a"]], 2) == 0.0


def test_repetition_by_hand():
    assert repetition([1, 2, 3, 4, 1, 2, 3, 4]) == pytest.approx(1 / 5)
    assert repetition([1, 2, 3]) == 0.0

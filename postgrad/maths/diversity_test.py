import pytest

from postgrad.maths.diversity import distinct_n, repetition, word_tokens


def test_words_and_signs():
    assert word_tokens("<think>2+3=5, so</think>") == [
        "<", "think", ">", "2", "+", "3", "=", "5", ",", "so", "<", "/", "think", ">"]
    assert word_tokens("") == []


def test_distinct_by_hand():
    texts = [word_tokens("a b a"), word_tokens("a c")]  # a b a a c: three of five; ab ba ac: three of three
    assert distinct_n(texts, 1) == pytest.approx(3 / 5) and distinct_n(texts, 2) == 1.0
    assert distinct_n([word_tokens("a b c")] * 4, 2) == 1 / 4
    assert distinct_n([[], ["a"]], 2) == 0.0


def test_repetition_by_hand():
    assert repetition([1, 2, 3, 4, 1, 2, 3, 4]) == pytest.approx(1 / 5)
    assert repetition([1, 2, 3]) == 0.0

"""How different the replies to one prompt are: plain floats, for evaluation."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence

_WORD = re.compile(r"\w+|[^\w\s]")


def word_tokens(text: str) -> list[str]:
    """Words and signs, one by one: "2+3=5, so" -> 2 + 3 = 5 , so"""
    return _WORD.findall(text)


def ngrams(items: Sequence[Hashable], n: int) -> list[tuple[Hashable, ...]]:
    """Every run of n in a row: [1, 2, 3] -> (1, 2), (2, 3)"""
    return list(zip(*(items[i:] for i in range(n)), strict=False))


def distinct_n(texts: Sequence[Sequence[Hashable]], n: int) -> float:
    """distinct-n: different runs of n words over all runs of n words, of the replies to one prompt together
    (Li et al. 2016, 1510.03055). 1: no run is written twice; replies that are all alike: 1 over their number,
    at most. It falls with the number of replies, so compare it at the same number. No run of n at all: 0.
    """
    found = [run for text in texts for run in ngrams(text, n)]
    return len(set(found)) / len(found) if found else 0.0


def repetition(tokens: Sequence[Hashable], span: int = 4) -> float:
    """The share of a reply's runs of four tokens that it has written before: 0 of what never repeats."""
    count = len(tokens) - span + 1
    different = set(zip(*(tokens[i:] for i in range(span)), strict=False))
    return 1 - len(different) / count if count > 0 else 0.0

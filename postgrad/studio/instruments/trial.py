"""Ranking against rating, tried on the reader: the same four pairs are ranked, their eight answers rated from
1 to 5, and both once more in another order. What is measured is the time that a pair takes and whether the
second judgement agrees with the first.

A trial is a text, so that it fits into an address: "0.a31.b12.4x" is begun, then each answer with its tenths
of a second.
"""

from __future__ import annotations

from itertools import pairwise
from statistics import median

from postgrad.studio.instruments.base import Remark, first_true
from postgrad.studio.json_types import JsonDict

PAIRS = 4
RANKS, RATES = "abt", "12345"


def question_order() -> list[tuple[str, int, int]]:
    """What is asked, in order: (rank or rate, pair, side). In the second round the sides are swapped and the
    answers come the other way round."""
    ranked = [("rank", pair, 0) for pair in range(PAIRS)]
    rated = [("rate", pair, side) for side in (0, 1) for pair in range(PAIRS)]
    again = [("rank", pair, 1) for pair in reversed(range(PAIRS))]
    return [*ranked, *rated, *again, *reversed(rated)]


ORDER = question_order()


def trial_answers(text: str) -> list[str]:
    """The answers of a trial; raises on what is none."""
    begun, _, rest = text.partition(".")
    given = rest.split(".") if rest else []
    allowed = [RANKS if kind == "rank" else RATES for kind, _, _ in ORDER]
    fits = len(given) <= len(ORDER) and all(is_answer(word, letters)
                                            for word, letters in zip(given, allowed, strict=False))
    if text and (begun != "0" or not fits):
        raise ValueError("trial is 0 and then, for each question, its answer and tenths of a second, as in "
                         f"0.a31.b12; not {text[:40]!r}.")
    return given


def is_answer(word: str, letters: str) -> bool:
    """One of the letters, and up to three digits."""
    tenths = word[1:]
    return 2 <= len(word) <= 4 and word[0] in letters and tenths.isascii() and tenths.isdecimal()


def with_answer(text: str, answer: str, seconds: float) -> str:
    """The trial with one answer more."""
    trial_answers(text)
    if not answer:
        return text
    if answer == "0":
        return "0"
    longer = f"{text}.{answer}{round(10 * min(max(seconds, 0.0), 99.9))}"
    trial_answers(longer)
    return longer


def first_wins(ratings: list[int]) -> int:
    """1 where the first of two ratings is higher, -1 where the second is, 0 where they are equal."""
    return (ratings[0] > ratings[1]) - (ratings[0] < ratings[1])


def trial_result(given: list[str]) -> JsonDict:
    """Of a trial that is over: seconds for a pair, and the pairs judged alike both times, by either way."""
    rank: dict[int, list[int]] = {}
    rate: dict[tuple[int, int], list[int]] = {}
    took: dict[str, list[float]] = {"rank": [], "rate": []}
    for word, (kind, pair, side) in zip(given, ORDER, strict=True):
        took[kind].append(int(word[1:]) / 10)
        if kind == "rank":
            value = {"a": 1, "b": -1, "t": 0}[word[0]]
            rank.setdefault(pair, []).append(-value if side else value)
        else:
            rate.setdefault((pair, side), []).append(int(word[0]))
    orders = [[first_wins([rate[pair, 0][turn], rate[pair, 1][turn]]) for turn in (0, 1)]
              for pair in range(PAIRS)]
    alike = {"rank": sum(a == b for a, b in rank.values()), "rate": sum(a == b for a, b in orders)}
    return {"pairs": PAIRS, "alike": alike,
            "seconds": {"rank": median(took["rank"]),
                        "rate": median(a + b for a, b in list(pairwise(took["rate"]))[::2])}}


def trial_state(text: str, items: list[JsonDict]) -> JsonDict:
    """How far a trial is: what is asked next, or what came of it. The pairs are the last that there are to
    label, so that few have met them."""
    given, shown = trial_answers(text), items[-PAIRS:]
    if not text:
        return {"state": "open", "of": len(ORDER)}
    if len(given) == len(ORDER):
        result = trial_result(given)
        return {"state": "done", **result, "says": says(result)}
    kind, pair, side = ORDER[len(given)]
    item, sides = shown[pair], shown[pair]["answers"][::-1] if side else shown[pair]["answers"]
    return {"state": "asked", "kind": kind, "question": item["question"], "number": len(given) + 1,
            "of": len(ORDER), "answers": sides if kind == "rank" else [item["answers"][side]]}


def trial_figures(n: JsonDict) -> str:
    times, alike = n["seconds"], n["alike"]
    return (f"Ranking took you {times['rank']:.1f} s a pair and rating {times['rate']:.1f} s; you agreed "
            f"with yourself on {alike['rank']} of {n['pairs']} pairs by ranking, on {alike['rate']} by "
            "rating.")


says = first_true(
    Remark(lambda n: (n["seconds"]["rank"] < n["seconds"]["rate"]
                      and n["alike"]["rank"] >= n["alike"]["rate"]),
           lambda n: f"{trial_figures(n)} For you, on these, ranking was the easier way."),
    Remark(lambda n: (n["seconds"]["rank"] > n["seconds"]["rate"]
                      and n["alike"]["rank"] <= n["alike"]["rate"]),
           lambda n: f"{trial_figures(n)} For you, on these, rating was the easier way."),
    Remark(lambda n: True, lambda n: f"{trial_figures(n)} Neither way was plainly easier."),
)

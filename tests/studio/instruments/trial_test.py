"""Ranking against rating, tried on the reader."""

import pytest

from postgrad.studio.instruments import trial as _trial
from postgrad.studio.recordings import recording


def the_trial(rank, rate):
    """A trial in which ranks and rates are given for each turn: rank[turn][pair], rate[turn][pair][side]."""
    text, turns = "0", {"rank": [0] * 9, "rate": {}}
    for kind, pair, side in _trial.ORDER:
        if kind == "rank":
            turn = turns["rank"][pair]
            turns["rank"][pair] += 1
            letter = rank[turn][pair]
            letter = {"a": "b", "b": "a", "t": "t"}[letter] if side else letter
            text = _trial.with_answer(text, letter, 2.0)
        else:
            turn = turns["rate"].get((pair, side), 0)
            turns["rate"][pair, side] = turn + 1
            text = _trial.with_answer(text, str(rate[turn][pair][side]), 1.5)
    return text


def test_a_trial_by_hand():
    steady, items = ["abta", "abta"], recording("pairs")["to_label"]
    rates = [[(5, 1), (1, 5), (3, 3), (4, 2)], [(4, 2), (5, 1), (3, 3), (2, 2)]]
    found = _trial.trial_state(the_trial(steady, rates), items)
    assert found["alike"] == {"rank": 4, "rate": 2} and found["seconds"] == {"rank": 2.0, "rate": 3.0}
    assert "ranking was the easier way" in found["says"] and "4 of 4 pairs by ranking, on 2" in found["says"]
    wavering = _trial.trial_state(the_trial(["abta", "bata"], [rates[0]] * 2), items)
    assert wavering["alike"] == {"rank": 2, "rate": 4} and "Neither way" in wavering["says"]


def test_a_trial_asks_each_pair_twice_and_refuses_nonsense():
    assert sorted(_trial.ORDER) == sorted([("rank", p, s) for p in range(4) for s in (0, 1)]
                                          + 2 * [("rate", p, s) for p in range(4) for s in (0, 1)])
    for text in ("1.a10", "0.a", "0.312", "0.a10.x10", "0" + ".a10" * 25):
        with pytest.raises(ValueError, match="tenths of a second"):
            _trial.trial_answers(text)

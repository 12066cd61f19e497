import math

import pytest

from postgrad.system import throughput as pace


def of(rows):
    return lambda name: [row[name] for row in rows if name in row]


def test_tokens_a_second_and_parts_of_the_time():
    """Two updates of a collection: 600 tokens sampled in 2 s; 500 tokens trained in each second; 1 s else."""
    first = {"sampled": 600.0, "time/sample": 2.0, "time/score": 0.5, "tokens": 500.0, "time/train": 1.0,
             "time/step": 4.0, "memory": 0.41}
    second = {"tokens": 500.0, "time/train": 1.0, "time/step": 1.0, "memory": 0.52}
    rows = [first, second] * 3
    assert pace.rates(of(rows)) == {"sampling": 300.0, "training": 500.0}
    shares = pace.time_shares(of(rows))
    assert shares == pytest.approx({"sampling": 0.4, "scoring": 0.1, "training": 0.4,
                                    "evaluating and saving": 0.1})
    assert sum(shares.values()) == pytest.approx(1.0)
    assert pace.throughput_words(of(rows)) == (
        "sampling 300 tokens/s, training 500 tokens/s; "
        "40 % of the time sampling, 10 % scoring, 40 % training, 10 % evaluating and saving; 0.5 GB")


def test_the_rate_is_that_of_the_last_steps():
    slow = {"tokens": 10.0, "time/train": 100.0}
    fast = {"tokens": 5000.0, "time/train": 0.5}
    assert pace.rates(of([slow] * 3 + [fast] * pace.RECENT)) == {"training": 10_000.0}


def test_samples_that_are_drawn_ahead_cost_what_is_waited():
    row = {"sampled": 100.0, "time/sample": 3.0, "time/wait": 0.5, "time/train": 1.5, "time/step": 2.0}
    assert pace.time_shares(of([row])) == {"waiting for samples": 0.25, "training": 0.75}


def test_nothing_is_said_of_what_nobody_logged():
    assert pace.throughput_words(of([])) == pace.throughput_words(of([{"loss": 1.0}])) == ""
    wild = {"tokens": 1e308, "time/train": 1e-300, "time/step": math.nan, "memory": math.inf}
    assert pace.throughput_words(of([wild] * 4)) == ""


def test_what_another_machine_says_too():
    assert pace.repeatable({"loss": 1.0, "time/step": 2.0, "memory": 3.0}) == {"loss": 1.0}

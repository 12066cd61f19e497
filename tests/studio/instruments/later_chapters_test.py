"""The instruments of chapters 7 to 10: what they compute by hand, every sentence at every place of the
controls, and their pages."""

import math
import re

import pytest
from studio_positions import numbers_in, places, positions
from studio_small import client

from postgrad.studio.book import blocks, chapters
from postgrad.studio.instruments import INSTRUMENTS, divergences, telling_apart

STANDS = {"divergences": ("teacher", "intuition"), "telling-apart": ("measuring", "intuition")}


def said_everywhere(name, mixed=12):
    instrument = INSTRUMENTS[name]
    for state in positions(instrument, mixed):
        numbers = instrument.compute(state)
        yield state, numbers, instrument.insight(numbers)


# 16: two divergences

def kl(p, q):
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)


def test_sentences_of_divergences_hold_everywhere():
    for state, numbers, said in said_everywhere("divergences"):
        p, q = numbers["teacher"], numbers["student"]
        assert sum(p) == pytest.approx(1, abs=1e-4) and sum(q) == pytest.approx(1, abs=1e-4)
        outside = sum(b for a, b in zip(p, q, strict=True) if a < 0.01)
        assert numbers["outside"] == pytest.approx(outside, abs=1e-4)
        covered = sum(a for a, b in zip(p, q, strict=True) if b >= 0.01)
        assert numbers["covered"] == pytest.approx(covered, abs=1e-4)
        if min(p) > 1e-5 and min(q) > 1e-4:  # the numbers are rounded
            assert numbers_in(said)[-2:] == pytest.approx([kl(p, q), kl(q, p)], abs=0.01)
        assert (f"{state.step} steps on the {state.direction} KL" in said) == bool(state.step)


def test_the_push_is_the_gradient_by_hand():
    """Forward p - q, reverse q (KL - log q/p); both sum to 0 over the vocabulary."""
    for direction in divergences.DIRECTIONS:
        found = divergences.compute(divergences.State(direction=direction, step=10))
        p, q = found["teacher"], found["student"]
        whole = kl(q, p)
        for a, b, push in zip(p, q, found["push"], strict=True):
            wanted = a - b if direction == "forward" else b * (whole - math.log(b / a)) if b > 1e-5 else 0.0
            assert push == pytest.approx(wanted, abs=2e-4)
        assert sum(found["push"]) == pytest.approx(0, abs=1e-4)


def test_training_lowers_what_it_trains_and_the_two_end_apart():
    ends = {}
    for direction in divergences.DIRECTIONS:
        for centre in (2, 6, 14, 18):
            losses = [loss for _, loss in divergences.compute(
                divergences.State(direction=direction, centre=centre))["losses"]]
            assert losses[-1] < losses[0] and losses[-1] < 2
        ends[direction] = divergences.compute(divergences.State(direction=direction))
    assert ends["forward"]["covered"] > 0.95 and ends["forward"]["outside"] > 0.2
    assert ends["reverse"]["covered"] < 0.65 and ends["reverse"]["outside"] < 0.05


# 19: telling two models apart

def test_sentences_of_telling_apart_hold_everywhere():
    kinds = set()
    for state, numbers, said in said_everywhere("telling-apart"):
        rows = numbers["intervals"]
        assert len(rows) == 40 and all(low <= mean <= high for mean, low, high, _ in rows)
        told = sum(low > 0 or high < 0 for _, low, high, _ in rows)
        least, most = min(row[0] for row in rows), max(row[0] for row in rows)
        between = numbers_in(re.search(r"between (.+) points", said)[1])
        assert between == pytest.approx([100 * least, 100 * most], abs=0.06)
        assert f"{told} of the 40 see" in said and f"{state.problems} problems" in said
        first, second = telling_apart.recorded_pairs()[state.models]["shares"]
        truth = sum(second) / len(second) - sum(first) / len(first)
        assert numbers["missed"] == sum(not low <= truth <= high for _, low, high, _ in rows)
        if state.models == "same":
            assert truth == 0 and "The truth is 0," in said
        else:
            assert numbers_in(said.partition("The truth is")[2])[0] == pytest.approx(100 * truth, abs=0.06)
            assert f"about {numbers['needed']} problems" in said
        kinds.add(state.models)
    assert kinds == set(telling_apart.PAIRS)


def test_a_longer_evaluation_begins_with_the_shorter_one_and_intervals_shrink():
    """Its width falls about as the square root, and pairs and samples narrow it."""
    def width(**state):
        return telling_apart.compute(telling_apart.State(**state))["width"]

    assert width(problems=40) / width(problems=160) == pytest.approx(2, rel=0.1)
    assert width(samples=8) < 0.6 * width(samples=1)
    assert width(samples=8, paired=True) < 0.85 * width(samples=8, paired=False)


def test_the_problems_needed_are_those_of_the_spread():
    """Of one sample of each problem: s^2 = the variance of d over the problems, and that of two samples."""
    first, second = telling_apart.recorded_pairs()["near"]["shares"]
    n = len(first)
    gaps = [b - a for a, b in zip(first, second, strict=True)]
    mean = sum(gaps) / n
    spread = sum((g - mean) ** 2 for g in gaps) / n + sum(
        a * (1 - a) + b * (1 - b) for a, b in zip(first, second, strict=True)) / n
    needed = telling_apart.evaluations("near", 1, True)["needed"]
    assert needed == pytest.approx((1.96 + 0.842) ** 2 * spread / mean**2, rel=0.12)  # of 8,000 draws


# pages

@pytest.mark.parametrize("name", STANDS)
def test_every_end_of_every_control_can_be_drawn(tmp_path, name):
    studio, instrument = client(tmp_path), INSTRUMENTS[name]
    for control in instrument.shown(instrument.settle(instrument.state())):
        values = places(control)
        for value in (values if not hasattr(control, "low") else (values[0], values[-1])):
            sent = int(value) if isinstance(value, bool) else value
            answer = studio.get(f"/instruments/{name}/figure", params={control.name: sent})
            assert answer.status_code == 200 and "nan" not in answer.text.lower(), (control.name, value)
            assert 'class="below">' in answer.text and "tex-math" in answer.text
    assert studio.get(f"/instruments/{name}/small").text.count("<svg") == 1


@pytest.mark.parametrize("name", STANDS)
def test_each_stands_in_its_chapter(name):
    chapter, layer = STANDS[name]
    page = list(blocks.walk_blocks(chapters.chapter(chapter).layers[layer]))
    (at,) = (i for i, b in enumerate(page) if b.kind == "instrument" and b.argument.partition("?")[0] == name)
    assert page[at - 1].kind == "p", f"a sentence leads to {name}"

"""The drawn figures: each stands in a text, and the numbers of its caption are those of its data."""

import math

import pytest

from postgrad.studio.book import blocks, chapters
from postgrad.studio.book.computed import charts
from postgrad.studio.book.computed.frontiers import HOLE
from postgrad.studio.book.numbers import numbers_in_text

SAID = {  # number of a caption or label -> whether it is so
    ("reasoning", "rare_right"): {"eight": lambda c: len(c["series"][0]["points"]) == 7},
    ("workshop", "centred"): {"eight": lambda c: len(c["series"][0]["points"]) == 7},
    ("algorithms", "leash"): {"four": lambda c: chapters.stored_values()["algorithms"]["answers"] == 4},
    ("frontiers", "hole_leash"): {"hundred": lambda c: HOLE == 0.01},
    ("frontiers", "overseen"): {"half": lambda c: 0.5 == 1 / 2},
}
LEVEL = {"95": "of the intervals", "10": "the base of a logarithm"}


def stored():
    return [(name, key, value) for name, values in chapters.stored_values().items() if name != "landing"
            for key, value in values.items() if isinstance(value, dict) and "columns" not in value]


def test_each_stands_in_its_chapter_and_none_is_missing():
    drawn = {(found.name, b.argument) for found in chapters.all_chapters() for page in found.layers.values()
             for b in blocks.walk_blocks(page) if b.kind == "chart"}
    assert {(name, key) for name, key, _ in stored()} == drawn and len(drawn) > 20


@pytest.mark.parametrize(("name", "key", "chart"), stored(), ids=lambda x: x if isinstance(x, str) else "")
def test_every_number_of_a_caption_is_accounted_for(name, key, chart):
    words = " . ".join([chart["caption"], chart["x"], chart["y"]])
    true = SAID.get((name, key), {})
    uses = {use.number for use in numbers_in_text(words, key) if use.kind == "unaccounted"}
    assert uses <= true.keys() | LEVEL.keys() and all(holds(chart) for holds in true.values())


def test_what_is_read_of_the_results():
    assert charts.shares("43.5% (40.9% to -6.2%)") == pytest.approx([0.435, 0.409, -0.062])
    assert charts.ends("-0.94 to +0.60") == [-0.94, 0.6] and charts.ends("0.723 to 0.807") == [0.723, 0.807]


def test_the_advantage_of_a_right_answer_by_hand():
    """One right of eight: mean 1/8, spread sqrt(7)/8, so sqrt(7) by the spread and 7/8 centred."""
    found = charts.right_advantages(8)
    assert found["grpo"][0] == [1, pytest.approx(math.sqrt(7))] and found["nano"][0] == [1, 0.875]
    assert found["nano"][-1] == [7, pytest.approx(1 / 8)]

"""The English of the book and its figures keeps to docs/style.md."""

import sys

import pytest
from paths import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import style  # noqa: E402


def test_no_banned_construction_stands_in_the_book_or_its_figures():
    files = style.prose_files()
    assert len(files) > 60 and style.all_hits(files) == []


@pytest.mark.parametrize("text", [
    "For a model of the size called 7B that is much.", "As what does its ratio count?",
    "and so it makes as many of this one before it asks.", "Studies find methods that sample ahead.",
    "The score of what was sampled.", "It is flat, for it has no gradient.", "k1 belongs into the reward.",
    "It orders pairs rightly.", "Whoever trusts it.", "The reward less the mean."])
def test_a_banned_construction_is_found(text):
    assert [hit.where for hit in style.style_hits(f"A line.\n{text}", "here")] == ["here:2"]


def test_formulas_code_and_values_are_no_prose():
    text = "$r$, `what was kept`, {{what_is_left}} and $$ less the mean $$ with a link](anew)."
    assert list(style.style_hits(text, "here")) == []

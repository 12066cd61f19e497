"""The English of the book, its figures, the docs and the docstrings keeps to docs/style.md."""

import sys

import pytest
from paths import ROOT

sys.path.insert(0, str(ROOT / "tools"))
import style  # noqa: E402


def test_no_banned_construction_stands_in_the_book_the_docs_or_the_docstrings():
    files = style.prose_files()
    assert {"intuition.md", "README.md", "serving.md", "gae.py", "loop.py"} <= {path.name for path in files}
    assert style.all_hits(files) == []


def test_of_code_the_docstrings_are_read(tmp_path):
    source = '"""Filled anew."""\n\nWORDS = "anew"  # anew\n\n\ndef f():\n    """Told from\n    it anew."""\n'
    path = tmp_path / "one.py"
    path.write_text(source)
    assert [hit.where for hit in style.all_hits([path])] == [f"{path}:1", f"{path}:8"]


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

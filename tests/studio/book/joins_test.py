"""Where the paragraphs of the intuition lead: each claim to a derivation and a line of code that exist."""

import json
import re
from collections import Counter

import pytest
from book_small import client
from claims import claims, is_claim
from paths import ROOT

from postgrad.studio.book import blocks, chapters, inline, joins
from postgrad.studio.pages import HERE, STATIC

EVERY = [join for name in chapters.NUMBERS for join in joins.chapter_joins(name).values()]
SHARED = 3  # paragraphs that one target may serve


@pytest.mark.parametrize("name", chapters.NUMBERS)
def test_every_claim_leads_somewhere(name):
    """A paragraph with a number, a formula or the name of a method; and no join stands unused."""
    found = chapters.chapter(name)
    bare = [f"intuition.md:{line}: {inline.plain_text(pieces)[:60]}" for line, _, pieces in claims(found)
            if not any(p.kind == "join" for p in pieces)]
    assert bare == []
    assert sorted(joins.named_joins(found.layers["intuition"])) == sorted(joins.chapter_joins(name))


@pytest.mark.parametrize(("text", "claim"), [
    ("It gains {{x}}.", True), ("It has $x$.", True), ("GRPO has none.", True),
    ("The row `nano` has none.", True), ("See chapter 3.", False), ("R1-Zero came first.", False),
    ("A reward is a bet.", False),
    ("[33](cite:ouyang2022) of them", True), ("best-of-n is hard to beat", True)])
def test_what_a_claim_is(text, claim):
    assert is_claim(inline.parse_inline(text, {"x": 1})) is claim


def test_targets_exist_and_none_serves_more_than_three():
    derivations, lines = Counter(), Counter()
    for join in EVERY:
        assert join.derivation, f"{join.chapter}: [^{join.name}] leads to {join.anchor}, which is empty"
        steps = next((len(b.rows) for b in join.heading.inner if b.kind == "ol"), 0)
        assert join.step <= steps, f"{join.chapter}: [^{join.name}] leads to step {join.step} of {steps}"
        marked = next(line for line in join.lines if line.marked)
        derivations[join.chapter, join.anchor, join.step] += 1
        lines[join.file, marked.number] += 1
    assert {target: n for target, n in (derivations + lines).items() if n > SHARED} == {}
    assert len(EVERY) > 150


def test_what_does_not_exist_is_named():
    join = EVERY[0]
    for broken, said in ((join._replace(anchor="nowhere"), "has no 'nowhere'"),
                         (join._replace(line="no such line"), "0 lines of"),
                         (join._replace(line="e"), "lines of")):
        with pytest.raises(LookupError, match=said):
            assert broken.heading and broken.lines
    page = blocks.read_blocks("Words. [^nothing]", {})
    with pytest.raises(LookupError, match=r"why names \[\^nothing\]"):
        joins.joined(chapters.chapter("why"), page)


def test_a_page_holds_what_its_marks_open(tmp_path):
    studio = client(tmp_path)
    for found in chapters.all_chapters():
        text = studio.get(found.address).text
        opened = re.findall(r'data-join="([^"]+)"', text)
        held = re.findall(r'<template id="join-([^"]+)"', text)
        assert opened and sorted(opened) == sorted(held)
        assert text.count('class="row marked"') == len(held)
        for layer in ("mathematics", "implementation"):
            assert "<template" not in studio.get(found.layer_address(layer)).text
        ids = re.findall(r'\sid="([^"]+)"', studio.get(found.layer_address("mathematics")).text)
        assert [name for name, n in Counter(ids).items() if n > 1] == []


def test_formulas_and_code_share_names_and_colours():
    """A quantity is a name of the code and a symbol of the formulas, both in use, with one colour."""
    table = json.loads((STATIC / "quantities.js").read_text().partition("= ")[2].partition(";")[0])
    colours = dict(re.findall(r"\.q-(\w+) \{ color: ([^;]+);", (STATIC / "studio.css").read_text()))
    assert {row["name"] for row in table} == set(colours)
    assert len(set(colours.values())) == len(colours)
    code = " ".join(path.read_text() for path in (ROOT / "postgrad" / "maths").glob("*.py"))
    figures = (HERE / "templates" / "instruments").rglob("*.html")
    tex = " ".join(path.read_text() for path in (*chapters.TEXT.rglob("*.md"), *figures))
    for row in table:
        assert any(re.search(rf"\b{word}\b", code) for word in row["code"])
        assert [form for form in row["tex"] if form not in tex] == []
    shown = " ".join(line.text for join in EVERY for line in join.lines if line.marked)
    assert all(any(re.search(rf"\b{word}\b", shown) for word in row["code"]) for row in table)

"""Every number of the prose: computed, cited, structural, or none of these and so unaccounted for.

A number is a digit, or a counting word from three up. Structural are names that have a digit in them, the
signs 0, 1 and 2 of a formula, and counts of what stands before the reader's eyes (COUNTS).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from postgrad.studio.book import blocks, glossary, tours, walks
from postgrad.studio.book.chapters import Chapter, all_chapters, chapter
from postgrad.studio.book.inline import VALUE, WORDS, TextPiece

LARGE = "hundreds?|thousands?|millions?|billions?|half|twice|quarter"
NUMBER = re.compile(rf"\d[\d.,\u202f]*\d|\d|\b(?:{'|'.join(WORDS[3:])}|{LARGE})\b", re.I)
SIGNS = ("0", "1", "2")  # of a formula
INDEX = re.compile(r"_\{?\d\}?")  # k_3: a name
NAMES = ("R1-Zero", "R1", "GSM8K", "AIME 2024", "MATH-500", "SmolLM2", "pass@1", "k1", "k2", "k3", "4-bit",
         "bf16", "float32", "float64", "GPT-3", "log 2", "Llama 2", "tests/whole/layers_test.py", "TL;DR",
         "H200", "H100", "bfloat16", "RLVR", "d20")
COUNTS = ("three layers", "three stages", "three steps", "four answers", "three algorithms",
          "three questions", "four models", "four stages", "four items", "half of", "the other half",
          "ten to the power", "four experiments", "three small things", "four cuts", "three answers")
CHAPTER = r"chapters? (?:10|[1-9])(?: and (?:10|[1-9]))?\b"

LONGEST_FIRST = map(re.escape, sorted((*NAMES, *COUNTS), key=len, reverse=True))
STRUCTURAL = re.compile(rf"(?<!\w)(?:{CHAPTER}|{'|'.join(LONGEST_FIRST)})", re.I)


class NumberUse(NamedTuple):
    """kind: computed, cited, structural or unaccounted."""

    where: str
    kind: str
    number: str
    source: str


def numbers_in_text(text: str, where: str) -> Iterator[NumberUse]:
    """The numbers of words that are neither a value nor a citation."""
    for match in STRUCTURAL.finditer(text):
        if NUMBER.search(match[0]):
            yield NumberUse(where, "structural", match[0], "a name, a chapter or a count in sight")
    text = STRUCTURAL.sub(" ", text)
    for match in NUMBER.finditer(text):
        yield NumberUse(where, "unaccounted", match[0], text[max(0, match.start() - 25): match.end() + 25])


def numbers_in_pieces(pieces: tuple[TextPiece, ...], where: str) -> Iterator[NumberUse]:
    for piece in pieces:
        if piece.kind == "value":
            yield NumberUse(where, "computed", piece.text, piece.target)
        elif piece.kind == "quoted":
            yield from (NumberUse(where, "cited", n.number, piece.target)
                        for n in numbers_in_pieces(piece.inner, where) if n.kind == "unaccounted")
        elif piece.kind == "text":
            yield from numbers_in_text(piece.text, where)
        elif piece.kind in ("tex", "code"):
            for match in VALUE.finditer(piece.raw):
                yield NumberUse(where, "computed", match[0], match[1])
            tex, bare = piece.kind == "tex", VALUE.sub(" ", piece.raw)
            for found in numbers_in_text(INDEX.sub("_", bare) if tex else bare, where):
                sign = tex and found.number in SIGNS
                yield found._replace(kind="structural", source="a formula's sign") if sign else found
        yield from numbers_in_pieces(piece.inner, where) if piece.kind != "quoted" else ()


def numbers_of_chapter(found: Chapter) -> Iterator[NumberUse]:
    for name, pieces in (("claim", found.claim), ("hook", found.hook)):
        yield from numbers_in_pieces(pieces, f"{found.name}/{name}")
    for layer, page in found.layers.items():
        for block in blocks.walk_blocks(page):
            for pieces in blocks.block_texts(block):
                yield from numbers_in_pieces(pieces, f"{found.name}/{layer}.md:{block.line}")
    for check in found.checks.values():
        for pieces in check.lines():
            yield from numbers_in_pieces(pieces, f"{found.name}/checks.toml: {check.name}")
    for n, stop in enumerate(tours.chapter_tour(found.name), start=1):
        for pieces in (stop.says, stop.ask):
            yield from numbers_in_pieces(pieces, f"{found.name}/tour.toml: stop {n}")


def numbers_of_book() -> list[NumberUse]:
    """The numbers of all chapters, of the first page, of the walks and of the glossary."""
    rows = [row for found in (chapter("landing"), *all_chapters()) for row in numbers_of_chapter(found)]
    rows += [row for walk in walks.all_walks().values()
             for pieces in (walk.about, *(step.says for step in walk.steps))
             for row in numbers_in_pieces(pieces, f"walks.toml: {walk.name}")]
    return rows + [row for term in glossary.terms().values()
                   for row in numbers_in_pieces(term.means, f"glossary.toml: {term.name}")]

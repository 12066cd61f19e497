"""Where a paragraph of the intuition leads: its derivation, and the line of source that computes it.

A paragraph names its join, [^name], and text/NAME/joins.toml has it:

    name = {math = "the-closed-form-optimum/4", code = "maths.preference.dpo", line = "beta * chosen",
            says = "What this line computes, in the symbols of the formula."}
    math   an anchor of the chapter's mathematics, after a slash a step; of another chapter: algorithms#...
    line   a piece of one line of the function, which no other line of it has
"""

from __future__ import annotations

import tomllib
from functools import cache
from typing import NamedTuple

from postgrad.studio.book import blocks, inline
from postgrad.studio.book.blocks import TextBlock
from postgrad.studio.book.chapters import LAYERS, TEXT, Chapter, chapter
from postgrad.studio.book.inline import TextPiece
from postgrad.studio.instruments.base import function_source

AROUND = 7  # lines of source on each side of the one that is marked
SHOWN = ("p", "ul", "ol", "tex", "grid", "derivation", "note")


class SourceLine(NamedTuple):
    number: int
    text: str
    marked: bool


def line_of(lines: list[str], piece: str, where: str, code: str) -> int:
    """The place of the one line of a function that has a piece of text."""
    hits = [i for i, text in enumerate(lines) if piece in text]
    if len(hits) != 1:
        raise LookupError(f"{where}: {len(hits)} lines of {code} have {piece!r}")
    return hits[0]


class Join(NamedTuple):
    """step: of the derivation, 0 where all of it is meant. lines: an excerpt of the function."""

    name: str
    chapter: str
    anchor: str
    step: int
    code: str
    line: str
    says: tuple[TextPiece, ...]

    @property
    def address(self) -> str:
        return f"{chapter(self.chapter).layer_address('mathematics')}#{self.anchor}"

    @property
    def heading(self) -> TextBlock:
        """The block of the mathematics that has the anchor."""
        for block in chapter(self.chapter).layers["mathematics"]:
            if block.anchor == self.anchor:
                return block
        raise LookupError(f"[^{self.name}]: the mathematics of {self.chapter} has no {self.anchor!r}")

    @property
    def title(self) -> str:
        return inline.plain_text(self.heading.pieces)

    @property
    def derivation(self) -> tuple[TextBlock, ...]:
        """The derivation with the formula that follows it; of a heading what stands below it, up to the first
        derivation, or with it where nothing comes before."""
        page, head = chapter(self.chapter).layers["mathematics"], self.heading
        at = page.index(head)
        if head.kind == "derivation":
            after = page[at + 1: at + 2]
            return head.inner + tuple(b for b in after if b.kind == "tex")
        ends = [i for i, b in enumerate(page) if i > at and b.kind in ("h2", "derivation")]
        below = page[at + 1: ends[0] if ends else len(page)] or page[at + 1: ends[0] + 1]
        return tuple(b for b in below if b.kind in SHOWN)

    @property
    def lines(self) -> list[SourceLine]:
        source = function_source(self.code)
        lines = str(source["text"]).splitlines()
        hit = line_of(lines, self.line, f"[^{self.name}]", self.code)
        first = max(0, hit - AROUND)
        return [SourceLine(int(source["line"]) + i, lines[i], i == hit)
                for i in range(first, min(len(lines), hit + AROUND + 1))]

    @property
    def file(self) -> str:
        return str(function_source(self.code)["file"])


@cache
def chapter_joins(name: str) -> dict[str, Join]:
    path = TEXT / name / "joins.toml"
    rows = tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return {key: read_join(key, name, row) for key, row in rows.items()}


def read_join(key: str, name: str, row: dict[str, str]) -> Join:
    other, _, place = row["math"].rpartition("#")
    anchor, _, step = place.partition("/")
    return Join(key, other or name, anchor, int(step or 0), f"postgrad.{row['code']}", row["line"],
                inline.parse_inline(row["says"], {}))


def named_joins(page: tuple[TextBlock, ...]) -> list[str]:
    """The joins that a page names, each once, in its order."""
    return list(dict.fromkeys(p.target for b in blocks.walk_blocks(page) for text in blocks.block_texts(b)
                              for p in text if p.kind == "join"))


def joined(found: Chapter, page: tuple[TextBlock, ...]) -> tuple[TextBlock, ...]:
    """The page, each mark with the address and the title of its derivation."""
    known = chapter_joins(found.name)

    def resolve(piece: TextPiece) -> TextPiece:
        if piece.kind != "join":
            return piece
        if piece.target not in known:
            raise LookupError(f"{found.name} names [^{piece.target}], which its joins.toml does not have")
        join = known[piece.target]
        return piece._replace(text=join.title, target=join.address, raw=join.name)

    return tuple(blocks.map_pieces(b, lambda pieces: tuple(map(resolve, pieces))) for b in page)


def page_joins(found: Chapter, layer: str) -> list[Join]:
    """The joins of a page's side panel."""
    if layer not in LAYERS:
        return []
    known = chapter_joins(found.name)
    return [known[name] for name in named_joins(found.layers[layer])]

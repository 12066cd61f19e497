"""The terms of the book, and their link at the first place of a page where they are used."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from typing import NamedTuple

from postgrad.studio.book import blocks, inline
from postgrad.studio.book.blocks import TextBlock
from postgrad.studio.book.chapters import TEXT
from postgrad.studio.book.inline import TextPiece


class BookSymbol(NamedTuple):
    """A symbol of the book's formulas, as TeX, and its one meaning."""

    tex: str
    means: str


@cache
def book_symbols() -> tuple[BookSymbol, ...]:
    rows = tomllib.loads((TEXT / "symbols.toml").read_text(encoding="utf-8"))["symbol"]
    return tuple(BookSymbol(row["tex"], row["means"]) for row in rows)


class GlossaryTerm(NamedTuple):
    """forms: the words by which it is met in a text. means: one or two sentences."""

    name: str
    forms: tuple[str, ...]
    means: tuple[TextPiece, ...]

    @property
    def anchor(self) -> str:
        return blocks.slug(self.name)


@cache
def terms() -> dict[str, GlossaryTerm]:
    rows = tomllib.loads((TEXT / "glossary.toml").read_text(encoding="utf-8"))
    made = [GlossaryTerm(name, (name, *row.get("forms", ())), inline.parse_inline(row["means"], {}))
            for name, row in rows.items()]
    return {term.name: term for term in sorted(made, key=lambda t: t.name.lower())}


@cache
def term_pattern() -> tuple[re.Pattern[str], dict[str, str]]:
    """What finds a term in a text, the longest form first, and form -> term."""
    forms = {form.lower().replace("'", "\u2019"): term.name
             for term in terms().values() for form in term.forms}
    words = "|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True))
    return re.compile(rf"(?<![\w-])(?:{words})(?![\w]|-\w)", re.I), forms


def terms_in(text: str) -> list[str]:
    """The terms that a text uses, in order, each once."""
    finder, forms = term_pattern()
    return list(dict.fromkeys(forms[m[0].lower()] for m in finder.finditer(text)))


def link_terms(opening: tuple[TextPiece, ...],
               page: tuple[TextBlock, ...]) -> tuple[tuple[TextPiece, ...], tuple[TextBlock, ...]]:
    """The opening line and the page, with each term as a link where it is first used in running text."""
    seen: set[str] = set()
    first = link_pieces(opening, seen)
    return first, tuple(blocks.map_pieces(block, lambda pieces: link_pieces(pieces, seen)) for block in page)


def link_pieces(pieces: tuple[TextPiece, ...], seen: set[str]) -> tuple[TextPiece, ...]:
    out: list[TextPiece] = []
    for piece in pieces:
        if piece.kind == "text":
            out += split_at_terms(piece.text, seen)
        elif piece.kind in ("strong", "em"):
            out.append(piece._replace(inner=link_pieces(piece.inner, seen)))
        else:
            out.append(piece)
    return tuple(out)


def split_at_terms(text: str, seen: set[str]) -> list[TextPiece]:
    finder, forms = term_pattern()
    out, at = [], 0
    for match in finder.finditer(text):
        name = forms[match[0].lower()]
        if name in seen:
            continue
        seen.add(name)
        out += [TextPiece("text", text[at: match.start()]), TextPiece("term", match[0], terms()[name].anchor,
                          raw=inline.plain_text(terms()[name].means))]
        at = match.end()
    return [piece for piece in (*out, TextPiece("text", text[at:])) if piece.text]

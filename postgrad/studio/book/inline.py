"""The text within a line: words, values, equations, code, emphasis, links, sources. Text in, pieces out."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from postgrad.studio.json_types import JsonMapping
from postgrad.studio.pages import MINUS, num

VALUE = re.compile(r"\{\{([a-z]\w*)(?::([^{}]*))?\}\}")
TOKENS = re.compile(r"""
    `(?P<code>[^`]+)` | \$(?P<tex>[^$]+)\$ | \{\{(?P<value>[a-z]\w*)(?::(?P<how>[^{}]*))?\}\}
    | [ ]?\[\^(?P<join>[\w-]+)\] | \[@(?P<cite>\w+)\]
    | \[(?P<label>(?:[^\[\]]|\[[^\]]*\])+)\]\((?P<target>[^)\s]+)\)
    | \*\*(?P<strong>.+?)\*\* | \*(?P<em>[^*]+)\*""", re.X)
WORDS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven",
         "twelve")


class TextPiece(NamedTuple):
    """kind: text, value, tex, code, strong, em, link, cite, quoted (a number of a source), term or join.
    raw: the source where values have been put in; of a term, what it means. inner: pieces within."""

    kind: str
    text: str
    target: str = ""
    raw: str = ""
    inner: tuple[TextPiece, ...] = ()


def format_value(value: object, how: str = "") -> str:
    """A value in prose: 3 -> "3"; 0.69314 with "4" -> "0.6931"; with "%" a share in percent, with "%1" to one
    decimal; with "word" a small count in letters, with "yes" yes or no, with "+2" a sign always."""
    if how == "yes":
        return "yes" if value else "no"
    if how == "word":
        return WORDS[int(str(value))] if int(str(value)) < len(WORDS) else num(int(str(value)))
    if isinstance(value, str | bool) or value is None:
        return str(value)
    assert isinstance(value, int | float)
    if how.startswith("%"):
        return f"{100 * value:.{how[1:] or 0}f}\u00a0%".replace("-", MINUS)
    if how.startswith("+"):
        return f"{value:+.{how[1:]}f}".replace("-", MINUS)
    if how:
        return f"{value:.{how}f}".replace("-", MINUS)
    return num(value) if isinstance(value, int) or not math.isfinite(value) else f"{value:.6g}".replace(
        "-", MINUS)


def look_up_value(name: str, values: JsonMapping) -> object:
    if name not in values:
        raise LookupError(f"the text names a value {name!r} that is not computed; there are "
                          f"{', '.join(sorted(values)) or 'none'}")
    return values[name]


def fill_values(text: str, values: JsonMapping) -> str:
    """Text with its values put in, and nothing else read in it."""
    return VALUE.sub(lambda m: format_value(look_up_value(m[1], values), m[2] or ""), text)


def parse_inline(text: str, values: JsonMapping) -> tuple[TextPiece, ...]:
    pieces, at = [], 0
    for match in TOKENS.finditer(text):
        if match.start() > at:
            pieces.append(text_piece(text[at: match.start()]))
        pieces.append(parse_piece(match, values))
        at = match.end()
    if at < len(text):
        pieces.append(text_piece(text[at:]))
    return tuple(pieces)


def text_piece(text: str) -> TextPiece:
    """Text as it is printed: with a curved apostrophe."""
    return TextPiece("text", text.replace("'", "\u2019"))


def parse_piece(match: re.Match[str], values: JsonMapping) -> TextPiece:
    found = match.groupdict()
    if found["value"]:
        return TextPiece("value", format_value(look_up_value(found["value"], values), found["how"] or ""),
                         found["value"])
    for kind in ("code", "tex"):
        if found[kind]:
            return TextPiece(kind, fill_values(found[kind], values), raw=found[kind])
    if found["join"]:
        return TextPiece("join", "", found["join"])
    if found["cite"]:
        return TextPiece("cite", found["cite"], found["cite"])
    for kind in ("strong", "em"):
        if found[kind]:
            return TextPiece(kind, "", inner=parse_inline(found[kind], values))
    target = found["target"]
    quoted = target.startswith("cite:")
    return TextPiece("quoted" if quoted else "link", "", target.removeprefix("cite:"),
                     inner=parse_inline(found["label"], values))


def plain_text(pieces: tuple[TextPiece, ...]) -> str:
    """The words alone, as search and the index see them: without sources, and of equations the short ones."""
    def word(p: TextPiece) -> str:
        silent = p.kind == "cite" or (p.kind == "tex" and "\\" in p.text)
        return plain_text(p.inner) if p.inner else "" if silent else p.text
    return "".join(map(word, pieces))

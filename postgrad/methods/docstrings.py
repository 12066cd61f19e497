"""What the functions of a row say of themselves: docstrings taken apart into words and formulas.

A formula is a line that is set apart by four spaces more than the words; a line set further in than the
formula above it goes on with it.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from functools import lru_cache, partial
from typing import NamedTuple

from postgrad.system.user_code import syntax

APART = "    "


class Piece(NamedTuple):
    """A paragraph of words or a formula, on one line each. kind: words or formula."""

    kind: str
    text: str


def plain(function: Callable) -> Callable:
    """The function itself, without the constants that are bound to it."""
    return function.func if isinstance(function, partial) else function


def docstring(function: Callable) -> str:
    """A function's docstring as its source has it, ended by a line of its margin alone: Python 3.13 takes the
    margin away, and with it what tells a formula at the end of a docstring from words."""
    home = plain(function)
    try:
        return _in_source(home) or home.__doc__ or ""
    except (OSError, TypeError, SyntaxError):  # typed in, built in, or an object that can be called
        return home.__doc__ or ""


@lru_cache(maxsize=1000)
def _in_source(function: Callable) -> str:
    node = syntax(textwrap.dedent(inspect.getsource(function))).body[0]
    if not isinstance(node, ast.FunctionDef | ast.ClassDef):
        return ""
    text = ast.get_docstring(node, clean=False)
    return f"{text.rstrip()}\n{' ' * node.body[0].col_offset}" if text else ""


def pieces(doc: str | None) -> list[Piece]:
    """A docstring's paragraphs and formulas in their order.

        pieces("The square.\\n\\n        f(x) = x^2\\n    ")  ->  words "The square.", formula "f(x) = x^2"
    """
    out: list[Piece] = []
    before = ""  # the line above, with its indentation beyond the margin
    for line in _lines(doc or ""):
        apart = line.startswith(APART)
        further = apart and before.startswith(APART) and _indent(line) > _indent(before)
        if line.strip() and (further or (not apart and before and not before.startswith(APART))):
            out[-1] = out[-1]._replace(text=f"{out[-1].text} {' '.join(line.split())}")
        elif line.strip():
            out.append(Piece("formula" if apart else "words", " ".join(line.split())))
        before = before if further else line.rstrip()
    return out


def _lines(doc: str) -> list[str]:
    """The lines of a docstring without its margin, which the line of the closing quotes has too."""
    first, *rest = doc.expandtabs().splitlines() or [""]
    held = [line for line in rest if line.strip()] + (rest[-1:] if rest and not rest[-1].strip() else [])
    margin = min(map(_indent, held), default=0)
    return [first.strip(), *(line[margin:] for line in rest)]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def first_paragraph(doc: str | None) -> str:
    """The first paragraph of a docstring, on one line."""
    return next((piece.text for piece in pieces(doc) if piece.kind == "words"), "")


def set_apart(doc: str | None) -> list[str]:
    """The formulas of a docstring."""
    return [piece.text for piece in pieces(doc) if piece.kind == "formula"]

"""Walks through the library's own code, line by line, from text/walks.toml; a page has them by ::walk NAME.

    [[r1.step]]
    code = "recipes.pipelines.r1.pipeline"    a function, or row = "nano": a row of the table
    from = 'Stage(name="cold"'                a piece of the first line, which no other line of it has
    to = 'about="1'                           the same of the last; left out where it is one line
    says = "What these lines do."

Lines are looked up in the source when the page is made, so no line number is written down.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple

from postgrad.studio.book import inline
from postgrad.studio.book.chapters import TEXT
from postgrad.studio.book.inline import TextPiece
from postgrad.studio.book.joins import line_of
from postgrad.studio.book.methods import row_source
from postgrad.studio.instruments.base import function_source
from postgrad.studio.json_types import JsonDict

WHOLE = 30  # lines of a function that is shown whole
MARGIN = 4  # of a longer one, what is shown before its first step and after its last


class WalkStep(NamedTuple):
    """first, last: lines of the file."""

    code: str
    first: int
    last: int
    says: tuple[TextPiece, ...]


class WalkLine(NamedTuple):
    """number: in the file, 0 where lines are left out. steps: those that speak of it, by number."""

    number: int
    text: str
    steps: tuple[int, ...]


class WalkSource(NamedTuple):
    """The part of a function that a walk needs."""

    code: str
    file: str
    lines: tuple[WalkLine, ...]


class Walk(NamedTuple):
    name: str
    title: str
    about: tuple[TextPiece, ...]
    sources: tuple[WalkSource, ...]
    steps: tuple[WalkStep, ...]


@cache
def all_walks() -> dict[str, Walk]:
    rows = tomllib.loads((TEXT / "walks.toml").read_text(encoding="utf-8"))
    return {name: read_walk(name, row) for name, row in rows.items()}


def source_of(row: JsonDict) -> tuple[str, Mapping[str, str | int]]:
    """The name of a step's code, and its source."""
    return (("the row " + row["row"], row_source(row["row"])) if "row" in row
            else (row["code"], function_source(f"postgrad.{row['code']}")))


def read_walk(name: str, row: JsonDict) -> Walk:
    steps: list[WalkStep] = []
    found: dict[str, Mapping[str, str | int]] = {}
    for n, step in enumerate(row["step"], start=1):
        code, source = source_of(step)
        found.setdefault(code, source)
        lines, where = str(source["text"]).splitlines(), f"the walk {name}, step {n}"
        first = line_of(lines, step["from"], where, code)
        last = line_of(lines, step["to"], where, code) if "to" in step else first
        if last < first:
            raise LookupError(f"{where}: {step['to']!r} stands above {step['from']!r} in {code}")
        begin = int(source["line"])
        steps.append(WalkStep(code, begin + first, begin + last, inline.parse_inline(step["says"], {})))
    return Walk(name, row["title"].replace("'", "\u2019"), inline.parse_inline(row["about"], {}),
                tuple(shown_part(code, source, steps) for code, source in found.items()), tuple(steps))


def shown_part(code: str, source: Mapping[str, str | int], steps: list[WalkStep]) -> WalkSource:
    """A function, each line with the steps that speak of it; of a long one its head, and the lines around its
    steps."""
    ours = [(n, step) for n, step in enumerate(steps, start=1) if step.code == code]
    low, high = min(s.first for _, s in ours) - MARGIN, max(s.last for _, s in ours) + MARGIN
    lines = [WalkLine(number, text, tuple(n for n, s in ours if s.first <= number <= s.last))
             for number, text in enumerate(str(source["text"]).splitlines(), start=int(source["line"]))]
    if len(lines) > WHOLE:
        head = next(i for i, line in enumerate(lines) if line.text.rstrip().endswith(":")) + 1
        near = [line for line in lines[head:] if low <= line.number <= high]
        lines = [*lines[:head], *([WalkLine(0, "", ())] if near[0] != lines[head] else []), *near]
    return WalkSource(code, str(source["file"]), tuple(lines))

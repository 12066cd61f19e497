"""The text of a page as blocks: headings, paragraphs, lists, tables, equations, and what is set between them.

    ## A heading                a part of the page, with an address of its own
    - item, 1. item, | a | b |  lists and tables; a table's first line is its head
    $$ ... $$                   an equation on lines of its own
    ::kind argument             a figure, a cell, a question, a function's source, a row, a table, a run
    :::kind title ... :::       blocks within blocks: a misconception, a derivation, a note
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from postgrad.studio.book.inline import TextPiece, fill_values, parse_inline, plain_text
from postgrad.studio.json_types import JsonMapping

LEAVES = ("instrument", "cell", "check", "source", "row", "table", "chart", "workshop", "timeline",
          "walk")
BOXES = ("misconception", "derivation", "note")
STARTS = re.compile(r"#{2,3} |\$\$|:::|::\w|- |\d+\. |\|")


@dataclass(frozen=True, kw_only=True)
class TextBlock:
    """kind: h2, h3, p, ul, ol, grid, tex, a leaf or a box. rows: the items of a list, the cells of a table.
    argument: what follows the name of a leaf. line: where it stands in its file."""

    kind: str
    line: int
    pieces: tuple[TextPiece, ...] = ()
    rows: tuple[tuple[tuple[TextPiece, ...], ...], ...] = ()
    argument: str = ""
    inner: tuple[TextBlock, ...] = ()
    anchor: str = ""


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def read_blocks(text: str, values: JsonMapping) -> tuple[TextBlock, ...]:
    lines = text.splitlines()
    blocks, at = blocks_within(lines, 0, values)
    if at < len(lines):
        raise ValueError(f"line {at + 1}: ':::' closes nothing")
    return blocks


def blocks_within(lines: list[str], at: int, values: JsonMapping) -> tuple[tuple[TextBlock, ...], int]:
    """The blocks from a line on, to the end or to the ':::' that closes a box."""
    blocks = []
    while at < len(lines) and lines[at].strip() != ":::":
        if not lines[at].strip():
            at += 1
            continue
        block, at = next_block(lines, at, values)
        blocks.append(block)
    return tuple(blocks), at


def next_block(lines: list[str], at: int, values: JsonMapping) -> tuple[TextBlock, int]:
    line, here = lines[at], at + 1
    if heading := re.match(r"(#{2,3}) (.+)", line):
        pieces = parse_inline(heading[2], values)
        return TextBlock(kind=f"h{len(heading[1])}", line=here, pieces=pieces,
                         anchor=slug(plain_text(pieces))), at + 1
    if line.startswith(":::"):
        kind, _, title = line[3:].strip().partition(" ")
        check_kind(kind, BOXES, here)
        inner, end = blocks_within(lines, at + 1, values)
        if end == len(lines):
            raise ValueError(f"line {here}: ':::{kind}' is not closed by ':::'")
        pieces = parse_inline(title, values)
        return TextBlock(kind=kind, line=here, pieces=pieces, inner=inner,
                         anchor=slug(plain_text(pieces)) if kind == "derivation" else ""), end + 1
    if line.startswith("::"):
        kind, _, argument = line[2:].strip().partition(" ")
        check_kind(kind, LEAVES, here)
        return TextBlock(kind=kind, line=here, argument=argument.strip()), at + 1
    if line.startswith("$$"):
        return equation_block(lines, at, values)
    for kind, mark in (("ul", re.compile(r"- ")), ("ol", re.compile(r"\d+\. ")), ("grid", re.compile(r"\|"))):
        if mark.match(line):
            return item_block(kind, mark, lines, at, values)
    end = at + 1
    while end < len(lines) and lines[end].strip() and not STARTS.match(lines[end]):
        end += 1
    pieces = parse_inline(" ".join(lines[at:end]), values)
    named = pieces[0].kind == "strong"  # "**GAE** ...": a place of its own
    return TextBlock(kind="p", line=here, pieces=pieces,
                     anchor=slug(plain_text(pieces[0].inner)) if named else ""), end


def check_kind(kind: str, names: tuple[str, ...], line: int) -> None:
    if kind not in names:
        raise ValueError(f"line {line}: there is no {kind!r}; there are {', '.join(names)}")


def equation_block(lines: list[str], at: int, values: JsonMapping) -> tuple[TextBlock, int]:
    end, text = at, lines[at].strip()[2:]
    while not text.rstrip().endswith("$$"):
        end += 1
        if end == len(lines):
            raise ValueError(f"line {at + 1}: '$$' is not closed")
        text += "\n" + lines[end]
    raw = text.rstrip()[:-2].strip()
    return TextBlock(kind="tex", line=at + 1,
                     pieces=(TextPiece("tex", fill_values(raw, values), raw=raw),)), end + 1


def item_block(kind: str, mark: re.Pattern[str], lines: list[str], at: int,
               values: JsonMapping) -> tuple[TextBlock, int]:
    """Items or rows, one after the other; an indented line goes on with its item."""
    items: list[str] = []
    end = at
    while end < len(lines) and (mark.match(lines[end]) or (items and lines[end].startswith("  "))):
        if mark.match(lines[end]):
            items.append(mark.sub("", lines[end], count=1).strip())
        else:
            items[-1] += " " + lines[end].strip()
        end += 1
    cells = [[c.strip() for c in item.rstrip("|").split("|")] if kind == "grid" else [item] for item in items]
    return TextBlock(kind=kind, line=at + 1,
                     rows=tuple(tuple(parse_inline(c, values) for c in row) for row in cells)), end


def walk_blocks(blocks: tuple[TextBlock, ...]) -> Iterator[TextBlock]:
    """All blocks, those within others too."""
    for block in blocks:
        yield block
        yield from walk_blocks(block.inner)


def block_texts(block: TextBlock) -> Iterator[tuple[TextPiece, ...]]:
    """The lines of text of one block, without those of the blocks within."""
    if block.pieces:
        yield block.pieces
    for row in block.rows:
        yield from row


def map_pieces(block: TextBlock,
               change: Callable[[tuple[TextPiece, ...]], tuple[TextPiece, ...]]) -> TextBlock:
    """The block with its paragraphs, lists and tables changed; headings and equations stay."""
    if block.kind in ("h2", "h3", "tex"):
        return block
    titled = block.kind in BOXES
    return replace(block, pieces=block.pieces if titled else change(block.pieces),
                   rows=tuple(tuple(change(cell) for cell in row) for row in block.rows),
                   inner=tuple(map_pieces(b, change) for b in block.inner))

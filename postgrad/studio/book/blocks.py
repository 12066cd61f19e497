"""The text of a page as blocks: headings, paragraphs, lists, tables, equations, and what is set between them.

    ## A heading                a part of the page, with an address of its own
    - item, 1. item, | a | b |  lists and tables; a table's first line is its head
    $$ ... $$                   an equation on lines of its own
    ::kind argument             a figure, a cell, a question, a function's source, a row, a table, a run
    :::kind title ... :::       blocks within blocks: a misconception, a derivation, a note
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from postgrad.studio.book.inline import Piece, filled, parse, plain

LEAVES = ("instrument", "cell", "check", "source", "row", "table", "workshop")
BOXES = ("misconception", "derivation", "note")
STARTS = re.compile(r"#{2,3} |\$\$|:::|::\w|- |\d+\. |\|")


@dataclass(frozen=True, kw_only=True)
class Block:
    """kind: h2, h3, p, ul, ol, grid, tex, a leaf or a box. rows: the items of a list, the cells of a table.
    argument: what follows the name of a leaf. line: where it stands in its file."""

    kind: str
    line: int
    pieces: tuple[Piece, ...] = ()
    rows: tuple[tuple[tuple[Piece, ...], ...], ...] = ()
    argument: str = ""
    inner: tuple[Block, ...] = ()
    anchor: str = ""


def slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def read(text: str, values: Mapping) -> tuple[Block, ...]:
    lines = text.splitlines()
    blocks, at = within(lines, 0, values)
    if at < len(lines):
        raise ValueError(f"line {at + 1}: ':::' closes nothing")
    return blocks


def within(lines: list[str], at: int, values: Mapping) -> tuple[tuple[Block, ...], int]:
    """The blocks from a line on, to the end or to the ':::' that closes a box."""
    blocks = []
    while at < len(lines) and lines[at].strip() != ":::":
        if not lines[at].strip():
            at += 1
            continue
        block, at = one(lines, at, values)
        blocks.append(block)
    return tuple(blocks), at


def one(lines: list[str], at: int, values: Mapping) -> tuple[Block, int]:
    line, here = lines[at], at + 1
    if heading := re.match(r"(#{2,3}) (.+)", line):
        pieces = parse(heading[2], values)
        return Block(kind=f"h{len(heading[1])}", line=here, pieces=pieces, anchor=slug(plain(pieces))), at + 1
    if line.startswith(":::"):
        kind, _, title = line[3:].strip().partition(" ")
        known(kind, BOXES, here)
        inner, end = within(lines, at + 1, values)
        if end == len(lines):
            raise ValueError(f"line {here}: ':::{kind}' is not closed by ':::'")
        return Block(kind=kind, line=here, pieces=parse(title, values), inner=inner), end + 1
    if line.startswith("::"):
        kind, _, argument = line[2:].strip().partition(" ")
        known(kind, LEAVES, here)
        return Block(kind=kind, line=here, argument=argument.strip()), at + 1
    if line.startswith("$$"):
        return equation(lines, at, values)
    for kind, mark in (("ul", re.compile(r"- ")), ("ol", re.compile(r"\d+\. ")), ("grid", re.compile(r"\|"))):
        if mark.match(line):
            return run_of(kind, mark, lines, at, values)
    end = at + 1
    while end < len(lines) and lines[end].strip() and not STARTS.match(lines[end]):
        end += 1
    return Block(kind="p", line=here, pieces=parse(" ".join(lines[at:end]), values)), end


def known(kind: str, names: tuple[str, ...], line: int) -> None:
    if kind not in names:
        raise ValueError(f"line {line}: there is no {kind!r}; there are {', '.join(names)}")


def equation(lines: list[str], at: int, values: Mapping) -> tuple[Block, int]:
    end, text = at, lines[at].strip()[2:]
    while not text.rstrip().endswith("$$"):
        end += 1
        if end == len(lines):
            raise ValueError(f"line {at + 1}: '$$' is not closed")
        text += "\n" + lines[end]
    raw = text.rstrip()[:-2].strip()
    return Block(kind="tex", line=at + 1, pieces=(Piece("tex", filled(raw, values), raw=raw),)), end + 1


def run_of(kind: str, mark: re.Pattern, lines: list[str], at: int, values: Mapping) -> tuple[Block, int]:
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
    return Block(kind=kind, line=at + 1,
                 rows=tuple(tuple(parse(c, values) for c in row) for row in cells)), end


def walk(blocks: tuple[Block, ...]) -> Iterator[Block]:
    """All blocks, those within others too."""
    for block in blocks:
        yield block
        yield from walk(block.inner)


def texts(block: Block) -> Iterator[tuple[Piece, ...]]:
    """The lines of text of one block, without those of the blocks within."""
    if block.pieces:
        yield block.pieces
    for row in block.rows:
        yield from row


def mapped(block: Block, change) -> Block:
    """The block with its paragraphs, lists and tables changed; headings and equations stay."""
    if block.kind in ("h2", "h3", "tex"):
        return block
    titled = block.kind in BOXES
    return replace(block, pieces=block.pieces if titled else change(block.pieces),
                   rows=tuple(tuple(change(cell) for cell in row) for row in block.rows),
                   inner=tuple(mapped(b, change) for b in block.inner))

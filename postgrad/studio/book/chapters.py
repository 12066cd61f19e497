"""A chapter: its texts in three layers, its values, its questions. Read from text/, without torch."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from postgrad.studio.book import blocks, inline
from postgrad.studio.book.blocks import TextBlock
from postgrad.studio.book.inline import TextPiece
from postgrad.studio.json_types import JsonDict

HERE = Path(__file__).parent
TEXT = HERE / "text"
VALUES = HERE / "values.json"
NUMBERS = {"why": 1, "rewards": 2, "algorithms": 3, "reasoning": 4, "workshop": 5, "frontiers": 6,
           "teacher": 7, "systems": 8, "agents": 9, "measuring": 10}  # in order
LAYERS = {"intuition": "Intuition", "mathematics": "Mathematics", "implementation": "Implementation"}
PACE = 220  # words a minute


@dataclass(frozen=True, kw_only=True)
class CheckChoice:
    says: tuple[TextPiece, ...]
    why: tuple[TextPiece, ...]
    right: bool


@dataclass(frozen=True, kw_only=True)
class ChapterCheck:
    """A question with its choices, in an order of its own that is always the same."""

    name: str
    ask: tuple[TextPiece, ...]
    choices: tuple[CheckChoice, ...]

    @property
    def right(self) -> CheckChoice:
        return next(choice for choice in self.choices if choice.right)


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """number: its place in the book, 0 for the first page. claim: the title. short: for lists and links."""

    name: str
    number: int
    short: str
    claim: tuple[TextPiece, ...]
    hook: tuple[TextPiece, ...]
    layers: MappingProxyType[str, tuple[TextBlock, ...]]
    checks: MappingProxyType[str, ChapterCheck]

    @property
    def title(self) -> str:
        return inline.plain_text(self.claim)

    @property
    def address(self) -> str:
        return f"/book/{self.number}" if self.number else "/book"

    def layer_address(self, layer: str) -> str:
        return self.address if layer in ("intuition", "landing") else f"{self.address}/{layer}"

    def minutes(self, layer: str) -> int:
        """To read it, at a steady pace, questions included."""
        words = len(layer_words(self, layer).split())
        return max(1, round(words / PACE))


def layer_words(chapter: Chapter, layer: str) -> str:
    """The plain words of a layer, its questions included."""
    lines = [inline.plain_text(p) for b in blocks.walk_blocks(chapter.layers[layer])
             for p in blocks.block_texts(b)
             if b.kind != "tex"]
    asked = [inline.plain_text(chapter.checks[b.argument].ask)
             for b in blocks.walk_blocks(chapter.layers[layer])
             if b.kind == "check"]
    return " ".join(lines + asked)


@cache
def stored_values() -> dict[str, JsonDict]:
    return json.loads(VALUES.read_text(encoding="utf-8")) if VALUES.exists() else {}


@cache
def chapter(name: str) -> Chapter:
    return load_chapter(name, stored_values().get(name, {}))


def load_chapter(name: str, values: JsonDict) -> Chapter:
    folder = TEXT / name
    head = tomllib.loads((folder / "chapter.toml").read_text(encoding="utf-8"))
    found = {path.stem: path for path in sorted(folder.glob("*.md"))}
    order = [layer for layer in (*LAYERS, "landing") if layer in found]
    asked = folder / "checks.toml"
    questions = tomllib.loads(asked.read_text(encoding="utf-8"))["check"] if asked.exists() else []
    return Chapter(
        name=name, number=NUMBERS.get(name, 0), short=head["short"],
        claim=inline.parse_inline(head["claim"], values), hook=inline.parse_inline(head["hook"], values),
        layers=MappingProxyType({layer: read_layer(found[layer], values) for layer in order}),
        checks=MappingProxyType({q["name"]: parse_check(q, values) for q in questions}))


def read_layer(path: Path, values: JsonDict) -> tuple[TextBlock, ...]:
    try:
        return blocks.read_blocks(path.read_text(encoding="utf-8"), values)
    except (ValueError, LookupError) as fault:
        raise ValueError(f"{path.parent.name}/{path.name}: {fault}") from fault


def parse_check(question: JsonDict, values: JsonDict) -> ChapterCheck:
    """The choices are shuffled by their own words, so that the right one has no place of its own."""
    written = [(question["right"], question["why"], True),
               *((wrong["says"], wrong["why"], False) for wrong in question["wrong"])]
    choices = [CheckChoice(says=inline.parse_inline(says, values), why=inline.parse_inline(why, values),
                           right=right)
               for says, why, right in written]
    choices.sort(key=lambda c: hashlib.sha256(inline.plain_text(c.says).encode()).digest())
    return ChapterCheck(name=question["name"], ask=inline.parse_inline(question["ask"], values),
                        choices=tuple(choices))


@cache
def all_chapters() -> tuple[Chapter, ...]:
    return tuple(chapter(name) for name in NUMBERS)


@cache
def book_sources() -> dict[str, JsonDict]:
    """key -> {"who", "year", "title", "where"}; where is an address."""
    return tomllib.loads((TEXT / "sources.toml").read_text(encoding="utf-8"))


def cited_keys(found: tuple[TextBlock, ...]) -> list[str]:
    """The sources of a page, in the order in which it names them."""
    def keys(pieces: tuple[TextPiece, ...]) -> Iterator[str]:
        for piece in pieces:
            if piece.kind in ("cite", "quoted"):
                yield piece.target
            yield from keys(piece.inner)
    return list(dict.fromkeys(key for block in blocks.walk_blocks(found) for text in blocks.block_texts(block)
                              for key in keys(text)))

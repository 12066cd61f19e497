"""A chapter: its texts in three layers, its values, its questions. Read from text/, without torch."""

from __future__ import annotations

import hashlib
import json
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType

from postgrad.studio.book import blocks, inline
from postgrad.studio.book.blocks import Block
from postgrad.studio.book.inline import Piece

HERE = Path(__file__).parent
TEXT = HERE / "text"
VALUES = HERE / "values.json"
NUMBERS = {"why": 1, "rewards": 2, "algorithms": 3, "reasoning": 4, "workshop": 5, "frontiers": 6}  # in order
LAYERS = {"intuition": "Intuition", "mathematics": "Mathematics", "implementation": "Implementation"}
PACE = 220  # words a minute


@dataclass(frozen=True, kw_only=True)
class Choice:
    says: tuple[Piece, ...]
    why: tuple[Piece, ...]
    right: bool


@dataclass(frozen=True, kw_only=True)
class Check:
    """A question with its choices, in an order of its own that is always the same."""

    name: str
    ask: tuple[Piece, ...]
    choices: tuple[Choice, ...]

    @property
    def right(self) -> Choice:
        return next(choice for choice in self.choices if choice.right)


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """number: its place in the book, 0 for the first page. claim: the title. short: for lists and links."""

    name: str
    number: int
    short: str
    claim: tuple[Piece, ...]
    hook: tuple[Piece, ...]
    layers: MappingProxyType[str, tuple[Block, ...]]
    checks: MappingProxyType[str, Check]

    @property
    def title(self) -> str:
        return inline.plain(self.claim)

    @property
    def address(self) -> str:
        return f"/book/{self.number}" if self.number else "/book"

    def layer_address(self, layer: str) -> str:
        return self.address if layer in ("intuition", "landing") else f"{self.address}/{layer}"

    def minutes(self, layer: str) -> int:
        """To read it, at a steady pace, questions included."""
        words = len(words_of(self, layer).split())
        return max(1, round(words / PACE))


def words_of(chapter: Chapter, layer: str) -> str:
    """The plain words of a layer, its questions included."""
    lines = [inline.plain(p) for b in blocks.walk(chapter.layers[layer]) for p in blocks.texts(b)
             if b.kind != "tex"]
    asked = [inline.plain(chapter.checks[b.argument].ask) for b in blocks.walk(chapter.layers[layer])
             if b.kind == "check"]
    return " ".join(lines + asked)


@cache
def all_values() -> dict[str, dict]:
    return json.loads(VALUES.read_text(encoding="utf-8")) if VALUES.exists() else {}


@cache
def chapter(name: str) -> Chapter:
    return load(name, all_values().get(name, {}))


def load(name: str, values: dict) -> Chapter:
    folder = TEXT / name
    head = tomllib.loads((folder / "chapter.toml").read_text(encoding="utf-8"))
    found = {path.stem: path for path in sorted(folder.glob("*.md"))}
    order = [layer for layer in (*LAYERS, "landing") if layer in found]
    asked = folder / "checks.toml"
    questions = tomllib.loads(asked.read_text(encoding="utf-8"))["check"] if asked.exists() else []
    return Chapter(
        name=name, number=NUMBERS.get(name, 0), short=head["short"],
        claim=inline.parse(head["claim"], values), hook=inline.parse(head["hook"], values),
        layers=MappingProxyType({layer: read_file(found[layer], values) for layer in order}),
        checks=MappingProxyType({q["name"]: check(q, values) for q in questions}))


def read_file(path: Path, values: dict) -> tuple[Block, ...]:
    try:
        return blocks.read(path.read_text(encoding="utf-8"), values)
    except (ValueError, LookupError) as fault:
        raise ValueError(f"{path.parent.name}/{path.name}: {fault}") from fault


def check(question: dict, values: dict) -> Check:
    """The choices are shuffled by their own words, so that the right one has no place of its own."""
    written = [(question["right"], question["why"], True),
               *((wrong["says"], wrong["why"], False) for wrong in question["wrong"])]
    choices = [Choice(says=inline.parse(says, values), why=inline.parse(why, values), right=right)
               for says, why, right in written]
    choices.sort(key=lambda c: hashlib.sha256(inline.plain(c.says).encode()).digest())
    return Check(name=question["name"], ask=inline.parse(question["ask"], values), choices=tuple(choices))


@cache
def book() -> tuple[Chapter, ...]:
    return tuple(chapter(name) for name in NUMBERS)


@cache
def sources() -> dict[str, dict]:
    """key -> {"who", "year", "title", "where"}; where is an address."""
    return tomllib.loads((TEXT / "sources.toml").read_text(encoding="utf-8"))


def cited(found: tuple[Block, ...]) -> list[str]:
    """The sources of a page, in the order in which it names them."""
    def keys(pieces: tuple[Piece, ...]):
        for piece in pieces:
            if piece.kind in ("cite", "quoted"):
                yield piece.target
            yield from keys(piece.inner)
    return list(dict.fromkeys(key for block in blocks.walk(found) for text in blocks.texts(block)
                              for key in keys(text)))

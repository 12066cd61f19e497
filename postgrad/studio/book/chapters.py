"""A chapter: its texts in three layers, its values, its questions. Read from text/, without torch."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

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

    def lines(self) -> tuple[tuple[TextPiece, ...], ...]:
        """All its lines of text."""
        return (self.ask, *(line for choice in self.choices for line in (choice.says, choice.why)))


class NumberHint(NamedTuple):
    """The hint for an answer of this value."""

    value: float
    says: tuple[TextPiece, ...]


@dataclass(frozen=True, kw_only=True)
class NumberCheck:
    """A question that is answered by a number, worked out by hand. An answer is right within the tolerance;
    the same tolerance tells a known wrong value. shown: the answer as it is printed."""

    name: str
    ask: tuple[TextPiece, ...]
    answer: float
    shown: str
    tolerance: float
    why: tuple[TextPiece, ...]
    hints: tuple[NumberHint, ...]

    def lines(self) -> tuple[tuple[TextPiece, ...], ...]:
        """All its lines of text."""
        return self.ask, self.why, *(hint.says for hint in self.hints)


@dataclass(frozen=True, kw_only=True)
class Chapter:
    """number: its place in the book, 0 for the first page. claim: the title. short: for lists and links."""

    name: str
    number: int
    short: str
    claim: tuple[TextPiece, ...]
    hook: tuple[TextPiece, ...]
    layers: MappingProxyType[str, tuple[TextBlock, ...]]
    checks: MappingProxyType[str, ChapterCheck | NumberCheck]

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
    layers = {layer: read_layer(found[layer], values) for layer in order}
    checks = {q["name"]: parse_check(q, values) for q in questions}
    return Chapter(
        name=name, number=NUMBERS.get(name, 0), short=head["short"],
        claim=inline.parse_inline(head["claim"], values), hook=inline.parse_inline(head["hook"], values),
        layers=MappingProxyType(with_number_checks(layers, checks)), checks=MappingProxyType(checks))


def with_number_checks(layers: dict[str, tuple[TextBlock, ...]],
                       checks: dict[str, ChapterCheck | NumberCheck]) -> dict[str, tuple[TextBlock, ...]]:
    """The layers; numbers that no text asks for are asked for at the end of the mathematics."""
    placed = {block.argument for page in layers.values() for block in blocks.walk_blocks(page)
              if block.kind == "check"}
    left = [name for name, check in checks.items() if isinstance(check, NumberCheck) and name not in placed]
    if not left or "mathematics" not in layers:
        return layers
    title = inline.parse_inline("Work it out", {})
    added = [TextBlock(kind="h2", line=0, pieces=title, anchor="work-it-out"),
             *(TextBlock(kind="check", line=0, argument=name) for name in left)]
    return layers | {"mathematics": (*layers["mathematics"], *added)}


def read_layer(path: Path, values: JsonDict) -> tuple[TextBlock, ...]:
    try:
        return blocks.read_blocks(path.read_text(encoding="utf-8"), values)
    except (ValueError, LookupError) as fault:
        raise ValueError(f"{path.parent.name}/{path.name}: {fault}") from fault


def parse_check(question: JsonDict, values: JsonDict) -> ChapterCheck | NumberCheck:
    """A question of either kind, "choice" where none is named."""
    kinds: dict[str, Callable[[JsonDict, JsonDict], ChapterCheck | NumberCheck]] = {
        "choice": parse_choices, "number": parse_number_check}
    kind = question.get("kind", "choice")
    if kind not in kinds:
        raise ValueError(f"the check {question['name']!r} is of kind {kind!r}; there are {', '.join(kinds)}.")
    return kinds[kind](question, values)


def parse_number_check(question: JsonDict, values: JsonDict) -> NumberCheck:
    """The answer and the known wrong values are names of values that the library computes."""
    def number(name: str) -> float:
        found = inline.look_up_value(name, values)
        if isinstance(found, bool) or not isinstance(found, int | float):
            raise ValueError(f"the check {question['name']!r} has {name!r} for a number, which is {found!r}.")
        return float(found)
    answer, tolerance = number(question["answer"]), float(question["tolerance"])
    hints = tuple(NumberHint(number(hint["value"]), inline.parse_inline(hint["says"], values))
                  for hint in question.get("hint", ()))
    apart = [answer, *(hint.value for hint in hints)]
    if any(abs(a - b) <= 2 * tolerance for a, b in combinations(apart, 2)):
        raise ValueError(f"the check {question['name']!r} has values within its tolerance of {tolerance:g} "
                         f"of one "
                         f"another: {', '.join(f'{value:.6g}' for value in apart)}.")
    return NumberCheck(name=question["name"], ask=inline.parse_inline(question["ask"], values), answer=answer,
                       shown=inline.format_value(answer, question.get("show", "")), tolerance=tolerance,
                       why=inline.parse_inline(question["why"], values), hints=hints)


def parse_choices(question: JsonDict, values: JsonDict) -> ChapterCheck:
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

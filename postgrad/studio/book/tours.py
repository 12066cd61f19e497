"""The guided tour of a chapter: stops in the text and the figures of its intuition, from text/NAME/tour.toml.

    [[stop]]
    at = "words of a paragraph"     a piece of one block of the page, which no other block has; of a figure, a
                                    table, a cell or a question its argument, as in ::instrument gae
    to = "words of a later one"     the stop goes on to here
    state = "lam=0.5"               where the controls of its instrument are set
    says, ask                       what to look at; a question to answer before going on
"""

from __future__ import annotations

import tomllib
from functools import cache
from typing import NamedTuple
from urllib.parse import parse_qsl

from starlette.datastructures import QueryParams

from postgrad.studio import instruments
from postgrad.studio.book import inline, places
from postgrad.studio.book.chapters import PACE, TEXT, Chapter, chapter, stored_values
from postgrad.studio.book.inline import TextPiece
from postgrad.studio.json_types import JsonDict

FIGURES = ("instrument", "chart", "table", "workshop", "cell", "timeline")
LOOK = 0.5  # minutes at a figure
KEYS = {"at", "to", "state", "says", "ask"}


class TourStop(NamedTuple):
    """first, last: places of blocks in the page. figure: an instrument; pose: the values of its controls."""

    first: int
    last: int
    figure: str
    pose: tuple[tuple[str, str], ...]
    says: tuple[TextPiece, ...]
    ask: tuple[TextPiece, ...]


@cache
def chapter_tour(name: str) -> tuple[TourStop, ...]:
    path = TEXT / name / "tour.toml"
    rows = tomllib.loads(path.read_text(encoding="utf-8"))["stop"] if path.exists() else []
    found, values = chapter(name), stored_values().get(name, {})
    return tuple(read_stop(row, f"{name}/tour.toml, stop {n}", found, values)
                 for n, row in enumerate(rows, start=1))


def read_stop(row: JsonDict, where: str, found: Chapter, values: JsonDict) -> TourStop:
    if strange := set(row) - KEYS:
        raise ValueError(f"{where} has {min(strange)!r}; a stop has {', '.join(sorted(KEYS))}.")
    first = place_of(row["at"], where, found)
    last = place_of(row["to"], where, found) if "to" in row else first
    passage = found.layers["intuition"][first: last + 1]
    drawn = [block.argument for block in passage if block.kind == "instrument"]
    if not passage or len(drawn) > 1 or ("state" in row and not drawn):
        raise ValueError(f"{where} ends before it begins, has two instruments, or a state and none to set.")
    name, _, start = drawn[0].partition("?") if drawn else ("", "", "")
    return TourStop(first, last, name, pose_of(name, start, row.get("state", "")) if drawn else (),
                    inline.parse_inline(row["says"], values), inline.parse_inline(row.get("ask", ""), values))


def place_of(words: str, where: str, found: Chapter) -> int:
    page, said = found.layers["intuition"], words.replace("'", "\u2019")
    hits = ([i for i, b in enumerate(page) if b.argument and b.argument.partition("?")[0] == words]
            or [i for i, b in enumerate(page) if said in " ".join(places.block_words(b, found))])
    if len(hits) != 1:
        raise ValueError(f"{where}: {len(hits)} blocks of the page have {words!r}.")
    return hits[0]


def pose_of(name: str, start: str, state: str) -> tuple[tuple[str, str], ...]:
    """The value of each control in a state, as the page writes it; what a state leaves open is as the text
    begins."""
    instrument = instruments.instrument_named(name)
    given = parse_qsl(state)
    posed = instrument.read(QueryParams(
        given + [pair for pair in parse_qsl(start) if pair[0] not in dict(given)]))
    out: list[tuple[str, str]] = []
    for control in instrument.shown(posed):
        value, index = getattr(posed, control.name), getattr(control, "index", None)
        value = value if index is None else value[index]
        out.append((control.name, str(int(value) if isinstance(value, bool) else value)))
    return tuple(out)


def tour_minutes(found: Chapter) -> float:
    """To read the stops and what they stand at, and to look at their figures."""
    page, words, looks = found.layers.get("intuition", ()), 0, 0
    for stop in chapter_tour(found.name):
        blocks = page[stop.first: stop.last + 1]
        looks += sum(block.kind in FIGURES for block in blocks)
        texts = [inline.plain_text(stop.says), inline.plain_text(stop.ask),
                 *(text for block in blocks for text in places.block_words(block, found))]
        words += len(" ".join(texts).split())
    return words / PACE + LOOK * looks


def tour_marks(name: str) -> dict[str, dict[int, list[int]]]:
    """Which stops begin before a block of the page, and which end after it."""
    marks: dict[str, dict[int, list[int]]] = {"begin": {}, "end": {}}
    for n, stop in enumerate(chapter_tour(name), start=1):
        marks["begin"].setdefault(stop.first, []).append(n)
        marks["end"].setdefault(stop.last, []).append(n)
    return marks

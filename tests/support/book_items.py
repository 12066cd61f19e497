"""The items that the book has to hold (book_items.toml), each looked for in the pages as they are served."""

from __future__ import annotations

import html
import re
import tempfile
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

LISTED = Path(__file__).with_suffix(".toml")
PLACES = {"landing": "/book", "sources": "/book/sources", "exercises": "/exercises",
          "questions": "/exercises/questions"}
MARKS = {"instrument": 'hx-get="/instruments/{}/frame', "cell": '<py-cell data-cell="{}"',
         "check": 'data-check="[a-z]+/{}"', "source": "<figcaption><code>{}</code> in",
         "row": 'href="/book/methods/{}"', "workshop": 'id="workshop-{}"'}


class Item(NamedTuple):
    """places: page -> the words that stand there; none where the item is not in the book."""

    group: str
    name: str
    places: dict[str, list[str]]


class Page(NamedTuple):
    status: int
    source: str
    words: str


def items() -> list[Item]:
    listed = tomllib.loads(LISTED.read_text(encoding="utf-8"))
    return [Item(group, name, places) for group, rows in listed.items() for name, places in rows.items()]


def address(place: str) -> str:
    """4/mathematics -> /book/4/mathematics."""
    return PLACES.get(place) or (f"/{place}" if place.startswith("instruments/") else f"/book/{place}")


def pages() -> Callable[[str], Page]:
    """A studio without runs: a page by its place, asked for once."""
    from studio_small import client
    studio = client(Path(tempfile.mkdtemp(prefix="book-items-")))

    @cache
    def page(place: str) -> Page:
        answer = studio.get(address(place))
        return Page(answer.status_code, answer.text, plain(re.sub(r"<[^>]+>", "", answer.text)))
    return page


def plain(text: str) -> str:
    return " ".join(html.unescape(text).replace("’", "'").split())


def stands(words: str, page: Page) -> bool:
    """Whether a text, a mark (#name) or a part of the page (::kind name) is there."""
    if words.startswith("::"):
        kind, name = words[2:].split()
        return re.search(MARKS[kind].format(re.escape(name)), page.source) is not None
    if words.startswith("#"):
        return f'id="{words[1:]}"' in page.source
    return words in page.words


def lost(item: Item, page: Callable[[str], Page]) -> list[str]:
    """What of an item does not stand where it should, or why there is nothing to look for."""
    if not item.places:
        return ["no page has it"]
    return [f"{place}: {words}" for place, expected in item.places.items() for words in expected
            if page(place).status != 200 or not stands(words, page(place))]

"""/book: the first page, chapters by layer, glossary, methods, index, sources, search."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

from markupsafe import Markup
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from postgrad.studio import instruments
from postgrad.studio.book import blocks, glossary, inline, joins, methods, places, tours, walks, workshop
from postgrad.studio.book.blocks import TextBlock
from postgrad.studio.book.chapters import (
    LAYERS,
    Chapter,
    all_chapters,
    book_sources,
    chapter,
    cited_keys,
    stored_values,
)
from postgrad.studio.cells import web as lab
from postgrad.studio.cells.catalogue import CELLS
from postgrad.studio.cells.runner import WALL
from postgrad.studio.exercises import EXERCISES
from postgrad.studio.instruments.base import RUNS, function_source
from postgrad.studio.json_types import JsonDict, Values
from postgrad.studio.pages import full_page, render_template, why_closed


def figure_numbers(chapter: Chapter) -> dict[str, str]:
    """The number of each figure of a chapter, in the order of reading: argument -> 3.1, 3.2, ..."""
    drawn = [b.argument for layer in chapter.layers.values() for b in blocks.walk_blocks(layer)
             if b.kind in ("instrument", "workshop", "chart")]
    stem = f"{chapter.number}." if chapter.number else ""
    return {argument: f"{stem}{place}" for place, argument in enumerate(dict.fromkeys(drawn), start=1)}


def page_figures(request: Request, found: tuple[TextBlock, ...], figures: Mapping[str, str]) -> JsonDict:
    """The instruments of a page by their argument. An export holds them; a page asks for each when it is
    there, so that its words need not wait for torch."""
    if request.headers.get("x-postgrad-export") != "1":
        return {}
    RUNS.set(request.app.state.runs)
    return {b.argument: Markup(render_template(
                request, "instrument_frame.html",
                instruments.instrument_context(*instrument_in_text(b.argument))
                | {"figure": figures[b.argument], "start": b.argument.partition("?")[2]}))
            for b in blocks.walk_blocks(found) if b.kind == "instrument"}


def frame_addresses(request: Request, found: tuple[TextBlock, ...],
                    figures: Mapping[str, str]) -> dict[str, str]:
    """Where the instruments of a page are asked for, by their argument: each in the state that the page's own
    address has for it (?gae=lam%3D0.5), else as the text begins with it."""
    addresses = {}
    for block in blocks.walk_blocks(found):
        if block.kind == "instrument":
            instrument, _ = instrument_in_text(block.argument)
            start = block.argument.partition("?")[2]
            query = request.query_params.get(instrument.name, start)
            addresses[block.argument] = f"/instruments/{instrument.name}/frame?" + urlencode(
                [("figure", figures[block.argument]), ("start", start), *parse_qsl(query)])
    return addresses


def page_workshops(request: Request, found: tuple[TextBlock, ...], figures: Mapping[str, str]) -> JsonDict:
    """The experiments of a page by their name, as they stand."""
    return {b.argument: Markup(render_template(request, "book/workshop.html", workshop.experiment_panel(
                request, workshop.experiment_of(b.argument)) | {"figure": figures[b.argument]}))
            for b in blocks.walk_blocks(found) if b.kind == "workshop"}


def columns_of(table: TextBlock) -> str:
    """The heads of a table's columns, as its name."""
    return ", ".join(filter(None, map(inline.plain_text, table.rows[0])))


def instrument_in_text(argument: str) -> Values:
    """grpo?std=0 -> the instrument, and its state."""
    name, _, query = argument.partition("?")
    return instruments.instrument_named(name), QueryParams(parse_qsl(query))


def layer_page(request: Request, template: str, found: Chapter, layer: str, **more: Any) -> Response:
    body = found.layers[layer]
    kinds = {block.kind for block in blocks.walk_blocks(body)}
    opens = layer in ("intuition", "landing")
    hook, body = glossary.link_terms(found.hook if opens else (), joins.joined(found, body))
    closed, figures = why_closed(request, lab.RUNS_CODE), figure_numbers(found)
    served = any(getattr(r, "path", "") == "/exercises" for r in request.app.routes)
    exercises = [e for e in EXERCISES.values() if e.chapter == found.number] if served else []
    if "cell" in kinds and not closed and request.headers.get("x-postgrad-export") != "1":
        lab.runner_of(request).warm()
    return full_page(request, template, chapter=found, layer=layer, layers=LAYERS, hook=hook, body=body,
                     figures=page_figures(request, body, figures),
                     workshops=page_workshops(request, body, figures),
                     frames=frame_addresses(request, body, figures), columns_of=columns_of,
                     plain=inline.plain_text, contents=[b for b in body if b.kind == "h2"],
                     sources=book_sources(), symbols=glossary.book_symbols(),
                     cited=cited_keys(body), cells=CELLS, joins=joins.page_joins(found, layer),
                     closed=closed, wall=WALL, result=None, source=function_source,
                     row_source=methods.row_source,
                     instruments=instruments.INSTRUMENTS, values=stored_values().get(found.name, {}),
                     kinds=kinds, numbered=figures, events=timeline(),
                     exercises=exercises, listed=served, tour=tours.chapter_tour(found.name),
                     tour_minutes=round(tours.tour_minutes(found)),
                     marks=tours.tour_marks(found.name), walks=walks.all_walks(), **more)


def timeline() -> list[JsonDict]:
    """The sources with an event, in the order of their years."""
    return sorted(({**s, "key": key} for key, s in book_sources().items() if "event" in s),
                  key=lambda s: s["year"])


def landing_page(request: Request) -> Response:
    return layer_page(request, "book/landing.html", chapter("landing"), "landing", chapters=all_chapters())


def chapter_page(request: Request) -> Response:
    number, layer = request.path_params["number"], request.path_params.get("layer", "intuition")
    numbers = [found.number for found in all_chapters()]
    if number not in numbers:
        raise HTTPException(404, f"The book has the chapters {', '.join(map(str, numbers))}, and no chapter "
                            f"{number}.")
    at = numbers.index(number)
    found = all_chapters()[at]
    if layer not in found.layers:
        raise HTTPException(404, f"A chapter has the layers {', '.join(found.layers)}, and no "
                            f"{layer[:40]!r}.")
    near = {"before": all_chapters()[at - 1] if at else None,
            "after": all_chapters()[at + 1] if at + 1 < len(all_chapters()) else None}
    return layer_page(request, "book/chapter.html", found, layer, **near)


def glossary_page(request: Request) -> Response:
    return full_page(request, "book/glossary.html", terms=glossary.terms().values(),
                     symbols=glossary.book_symbols(),
                     index=places.term_index(),
                     sources=book_sources())


def index_page(request: Request) -> Response:
    return full_page(request, "book/index.html", index=places.term_index(), terms=glossary.terms())


def sources_page(request: Request) -> Response:
    return full_page(request, "book/sources.html", sources=book_sources())


def search_page(request: Request) -> Response:
    return full_page(request, "book/search.html")


def methods_page(request: Request) -> Response:
    return full_page(request, "book/methods.html", table=methods.methods_by_family())


def method_row_page(request: Request) -> Response:
    from postgrad.methods import METHODS
    from postgrad.methods.pages import method_page
    from postgrad.methods.row import format_call
    name = request.path_params["name"]
    if name not in METHODS:
        raise HTTPException(404, f"The table has no row {name[:60]!r}; it has {', '.join(METHODS)}.")
    return full_page(request, "book/method.html", row=method_page(METHODS[name], METHODS),
                     written=format_call,
                     shown=methods.fact_text, source=methods.row_source(name),
                     bias=methods.bias_scatter(name))


routes = [
    *workshop.routes,
    Route("/book", landing_page, name="book"),
    Route("/book/glossary", glossary_page, name="glossary"),
    Route("/book/index", index_page, name="book-index"),
    Route("/book/sources", sources_page, name="sources"),
    Route("/book/search", search_page, name="search"),
    Route("/book/methods", methods_page, name="methods"),
    Route("/book/methods/{name}", method_row_page, name="method"),
    Route("/book/{number:int}", chapter_page, name="chapter"),
    Route("/book/{number:int}/{layer}", chapter_page, name="layer"),
]

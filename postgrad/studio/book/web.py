"""/book: the first page, chapters by layer, glossary, methods, index, sources, search."""

from __future__ import annotations

from urllib.parse import parse_qsl

from markupsafe import Markup
from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from postgrad.studio import instruments
from postgrad.studio.book import blocks, glossary, methods, places, workshop
from postgrad.studio.book.blocks import Block
from postgrad.studio.book.chapters import LAYERS, Chapter, all_values, book, chapter, cited, sources
from postgrad.studio.cells import web as lab
from postgrad.studio.cells.catalogue import CELLS
from postgrad.studio.cells.runner import WALL
from postgrad.studio.instruments.base import RUNS, source
from postgrad.studio.pages import page, render, why_closed

EXERCISES = "/exercises"


def figures(request: Request, found: tuple[Block, ...]) -> dict:
    """The instruments of a page by their argument. An export holds them; a page asks for each when it is
    there, so that its words need not wait for torch."""
    if request.headers.get("x-postgrad-export") != "1":
        return {}
    RUNS.set(request.app.state.runs)
    return {b.argument: Markup(render(request, "instrument_frame.html",
                                      instruments.context(*instrument_of(b.argument))))
            for b in blocks.walk(found) if b.kind == "instrument"}


def workshops(request: Request, found: tuple[Block, ...]) -> dict:
    """The experiments of a page by their name, as they stand."""
    return {b.argument: Markup(render(request, "book/workshop.html", workshop.panel(
                request, workshop.experiment_of(b.argument))))
            for b in blocks.walk(found) if b.kind == "workshop"}


def instrument_of(argument: str) -> tuple:
    """grpo?std=0 -> the instrument, and its state."""
    name, _, query = argument.partition("?")
    return instruments.find(name), QueryParams(parse_qsl(query))


def show(request: Request, template: str, found: Chapter, layer: str, **more) -> Response:
    body = found.layers[layer]
    kinds = {block.kind for block in blocks.walk(body)}
    opens = layer in ("intuition", "landing")
    hook, body = glossary.linked(found.hook if opens else (), body)
    closed = why_closed(request, lab.RUNS_CODE)
    if "cell" in kinds and not closed and request.headers.get("x-postgrad-export") != "1":
        lab.runner_of(request).warm()
    return page(request, template, chapter=found, layer=layer, layers=LAYERS, hook=hook, body=body,
                figures=figures(request, body), workshops=workshops(request, body), sources=sources(),
                cited=cited(body), cells=CELLS,
                closed=closed, wall=WALL, result=None, source=source, row_source=methods.row_source,
                instruments=instruments.INSTRUMENTS, values=all_values().get(found.name, {}), kinds=kinds,
                exercises=any(getattr(r, "path", "") == EXERCISES for r in request.app.routes), **more)


def landing(request: Request) -> Response:
    return show(request, "book/landing.html", chapter("landing"), "landing", chapters=book(),
                timeline=sorted((s for s in sources().values() if "event" in s), key=lambda s: s["year"]))


def one(request: Request) -> Response:
    number, layer = request.path_params["number"], request.path_params.get("layer", "intuition")
    numbers = [found.number for found in book()]
    if number not in numbers:
        raise HTTPException(404, f"The book has the chapters {', '.join(map(str, numbers))}, and no chapter "
                            f"{number}.")
    at = numbers.index(number)
    found = book()[at]
    if layer not in found.layers:
        raise HTTPException(404, f"A chapter has the layers {', '.join(found.layers)}, and no "
                            f"{layer[:40]!r}.")
    near = {"before": book()[at - 1] if at else None,
            "after": book()[at + 1] if at + 1 < len(book()) else None}
    return show(request, "book/chapter.html", found, layer, **near)


def words(request: Request) -> Response:
    return page(request, "book/glossary.html", terms=glossary.terms().values(), index=places.index(),
                sources=sources())


def index(request: Request) -> Response:
    return page(request, "book/index.html", index=places.index(), terms=glossary.terms())


def references(request: Request) -> Response:
    return page(request, "book/sources.html", sources=sources())


def search(request: Request) -> Response:
    return page(request, "book/search.html")


def method_table(request: Request) -> Response:
    return page(request, "book/methods.html", table=methods.table())


def method(request: Request) -> Response:
    from postgrad.methods import METHODS
    from postgrad.methods.pages import method_page
    from postgrad.methods.row import format_call
    name = request.path_params["name"]
    if name not in METHODS:
        raise HTTPException(404, f"The table has no row {name[:60]!r}; it has {', '.join(METHODS)}.")
    return page(request, "book/method.html", row=method_page(METHODS[name], METHODS), written=format_call,
                shown=methods.shown, source=methods.row_source(name), bias=methods.scatter(name))


routes = [
    *workshop.routes,
    Route("/book", landing, name="book"),
    Route("/book/glossary", words, name="glossary"),
    Route("/book/index", index, name="book-index"),
    Route("/book/sources", references, name="sources"),
    Route("/book/search", search, name="search"),
    Route("/book/methods", method_table, name="methods"),
    Route("/book/methods/{name}", method, name="method"),
    Route("/book/{number:int}", one, name="chapter"),
    Route("/book/{number:int}/{layer}", one, name="layer"),
]

"""/instruments: the gallery, an instrument's page, and its parts."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from postgrad.studio.instruments import INSTRUMENTS, context, find
from postgrad.studio.instruments.base import RUNS, Instrument
from postgrad.studio.pages import fragment, page


def first(instrument: Instrument) -> dict:
    """The numbers of the state that an instrument begins with."""
    return instrument.numbers(instrument.settle(instrument.state()))


def index(request: Request) -> Response:
    """The gallery. Its small figures are fetched one by one, so that the page need not wait for torch; an
    export holds them."""
    figures = ({i.name: first(i) for i in INSTRUMENTS.values()}
               if request.headers.get("x-postgrad-export") == "1" else {})
    return page(request, "instruments/index.html", instruments=INSTRUMENTS.values(), figures=figures)


def small(request: Request) -> Response:
    instrument = find(request.path_params["name"])
    return fragment(request, "instruments/small.html", instrument=instrument, numbers=first(instrument))


def whole(request: Request) -> Response:
    RUNS.set(request.app.state.runs)
    instrument = find(request.path_params["name"])
    rest = list(INSTRUMENTS.values())
    return page(request, "instrument.html", others=rest, **context(instrument, request.query_params))


def frame(request: Request) -> Response:
    """The whole instrument as a figure, for the running text of a chapter."""
    RUNS.set(request.app.state.runs)
    instrument = find(request.path_params["name"])
    return fragment(request, "instrument_frame.html", **context(instrument, request.query_params))


def figure(request: Request) -> Response:
    """The picture alone, for a control that has moved;
    the controls too where the state has changed which there are."""
    RUNS.set(request.app.state.runs)
    instrument = find(request.path_params["name"])
    return fragment(request, "instrument_figure.html", swapped=True,
                    **context(instrument, request.query_params))


routes = [
    Route("/instruments", index, name="instruments"),
    Route("/instruments/{name}", whole, name="instrument"),
    Route("/instruments/{name}/frame", frame, name="frame"),
    Route("/instruments/{name}/figure", figure, name="figure"),
    Route("/instruments/{name}/small", small, name="small"),
]

"""/instruments: the gallery, an instrument's page, and its parts."""

from __future__ import annotations

from urllib.parse import parse_qsl

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from postgrad.studio.instruments import INSTRUMENTS, instrument_context, instrument_named
from postgrad.studio.instruments.base import RUNS, Instrument
from postgrad.studio.instruments.prediction import measured
from postgrad.studio.json_types import JsonDict
from postgrad.studio.pages import fragment, full_page


def first_numbers(instrument: Instrument) -> JsonDict:
    """The numbers of the state that an instrument begins with."""
    return instrument.numbers(instrument.settle(instrument.state()))


def gallery_page(request: Request) -> Response:
    """The gallery. Its small figures are fetched one by one, so that the page need not wait for torch; an
    export holds them."""
    figures = ({i.name: first_numbers(i) for i in INSTRUMENTS.values()}
               if request.headers.get("x-postgrad-export") == "1" else {})
    return full_page(request, "instruments/index.html", instruments=INSTRUMENTS.values(), figures=figures)


def small_figure(request: Request) -> Response:
    instrument = instrument_named(request.path_params["name"])
    return fragment(request, "instruments/small.html", instrument=instrument,
                    numbers=first_numbers(instrument))


def instrument_page(request: Request) -> Response:
    RUNS.set(request.app.state.runs)
    instrument = instrument_named(request.path_params["name"])
    rest = list(INSTRUMENTS.values())
    return full_page(request, "instrument.html", others=rest, figure="", start="",
                     **instrument_context(instrument, request.query_params))


def instrument_frame(request: Request) -> Response:
    """The whole instrument as a figure, for the running text of a chapter: figure is its number there, start
    the state that the text begins with."""
    RUNS.set(request.app.state.runs)
    instrument = instrument_named(request.path_params["name"])
    given = request.query_params
    query = QueryParams([(key, x) for key, x in given.multi_items() if key not in ("figure", "start")])
    start = given.get("start", "")
    try:
        context = instrument_context(instrument, query)
    except ValueError:  # the address of the page was typed by hand: the figure is as its text begins with it
        context = instrument_context(instrument, QueryParams(parse_qsl(start)))
    return fragment(request, "instrument_frame.html", figure=given.get("figure", "")[:8], start=start[:300],
                    **context)


def instrument_figure(request: Request) -> Response:
    """The picture alone, for a control that has moved;
    the controls too where the state has changed which there are."""
    RUNS.set(request.app.state.runs)
    instrument = instrument_named(request.path_params["name"])
    return fragment(request, "instrument_figure.html", swapped=True,
                    **instrument_context(instrument, request.query_params))


def instrument_measure(request: Request) -> Response:
    """The number that a reader predicts, at a state; 204 where there is none."""
    RUNS.set(request.app.state.runs)
    instrument = instrument_named(request.path_params["name"])
    found = measured(instrument.name, instrument.numbers(instrument.read(request.query_params)))
    return Response(status_code=204) if found is None else JSONResponse(found)


routes = [
    Route("/instruments", gallery_page, name="instruments"),
    Route("/instruments/{name}", instrument_page, name="instrument"),
    Route("/instruments/{name}/frame", instrument_frame, name="frame"),
    Route("/instruments/{name}/figure", instrument_figure, name="figure"),
    Route("/instruments/{name}/measure", instrument_measure, name="measure"),
    Route("/instruments/{name}/small", small_figure, name="small"),
]

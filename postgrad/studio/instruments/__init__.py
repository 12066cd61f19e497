"""The instruments, and the pages that they share.

A module here with an INSTRUMENT is one: it needs no entry elsewhere.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from postgrad.studio.instruments.base import RUNS, Instrument, source
from postgrad.studio.pages import fragment, page

MODULES = sorted(m.name for m in iter_modules(__path__) if m.name != "base" and not m.name.startswith("_"))
INSTRUMENTS: dict[str, Instrument] = {i.name: i for i in sorted(
    (import_module(f"{__name__}.{name}").INSTRUMENT for name in MODULES), key=lambda i: i.number)}


def find(name: str) -> Instrument:
    if name not in INSTRUMENTS:
        raise HTTPException(404, f"There is no instrument {name!r}; there are {', '.join(INSTRUMENTS)}.")
    return INSTRUMENTS[name]


def context(instrument: Instrument, query: QueryParams) -> dict:
    """All that the templates of an instrument receive, on its own page, as a fragment or in a chapter."""
    state = instrument.read(query)
    ghost = (instrument.read(QueryParams(query["before"])) if "before" in query
             else instrument.settle(instrument.state()))
    numbers, before = instrument.numbers(state), instrument.numbers(ghost)
    address, held = instrument.query(state), instrument.query(ghost)
    sent = sum(1 for key, _ in query.multi_items() if key != "before")
    controls = instrument.shown(state)
    return {"instrument": instrument, "state": state, "ghost": ghost, "numbers": numbers, "before": before,
            "insight": instrument.insight(numbers), "controls": controls, "query": address, "held": held,
            "panel": [c for c in controls if not getattr(c, "placed", False)], "yours": False,
            "stale": sent != len(controls), "sources": [source(name) for name in instrument.functions]}


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

"""/lab: the library's functions as cells that can be edited;
their invariants turn red or green, and an instrument follows.

An edited cell runs in a process of its own (`cells.runner`), never in the server. As with a notebook, whoever
may edit a cell may run code on this machine: so cells are refused unless the server listens
to this machine alone.
"""

from __future__ import annotations

from dataclasses import asdict

from starlette.datastructures import ImmutableMultiDict, QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from postgrad.studio.cells.catalogue import CELLS, Cell
from postgrad.studio.cells.runner import WALL, Runner
from postgrad.studio.instruments import INSTRUMENTS, context
from postgrad.studio.instruments.base import Instrument
from postgrad.studio.pages import app_object, form_handler, fragment, page, require_own_machine, why_closed

RUNS_CODE = "Cells run code"


def cell_of(request: Request) -> Cell:
    name = request.path_params["name"]
    if name not in CELLS:
        raise HTTPException(404, f"There is no cell {name!r}; there are {', '.join(CELLS)}.")
    return CELLS[name]


def runner_of(request: Request) -> Runner:
    require_own_machine(request, RUNS_CODE)
    return app_object(request, "runner", lambda _: Runner())


def instrument_of(cell: Cell) -> Instrument | None:
    """The instrument that is computed by the cell's function, and by as little else as can be."""
    found = [i for i in INSTRUMENTS.values() if cell.function in i.functions and i.shown(i.state())]
    return min(found, key=lambda i: (i.functions.index(cell.function), len(i.functions)), default=None)


def module_of(instrument: Instrument) -> str:
    return instrument.compute.__module__


def index(request: Request) -> Response:
    return page(request, "lab/index.html", cells=CELLS.values(),
                driven={c.name: instrument_of(c) for c in CELLS.values()})


def whole(request: Request) -> Response:
    cell = cell_of(request)
    why = why_closed(request, RUNS_CODE)
    if not why:
        runner_of(request).warm()
    instrument = instrument_of(cell)
    shown = context(instrument, QueryParams(request.url.query)) if instrument else {}
    others = [other for other in CELLS.values() if other is not cell]
    return page(request, "lab/cell.html", cell=cell, others=others, closed=why, result=None, wall=WALL,
                **shown)


def text_of(fields: ImmutableMultiDict) -> str:
    """The source as it was typed: a form sends its line ends as CRLF."""
    return fields.get("source", "").replace("\r\n", "\n")


def run(request: Request, fields: ImmutableMultiDict) -> Response:
    """The edited cell against its invariants; the figure is told to follow."""
    cell, text = cell_of(request), text_of(fields)
    result = runner_of(request).check(cell, text)
    answer = fragment(request, "lab/result.html", cell=cell, result=result,
                      edited=text.strip() != cell.source.strip())
    answer.headers["HX-Trigger"] = "cell-run"
    return answer


def drive(request: Request, fields: ImmutableMultiDict) -> Response:
    """The instrument at the state of its controls, computed by the edited cell;
    the library's own numbers in grey."""
    cell, text = cell_of(request), text_of(fields)
    instrument = instrument_of(cell)
    if instrument is None:
        raise HTTPException(404, f"No instrument is computed by {cell.function}.")
    query = QueryParams([(k, v) for k, v in fields.multi_items() if k not in ("source", "before")])
    shown = context(instrument, query)
    if text.strip() != cell.source.strip():
        result = runner_of(request).drive(cell, text, module_of(instrument), asdict(shown["state"]))
        if result.fault or result.numbers is None:
            return fragment(request, "lab/undriven.html", instrument=instrument, reason=result.fault,
                            **links(shown))
        shown |= {"numbers": result.numbers, "before": shown["numbers"], "yours": True}
        try:
            shown["insight"] = instrument.insight(result.numbers)
            return fragment(request, "lab/driven.html", swapped=True, **shown)
        except Exception as fault:
            # numbers of somebody's own making: what can't be drawn is said, whatever it is
            reason = (f"what your version computes cannot be drawn ({type(fault).__name__}: "
                      f"{str(fault)[:200]})")
            return fragment(request, "lab/undriven.html", instrument=instrument, reason=reason,
                            **links(shown))
    return fragment(request, "lab/driven.html", swapped=True, **shown)


def links(shown: dict) -> dict:
    return {"query": shown["query"], "held": shown["held"]}


routes = [
    Route("/lab", index, name="lab"),
    Route("/lab/{name}", whole, name="cell"),
    Route("/cells/{name}/run", form_handler(run), methods=["POST"]),
    Route("/cells/{name}/drive", form_handler(drive), methods=["POST"]),
]

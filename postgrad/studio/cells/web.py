"""/lab: the library's functions as cells that can be edited;
their invariants turn red or green, and an instrument follows.

An edited cell runs in a process of its own (`cells.runner`), never in the server. As with a notebook, an
editor of a cell may run code on this machine: so cells are refused unless the server listens
to this machine alone.
"""

from __future__ import annotations

from dataclasses import asdict

from starlette.datastructures import ImmutableMultiDict, QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from postgrad.studio.cells.catalogue import CELLS, CodeCell
from postgrad.studio.cells.runner import WALL, Runner
from postgrad.studio.instruments import INSTRUMENTS, instrument_context
from postgrad.studio.instruments.base import Instrument
from postgrad.studio.json_types import JsonDict
from postgrad.studio.pages import (
    app_object,
    form_handler,
    fragment,
    full_page,
    require_own_machine,
    why_closed,
)

RUNS_CODE = "Cells run code"


def cell_of(request: Request) -> CodeCell:
    name = request.path_params["name"]
    if name not in CELLS:
        raise HTTPException(404, f"There is no cell {name!r}; there are {', '.join(CELLS)}.")
    return CELLS[name]


def runner_of(request: Request) -> Runner:
    require_own_machine(request, RUNS_CODE)
    return app_object(request, "runner", lambda _: Runner())


def instrument_for_cell(cell: CodeCell) -> Instrument | None:
    """The instrument that is computed by the cell's function, and by as little else as can be."""
    found = [i for i in INSTRUMENTS.values() if cell.function in i.functions and i.shown(i.state())]
    return min(found, key=lambda i: (i.functions.index(cell.function), len(i.functions)), default=None)


def compute_module(instrument: Instrument) -> str:
    return instrument.compute.__module__


def lab_page(request: Request) -> Response:
    return full_page(request, "lab/index.html", cells=CELLS.values(),
                     driven={c.name: instrument_for_cell(c) for c in CELLS.values()})


def cell_page(request: Request) -> Response:
    cell = cell_of(request)
    why = why_closed(request, RUNS_CODE)
    if not why:
        runner_of(request).warm()
    instrument = instrument_for_cell(cell)
    shown = instrument_context(instrument, QueryParams(request.url.query)) if instrument else {}
    others = [other for other in CELLS.values() if other is not cell]
    return full_page(request, "lab/cell.html", cell=cell, others=others, closed=why, result=None, wall=WALL,
                     **shown)


def source_text(fields: ImmutableMultiDict[str, str]) -> str:
    """The source as it was typed: a form sends its line ends as CRLF."""
    return fields.get("source", "").replace("\r\n", "\n")


def run_cell(request: Request, fields: ImmutableMultiDict[str, str]) -> Response:
    """The edited cell against its invariants; the figure is told to follow."""
    cell, text = cell_of(request), source_text(fields)
    result = runner_of(request).check(cell, text)
    answer = fragment(request, "lab/result.html", cell=cell, result=result,
                      edited=text.strip() != cell.source.strip())
    answer.headers["HX-Trigger"] = "cell-run"
    return answer


def drive_cell(request: Request, fields: ImmutableMultiDict[str, str]) -> Response:
    """The instrument at the state of its controls, computed by the edited cell;
    the library's own numbers in grey."""
    cell, text = cell_of(request), source_text(fields)
    instrument = instrument_for_cell(cell)
    if instrument is None:
        raise HTTPException(404, f"No instrument is computed by {cell.function}.")
    query = QueryParams([(k, v) for k, v in fields.multi_items() if k not in ("source", "before")])
    shown = instrument_context(instrument, query)
    if text.strip() != cell.source.strip():
        result = runner_of(request).drive(cell, text, compute_module(instrument), asdict(shown["state"]))
        if result.fault or result.numbers is None:
            return fragment(request, "lab/undriven.html", instrument=instrument, reason=result.fault,
                            **link_fields(shown))
        shown |= {"numbers": result.numbers, "before": shown["numbers"], "yours": True}
        try:
            shown["insight"] = instrument.insight(result.numbers)
            return fragment(request, "lab/driven.html", swapped=True, **shown)
        except Exception as fault:
            # numbers of somebody's own making: what can't be drawn is said, whatever it is
            reason = (f"what your version computes cannot be drawn ({type(fault).__name__}: "
                      f"{str(fault)[:200]})")
            return fragment(request, "lab/undriven.html", instrument=instrument, reason=reason,
                            **link_fields(shown))
    return fragment(request, "lab/driven.html", swapped=True, **shown)


def link_fields(shown: JsonDict) -> JsonDict:
    return {"query": shown["query"], "held": shown["held"]}


routes = [
    Route("/lab", lab_page, name="lab"),
    Route("/lab/{name}", cell_page, name="cell"),
    Route("/cells/{name}/run", form_handler(run_cell), methods=["POST"]),
    Route("/cells/{name}/drive", form_handler(drive_cell), methods=["POST"]),
]

"""The instruments: a state in the URL, a computation of the library, a picture.

Every module here except HELPERS is one instrument. The registry reads its INSTRUMENT; scripts of an export
read the functions by name. So each module defines the same names:

    State                  a frozen dataclass: all that the figure depends on
    CONTROLS, controls     the controls, or a function of the state that gives them
    settle(state)          repairs a state whose fields do not fit each other (left out where they always do)
    compute(state)         the numbers of the figure
    insight(numbers)       one sentence that is true of them
    INSTRUMENT             all of these as an `Instrument`
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException

from postgrad.studio.instruments.base import Instrument, function_source
from postgrad.studio.instruments.prediction import MEASURES
from postgrad.studio.json_types import JsonDict

HELPERS = {"base", "label_dpo", "pipeline_replies", "prediction", "trial", "web"}
MODULES = sorted(m.name for m in iter_modules(__path__) if m.name not in HELPERS)
INSTRUMENTS: dict[str, Instrument] = {i.name: i for i in sorted(
    (import_module(f"{__name__}.{name}").INSTRUMENT for name in MODULES), key=lambda i: i.number)}


def instrument_named(name: str) -> Instrument:
    if name not in INSTRUMENTS:
        raise HTTPException(404, f"There is no instrument {name!r}; there are {', '.join(INSTRUMENTS)}.")
    return INSTRUMENTS[name]


def instrument_context(instrument: Instrument, query: QueryParams) -> JsonDict:
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
            "stale": sent != len(controls), "predicts": instrument.name in MEASURES,
            "sources": [function_source(name) for name in instrument.functions]}

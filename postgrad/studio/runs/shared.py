"""What the pages about runs share: a run by its name, whole numbers of a query, a page's curves as data."""

from __future__ import annotations

import re
from json import dumps
from pathlib import Path

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request

from postgrad.studio.runs import curves, samples
from postgrad.studio.runs.traces import NoRun, Trace, Traces


def traces(request: Request) -> Traces:
    state = request.app.state
    if getattr(state, "traces", None) is None or state.traces.root != state.runs:
        state.traces = Traces(Path(state.runs))
    return state.traces


def trace_of(request: Request, name: str) -> Trace:
    try:
        return traces(request).get(name)
    except NoRun as error:
        raise HTTPException(404, str(error)) from None


def asked(request: Request, name: str, otherwise: int, least: int = 0) -> int:
    """A whole number in the query; what is none is refused with a sentence."""
    text = request.query_params.get(name, "")
    if not re.fullmatch(r"\d{0,15}", text, re.ASCII):
        raise ValueError(f"{name}={text!r:.40}: expected a whole number.")
    return max(least, int(text)) if text else otherwise


def watch(trace: Trace) -> list[int]:
    """The bytes that a page made now has: of metrics, evals and events."""
    return [*trace.cursor, trace.run.rows("events")[1]]


def data(request: Request, found: dict[str, Trace], first: list[str], more: list[str],
         cursors: dict[str, list[int]]) -> Markup:
    """What the page's script draws."""
    exported = request.headers.get("x-postgrad-export") == "1"  # then there is no server to ask later
    charts = curves.charts(found, [*first, *more]) if exported else curves.charts(found, first, more)
    return block({"charts": charts, "runs": cursors})


def block(found: dict) -> Markup:
    """JSON for a data block of a page: no character in it can end the block."""
    text = dumps(found, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def flat(config: dict, prefix: str = "") -> dict[str, str]:
    """Dotted keys and values of a saved config, as text."""
    out: dict[str, str] = {}
    for key, value in config.items():
        out |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {
            samples.clean(prefix + key): "none" if value is None else samples.clean(value)}
    return out

"""What the pages about runs share: a run by its name, whole numbers of a query, a page's curves as data."""

from __future__ import annotations

import re
from json import dumps
from pathlib import Path

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from postgrad.studio.json_types import JsonDict
from postgrad.studio.runs import curves, samples
from postgrad.studio.runs.health import Clinic
from postgrad.studio.runs.traces import NoSuchRun, Trace, Traces


def traces_of(request: Request) -> Traces:
    state = request.app.state
    if getattr(state, "traces", None) is None or state.traces.root != state.runs:
        state.traces = Traces(Path(state.runs))
    traces: Traces = state.traces
    return traces


def clinic_of(request: Request) -> Clinic:
    state, traces = request.app.state, traces_of(request)
    if getattr(state, "clinic", None) is None or state.clinic.traces is not traces:
        state.clinic = Clinic(traces)
    clinic: Clinic = state.clinic
    return clinic


def is_export(request: Request) -> bool:
    """Whether the page is written as a file: nothing of it can come later."""
    return request.headers.get("x-postgrad-export") == "1"


def trace_of(request: Request, name: str) -> Trace:
    try:
        return traces_of(request).get(name)
    except NoSuchRun as error:
        raise HTTPException(404, str(error)) from None


def query_number(request: Request, name: str, otherwise: int, least: int = 0) -> int:
    """A whole number in the query; what is none is refused with a sentence."""
    text = request.query_params.get(name, "")
    if not re.fullmatch(r"\d{0,15}", text, re.ASCII):
        raise ValueError(f"{name}={text!r:.40}: expected a whole number.")
    return max(least, int(text)) if text else otherwise


def query_fraction(request: Request, name: str) -> float:
    """A number of at least 0 and below 1 in the query; 0 where there is none."""
    text = request.query_params.get(name, "") or "0"
    if not re.fullmatch(r"0|0?\.\d{1,6}", text, re.ASCII):
        raise ValueError(f"{name}={text!r:.40}: expected a number from 0 to 0.999.")
    return float(text)


def log_cursor(trace: Trace) -> list[int]:
    """The bytes that a page made now has: of metrics, evals and events."""
    return [*trace.cursor, trace.run.rows("events")[1]]


def chart_data(request: Request, found: dict[str, Trace], first: list[str], more: list[str],
               cursors: dict[str, list[int]]) -> Markup:
    """What the page's script draws."""
    drawn, later = ([*first, *more], []) if is_export(request) else (first, more)
    axes = {name: curves.run_axis(trace) for name, trace in found.items()}
    return json_block({"charts": curves.chart_curves(found, drawn, later), "runs": cursors, "axes": axes})


def json_block(found: JsonDict) -> Markup:
    """JSON for a data block of a page: no character in it can end the block."""
    text = dumps(found, allow_nan=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def flat_config(config: JsonDict, prefix: str = "") -> dict[str, str]:
    """Dotted keys and values of a saved config, as text."""
    out: dict[str, str] = {}
    for key, value in config.items():
        out |= flat_config(value, f"{prefix}{key}.") if isinstance(value, dict) else {
            samples.safe_text(prefix + key): "none" if value is None else samples.safe_text(value)}
    return out


def as_file(text: str, kind: str, name: str) -> Response:
    """A text to be saved under a name."""
    plain = re.sub(r"[^A-Za-z0-9.@_-]+", "-", name)[:120]
    return Response(text, media_type=f"{kind}; charset=utf-8",
                    headers={"Content-Disposition": f'attachment; filename="{plain}"'})


def json_response(value: object) -> Response:
    return Response(dumps(value, allow_nan=False), media_type="application/json")


def redirect_to(address: str) -> Response:
    """htmx goes there; a script that follows redirects does too."""
    return Response(status_code=200, headers={"HX-Redirect": address, "Location": address})

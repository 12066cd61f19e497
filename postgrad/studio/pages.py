"""What every handler uses: templates to responses, forms to dicts, numbers to text, the app's own objects.

Autoescape is always on, and a missing name in a template is an error.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from threading import Lock
from typing import TypeVar
from urllib.parse import parse_qsl

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import ImmutableMultiDict
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response

from postgrad.data.store import Store
from postgrad.studio import svg
from postgrad.studio.json_types import JsonDict
from postgrad.studio.security import ENGINE_POLICY, EXPORT_POLICY

HERE = Path(__file__).parent
STATIC = HERE / "static"
NAV = (("Book", "/book"), ("Exercises", "/exercises"), ("Instruments", "/instruments"), ("Runs", "/runs"),
       ("Label", "/label"), ("Lab", "/lab"), ("Reference", "/reference"), ("About", "/about"))
MINUS = "\u2212"
PATIENCE = 30.0  # seconds in which a form has to come
_MAKING = Lock()
T = TypeVar("T")


# numbers to text

def num(value: float | str | None, digits: int = 3) -> str:
    """A number for people: -0.5 -> −0.500, 12 -> 12, nan -> nan, None -> –.

    A true minus sign; never "-0.000". What the last bits of a float say is not shown: 0.5875 computed in any
    order is the same text, and what is below 1e-12 is 0.
    """
    if value is None:
        return "–"
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int):
        return (f"{value:,}".replace(",", "\u202f") if abs(value) >= 10_000 else str(value)).replace(
            "-", MINUS)
    if not math.isfinite(value):
        return {"inf": "∞", "-inf": f"{MINUS}∞"}.get(str(value), "nan")
    value = value if 1e-12 <= abs(value) < 1e-6 else round(value, 12)
    size = abs(value)
    if size and (size < 0.5 * 10**-digits or size >= 1e6):
        text = f"{value:.{max(digits - 1, 1)}e}"
    else:
        text = f"{value or 0.0:.{digits if size < 100 else min(digits, 1)}f}"
    return text.replace("-", MINUS)


def dur(seconds: float | None) -> str:
    """4.2 -> 4.2 s, 4 -> 4 s, 75 -> 1 min 15 s, 3700 -> 1 h 1 min"""
    if seconds is None or not math.isfinite(seconds):
        return "–"
    if seconds < 60:
        return f"{seconds:.1f} s" if seconds < 10 and isinstance(seconds, float) else f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if minutes < 10 else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours < 48 else f"{hours // 24} days"


def format_share(value: float | None) -> str:
    """0.853 -> 85 %"""
    return "–" if value is None or not math.isfinite(value) else f"{100 * value:.0f}\u00a0%"


def format_bytes(count: float) -> str:
    """Bytes: 4.2e9 -> 4.2 GB, 350e6 -> 350 MB, 999 -> 0.001 MB"""
    for unit, length in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= length or unit == "MB":
            many = count / length
            return (f"{many:.0f} {unit}" if many >= 10 else f"{many:.1f} {unit}" if many >= 0.1
                    else f"{many:.3f} {unit}")
    raise AssertionError(count)


def ago(moment: float | None, now: float | None = None) -> str:
    """A time in seconds since 1970 -> "3 minutes ago"; beyond a month, the date."""
    if moment is None:
        return "–"
    past = max(0.0, (time.time() if now is None else now) - moment)
    if past < 10:
        return "just now"
    for unit, length in (("day", 86400), ("hour", 3600), ("minute", 60), ("second", 1)):
        count = int(past // length)
        if unit == "day" and count > 30:
            return time.strftime("%-d %B %Y", time.localtime(moment))
        if count:
            return f"{count} {unit}{'' if count == 1 else 's'} ago"
    raise AssertionError(past)


# pages

@cache
def _asset(path: str, changed: int) -> str:
    return f"/static/{path}?v={hashlib.sha256((STATIC / path).read_bytes()).hexdigest()[:10]}"


def asset(path: str) -> str:
    """The address of a file under static/, which changes when the file does."""
    return _asset(path, (STATIC / path).stat().st_mtime_ns)


@cache
def jinja_environment() -> Environment:
    made = Environment(loader=FileSystemLoader(HERE / "templates"), autoescape=True,
                       undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    made.filters.update(num=num, dur=dur, ago=ago, size=format_bytes, share=format_share)
    made.globals.update(asset=asset, nav=NAV, plot=svg.Plot, spread=svg.spread, ticks=svg.axis_ticks, zip=zip)
    return made


def render_template(request: Request, template: str, context: JsonDict) -> str:
    theme = request.cookies.get("theme", "")
    here = {"request": request, "path": request.url.path, "nonce": getattr(request.state, "nonce", ""),
            "theme": theme if theme in ("light", "dark") else "",
            "exported": request.headers.get("x-postgrad-export") == "1", "policy": EXPORT_POLICY,
            "engine": request.headers.get("x-postgrad-engine") == "1", "engine_policy": ENGINE_POLICY}
    return jinja_environment().get_template(template).render(here | context)


def full_page(request: Request, template: str, *, status: int = 200, **context: object) -> HTMLResponse:
    """A whole page: a template that extends base.html."""
    return HTMLResponse(render_template(request, template, context), status)


def fragment(request: Request, template: str, *, status: int = 200, **context: object) -> HTMLResponse:
    """A part of a page, to be morphed in."""
    return HTMLResponse(render_template(request, template, context), status)


def wants_fragment(request: Request) -> bool:
    return request.headers.get("hx-request") == "true"


async def form_fields(request: Request, limit: int = 1_000_000) -> dict[str, str]:
    """The fields of an urlencoded body; of a repeated name, the last. More than `limit` bytes are refused."""
    return dict(await form_items(request, limit))


async def form_items(request: Request, limit: int = 1_000_000) -> list[tuple[str, str]]:
    """The same, in order, repeated names and all."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind != "application/x-www-form-urlencoded":
        raise HTTPException(415, "A form is sent as application/x-www-form-urlencoded, not as "
                            f"{kind or 'nothing'}.")
    body = bytearray()
    try:
        async with asyncio.timeout(PATIENCE):
            async for part in request.stream():
                body += part
                if len(body) > limit:
                    raise HTTPException(413, f"This is longer than {limit:,} bytes, the most that is taken "
                                             "here.")
    except TimeoutError:
        raise HTTPException(408, f"The form did not come within {PATIENCE:g} seconds.") from None
    except ClientDisconnect:
        raise HTTPException(400, "The connection was closed before the form had come.") from None
    try:
        return parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=1000, errors="strict")
    except ValueError as error:
        raise HTTPException(400, f"This is not a form that can be read ({error}).") from None


# objects and access

@contextmanager
def open_store(request: Request) -> Iterator[Store | None]:
    """The store, or None where there is none yet: looking at a page makes no file."""
    path = request.app.state.store
    if not path.is_file():
        yield None
    else:
        with Store.open(path, create=False) as store:
            yield store


def app_object(request: Request, name: str, make: Callable[[Path], T]) -> T:
    """What belongs to the app as long as it runs, made when it is first needed."""
    state = request.app.state
    with _MAKING:
        if not hasattr(state, name):
            setattr(state, name, make(state.store))
    made: T = getattr(state, name)
    return made


def why_closed(request: Request, why: str) -> str:
    """Whatever runs code of the asker's choice is closed where other machines can reach the port:
    the sentence, or ""."""
    return "" if request.app.state.loopback else (
        f"{why}, so this is switched off while the studio listens to other machines: start it without "
        "--host to use it.")


def require_own_machine(request: Request, why: str) -> None:
    if said := why_closed(request, why):
        raise HTTPException(403, said)


def form_handler(act: Callable[[Request, ImmutableMultiDict[str, str]], Response],
                 limit: int = 1_000_000) -> Callable[[Request], Awaitable[Response]]:
    """A handler of forms whose work is done in a thread; fields["x"] is the last x."""
    async def handler(request: Request) -> Response:
        return await run_in_threadpool(act, request, ImmutableMultiDict(await form_items(request, limit)))
    return handler

"""The JSON body of a request: read within limits, each field by its type, unknown fields refused by name."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn, TypeVar, overload

from starlette.concurrency import run_in_threadpool
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from postgrad.system.json_text import FieldTwice, shorten_value, strict_json

TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error",
         429: "rate_limit_error", 500: "server_error", 503: "overloaded_error"}


class Refusal(Exception):
    """A request that is refused. param: the field at fault; code: OpenAI's error code."""

    def __init__(self, sentence: str, status: int = 400, *, param: str | None = None,
                 code: str | None = None):
        super().__init__(sentence)
        self.sentence, self.status, self.param, self.code = sentence, status, param, code

    def body(self) -> dict[str, object]:
        kind = TYPES.get(self.status, "invalid_request_error")
        return {"error": {"message": self.sentence, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        headers = {"Retry-After": "1"} if self.status in (429, 503) else None
        return JSONResponse(self.body(), self.status, headers=headers)


LARGEST = 4 * 2**20  # bytes of a body
PATIENCE = 30.0      # seconds in which it has to come
LONG = 20_000        # bytes or characters from which it is read, or tokenized, beside the event loop
MISSING = object()
T = TypeVar("T")
D = TypeVar("D")
KINDS: dict[type, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "a text",
                          list: "a list", dict: "an object"}


class RequestBody:
    """Fields that are taken one by one; `done` refuses those that nobody took.

    body.take("seed", int, None, low=0) -> its value, None where it is missing or null; a Refusal that names
    the field where it is no whole number or too small.
    """

    def __init__(self, fields: Mapping[str, Any], place: str = ""):
        self.left, self.place, self.known = dict(fields), place, set[str]()

    @overload
    def take(self, name: str, kind: type[T], *, low: float = ..., high: float = ...) -> T: ...

    @overload
    def take(self, name: str, kind: type[T], default: D, *, low: float = ..., high: float = ...) -> T | D: ...

    def take(self, name: str, kind: type[T], default: object = MISSING, *, low: float = -math.inf,
             high: float = math.inf) -> object:
        """A field; without a default it has to be there."""
        self.known.add(name)
        value = self.left.pop(name, None)
        if value is None:
            if default is MISSING:
                self.refuse(name, f"has to be given, as {KINDS[kind]}")
            return default
        if kind is float and type(value) is int and abs(value) < 2**53:
            value = float(value)
        if type(value) is not kind:
            self.refuse(name, f"is {shorten_value(value)}, and has to be {KINDS[kind]}")
        if isinstance(value, str):
            check_text(value, self.place + name)
        if isinstance(value, int | float) and kind is not bool and not low <= value <= high:
            self.refuse(name, f"is {shorten_value(value)}, and has to be {range_text(low, high)}")
        return value

    def texts(self, name: str, most: int) -> tuple[str, ...]:
        """A text or a list of texts, none of them empty."""
        self.known.add(name)
        value = self.left.pop(name, None)
        listed = [] if value is None else [value] if isinstance(value, str) else value
        if not isinstance(listed, list) or not all(isinstance(x, str) and x for x in listed):
            self.refuse(name, f"is {shorten_value(value)}, and has to be a text or a list of texts, none "
                              "empty")
        if len(listed) > most:
            self.refuse(name, f"has {len(listed)} texts, and {most} are taken at most")
        for text in listed:
            check_text(text, self.place + name)
        return tuple(listed)

    def stream_options(self) -> tuple[bool, bool]:
        """The fields stream and stream_options.include_usage."""
        stream = self.take("stream", bool, False)
        options = RequestBody(self.take("stream_options", dict, {}) if stream else {}, "stream_options.")
        usage = options.take("include_usage", bool, False)
        options.done()
        return stream, usage

    def done(self, neutral: Mapping[str, Sequence[object]] = {}) -> None:  # noqa: B006 (never changed)
        """Refuses fields that nobody took. neutral: values of fields that change nothing."""
        for name, value in self.left.items():
            values = neutral.get(name, ())
            if name in neutral and (value is None or any(same_json(value, x) for x in values)):
                continue
            if name in neutral:
                allowed = f", or give {shorten_value(values[0])}" if values else ""
                self.refuse(name, f"is {shorten_value(value)}, which this server does not honour: "
                                  f"leave it out{allowed}")
            near = get_close_matches(name, self.known, 1)
            self.refuse(name, "is not honoured by this server: " + (f"if {near[0]} is meant, write it so"
                                                                    if near else "leave it out"))

    def refuse(self, name: str, what: str) -> NoReturn:
        field = self.place + name
        raise Refusal(f"{shorten_value(field, quote=False)} {what}.", param=field[:100])


def same_json(a: object, b: object) -> bool:
    return a == b and isinstance(a, bool) == isinstance(b, bool)


def range_text(low: float, high: float) -> str:
    if high == math.inf:
        return f"at least {low:g}"
    return f"from {low:g} to {high:g}" if low > -math.inf else f"at most {high:g}"


def check_text(text: str, name: str) -> None:
    """Half of a surrogate pair is JSON, and no text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Refusal(f"{name} holds half a character (a lone surrogate), which is no text.",
                      param=name[:100]) from None


async def read_body(request: Request) -> RequestBody:
    """The JSON object of a request."""
    kind = request.headers.get("content-type", "application/json").split(";")[0].strip().lower()
    if kind != "application/json":
        raise Refusal(f"the body is {shorten_value(kind)}, and has to be application/json.", 415)
    body = bytearray()
    try:
        async with asyncio.timeout(PATIENCE):
            async for part in request.stream():
                body += part
                if len(body) > LARGEST:
                    raise Refusal(f"the body has over {LARGEST:,} bytes, the most that is read.", 413)
    except TimeoutError:
        raise Refusal(f"the body did not come within {PATIENCE:g} seconds.", 408) from None
    except ClientDisconnect:
        raise Refusal("the connection was closed before the body had come.", 400) from None
    return parse_body(body) if len(body) < LONG else await run_in_threadpool(parse_body, body)


def parse_body(body: bytes | bytearray) -> RequestBody:
    """The JSON object of a body."""
    try:
        fields = strict_json(body, surrogates=True)
    except FieldTwice as error:
        raise Refusal(f"{error}.", param=error.name[:100]) from None
    except ValueError as error:
        raise Refusal(f"the body is no JSON: {' '.join(str(error).split())[:200]}.") from None
    if not isinstance(fields, dict):
        raise Refusal(f"the body is {shorten_value(fields)}, and has to be an object.")
    return RequestBody(fields)

"""Responses that take time: complete or as server-sent events, cancelled when the client disconnects."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from postgrad.serving.request_body import Refusal

SLOW = 60.0  # seconds in which a reader has to take what was sent
T = TypeVar("T")


class ConnectionClosed(Exception):
    """The client has closed its connection."""


async def await_while_connected(receive: Receive, work: Awaitable[T]) -> T:
    """The result of the work; it is cancelled, with ConnectionClosed, when the client disconnects."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(await_disconnect(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ConnectionClosed
    finally:
        for other in (task, gone):
            other.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def await_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


class EventStream(Response):
    """Objects as server-sent events, `data: {...}`, ended by `data: [DONE]`.

    ended: called when all were sent, or when the client has disconnected or does not read. explain: an error
    as it is sent.
    """

    def __init__(self, objects: AsyncIterator[dict[str, Any]], ended: Callable[[], None],
                 explain: Callable[[Exception], Refusal]):
        self.objects, self.ended, self.explain = objects, ended, explain
        self.status_code, self.background = 200, None
        self.init_headers({"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-store"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await await_while_connected(receive, self.run(send))
        except (ConnectionClosed, TimeoutError, OSError):
            return  # the client is gone
        finally:
            self.ended()

    async def run(self, send: Send) -> None:
        await send_in_time(send, {"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async for part in self.objects:
                await self.send_event(send, json.dumps(part, separators=(",", ":")))
        except (TimeoutError, OSError):
            raise
        except Exception as error:  # too late for a status: it goes into the stream
            await self.send_event(send, json.dumps(self.explain(error).body()))
        await self.send_event(send, "[DONE]")
        await send_in_time(send, {"type": "http.response.body", "body": b""})

    async def send_event(self, send: Send, text: str) -> None:
        await send_in_time(send, {"type": "http.response.body", "body": f"data: {text}\n\n".encode(),
                                  "more_body": True})


async def send_in_time(send: Send, message: Message) -> None:
    async with asyncio.timeout(SLOW):
        await send(message)


async def await_unless_closed(request: Request, work: Awaitable[T], ended: Callable[[], None]) -> T:
    """The result of the work; `ended` is called in any case."""
    try:
        return await await_while_connected(request.receive, work)
    except ConnectionClosed:
        raise Refusal("the connection was closed.", 499) from None
    finally:
        ended()

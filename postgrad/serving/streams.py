"""Answers that take time: whole or as server-sent events, broken off when nobody is there to read them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from postgrad.serving.errors import Refusal

SLOW = 60.0  # seconds in which a reader has to take what was sent
T = TypeVar("T")


class Gone(Exception):
    """The client has closed its connection."""


async def while_there(receive: Receive, work: Awaitable[T]) -> T:
    """What the work gives; it is broken off with Gone when the client leaves."""
    task, gone = asyncio.ensure_future(work), asyncio.ensure_future(departure(receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Gone
    finally:
        for other in (task, gone):
            other.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def departure(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


class Events(Response):
    """Objects as server-sent events, `data: {...}`, ended by `data: [DONE]`.

    ended: called when all were sent, or when the client has left or does not read.
    """

    def __init__(self, objects: AsyncIterator[dict], ended: Callable[[], None], explain: Callable):
        self.objects, self.ended, self.explain = objects, ended, explain
        self.status_code, self.background = 200, None
        self.init_headers({"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-store"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await while_there(receive, self.run(send))
        except (Gone, TimeoutError, OSError):
            return  # nobody reads any more
        finally:
            self.ended()

    async def run(self, send: Send) -> None:
        await timely(send, {"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            async for part in self.objects:
                await self.say(send, json.dumps(part, separators=(",", ":")))
        except (TimeoutError, OSError):
            raise
        except Exception as error:  # too late for a status: it is told in the stream
            await self.say(send, json.dumps(self.explain(error).body()))
        await self.say(send, "[DONE]")
        await timely(send, {"type": "http.response.body", "body": b""})

    async def say(self, send: Send, text: str) -> None:
        await timely(send, {"type": "http.response.body", "body": f"data: {text}\n\n".encode(),
                            "more_body": True})


async def timely(send: Send, message: Message) -> None:
    async with asyncio.timeout(SLOW):
        await send(message)


async def whole(request: Request, work: Awaitable[T], ended: Callable[[], None]) -> T:
    """What the work gives; `ended` is called whatever becomes of it."""
    try:
        return await while_there(request.receive, work)
    except Gone:
        raise Refusal("the connection was closed.", 499) from None
    finally:
        ended()

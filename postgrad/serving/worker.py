"""The thread that writes: it owns the slots, takes what is asked between two tokens, and tells what it wrote.

Everything that touches the model runs here, so requests, weights and dropped connections can't meet in the
middle of a step. The event loop asks (`ask`, `score`, `drop`, `call`) and is told by `call_soon_threadsafe`,
once a step.
"""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from postgrad.sampling import Chosen, Row, Slots
from postgrad.sampling import Request as RowRequest
from postgrad.serving.errors import Refusal


class Asked:
    """The rows of one request, and what the event loop has been told of them so far.

    async for i, chosen in asked: the token of row i, as it comes; where no pieces were asked for, only the
    last one of each row.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int):
        self.loop, self.count, self.rows = loop, count, list[Row]()
        self.told: asyncio.Queue[tuple[int, Chosen] | Exception] = asyncio.Queue()
        self.open = count  # rows that have not ended
        self.dropped = False

    async def __aiter__(self):
        while self.open or not self.told.empty():
            found = await self.told.get()
            if isinstance(found, Exception):
                raise found
            yield found

    async def ended(self) -> list[Row]:
        async for _ in self:
            continue
        return self.rows


class Worker:
    """One model's slots and the thread that writes in them. waiting: how many rows may wait for one."""

    def __init__(self, slots: Slots, *, waiting: int):
        self.slots, self.most = slots, slots.rows + waiting
        self.open = 0  # rows asked for that have not ended, counted by the event loop
        self.asked: dict[Row, tuple[Asked, int]] = {}
        self.thread = threading.Thread(target=self.work, name="postgrad-serve", daemon=True)
        self.stopping = False
        self.inbox: queue.SimpleQueue[Callable[[], Any]] = queue.SimpleQueue()

    @property
    def version(self) -> int:
        return self.slots.version

    @property
    def vocab_size(self) -> int:
        return self.slots.model.config.vocab_size

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> None:
        self.stopping = True
        self.inbox.put(lambda: None)
        self.thread.join()

    # called by the event loop

    def ask(self, prompt: Sequence[int], requests: Sequence[RowRequest]) -> Asked:
        """Rows after a prompt; refused where too many wait already."""
        self.admit(len(requests))
        asked = Asked(asyncio.get_running_loop(), len(requests))

        def add() -> None:
            if not asked.dropped:
                asked.rows = self.slots.add(prompt, requests)
                self.asked |= {row: (asked, i) for i, row in enumerate(asked.rows)}
        self.inbox.put(self.guarded(asked, add))
        return asked

    async def call(self, do: Callable[[], Any]) -> Any:
        """What a function returns, or raises, that is called between two steps."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future = loop.create_future()

        def answer() -> None:
            try:
                value, error = do(), None
            except Exception as fault:  # whatever it is, it is told to whoever called
                value, error = None, fault
            loop.call_soon_threadsafe(settle, future, value, error)
        self.inbox.put(answer)
        return await future

    async def score(self, tokens: Sequence[int], top: int) -> list[Chosen]:
        self.admit(1)
        try:
            return await self.call(lambda: self.slots.score(tokens, top))
        finally:
            self.open -= 1

    def drop(self, asked: Asked) -> None:
        """Nobody waits for it any more."""
        if asked.open and not asked.dropped:
            asked.dropped = True
            self.open -= asked.open
            asked.open = 0
            self.inbox.put(lambda: self.forget(asked.rows))

    def admit(self, rows: int) -> None:
        if self.stopping:
            raise Refusal("the server is being stopped.", 503)
        if self.open + rows > self.most:
            raise Refusal(f"{self.open} replies are being written or wait, and there is room for "
                          f"{self.most}: ask again in a moment.", 503, code="queue_full")
        self.open += rows

    # on the thread

    def work(self) -> None:
        while not self.stopping:
            for do in self.orders():
                do()
            if self.slots.busy:
                try:
                    self.tell(self.slots.step())
                except Exception as error:  # a model that has diverged, say: those who wait are told
                    self.fail(error)

    def orders(self) -> Iterator[Callable[[], Any]]:
        """What has been asked; while there is nothing to write, the next one is waited for."""
        if not self.slots.busy:
            yield self.inbox.get()
        while not self.inbox.empty():
            yield self.inbox.get()

    def tell(self, said: list[tuple[Row, Chosen]]) -> None:
        news: dict[asyncio.AbstractEventLoop, list] = {}
        for row, chosen in said:
            if row.end or row.request.pieces:
                asked, i = self.asked.pop(row) if row.end else self.asked[row]
                news.setdefault(asked.loop, []).append((asked, i, chosen, row.end))
        for loop, listed in news.items():
            loop.call_soon_threadsafe(self.hear, listed)

    def hear(self, news: list[tuple[Asked, int, Chosen, str | None]]) -> None:
        """In the event loop: what one step wrote."""
        for asked, i, chosen, end in news:
            if not asked.dropped:
                asked.told.put_nowait((i, chosen))
                if end:
                    asked.open -= 1
                    self.open -= 1

    def forget(self, rows: Sequence[Row]) -> None:
        for row in rows:
            self.slots.drop(row)
            self.asked.pop(row, None)

    def fail(self, error: Exception) -> None:
        traceback.print_exception(error, file=sys.stderr)
        lost = {id(asked): asked for asked, _ in self.asked.values()}
        self.forget([*self.asked])
        for asked in lost.values():
            asked.loop.call_soon_threadsafe(self.lose, asked, error)

    def lose(self, asked: Asked, error: Exception) -> None:
        """In the event loop: nothing more will come."""
        if not asked.dropped:
            asked.told.put_nowait(error)
            self.open -= asked.open
            asked.dropped = True

    def guarded(self, asked: Asked, do: Callable[[], None]) -> Callable[[], None]:
        def guarded() -> None:
            try:
                do()
            except Exception as error:
                asked.loop.call_soon_threadsafe(self.lose, asked, error)
        return guarded


def settle(future: asyncio.Future, value: Any, error: Exception | None) -> None:
    if not future.done():
        future.set_result(value) if error is None else future.set_exception(error)

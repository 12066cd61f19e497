"""The served model, and the thread that decodes: it owns the request batch, takes orders between two steps,
and reports sampled tokens.

Everything that touches the model runs on this thread, so requests, weight updates and closed connections
cannot meet inside a step. The event loop calls `ask`, `score`, `drop` and `call`, and is answered by
`call_soon_threadsafe`, once a step.
"""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
import time
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

from postgrad import __version__
from postgrad.models.chat import Chat
from postgrad.sampling import Request, RequestBatch, RequestSequence, SampledToken
from postgrad.sampling.sampler import DecodableModel
from postgrad.serving.request_body import Refusal
from postgrad.serving.session_recorder import Recorder

T = TypeVar("T")
Report = tuple["PendingRequest", int, list[SampledToken], str | None]


class PendingRequest:
    """The sequences of one request, as the event loop sees them.

    async for i, sampled in pending: tokens of sequence i as they come; without `stream`, only its last ones.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int):
        self.loop, self.count, self.sequences = loop, count, list[RequestSequence]()
        self.reports: asyncio.Queue[tuple[int, list[SampledToken]] | Exception] = asyncio.Queue()
        self.open = count  # sequences that have not ended
        self.dropped = False

    async def __aiter__(self) -> AsyncIterator[tuple[int, list[SampledToken]]]:
        while self.open or not self.reports.empty():
            report = await self.reports.get()
            if isinstance(report, Exception):
                raise report
            yield report

    async def finished(self) -> list[RequestSequence]:
        async for _ in self:
            continue
        return self.sequences


class DecodeWorker:
    """One model's request batch and the thread that decodes it. waiting: how many sequences may wait for a
    slot."""

    def __init__(self, batch: RequestBatch, *, waiting: int):
        self.batch, self.most = batch, batch.rows + waiting
        self.open = 0  # sequences asked for that have not ended, counted by the event loop
        self.pending: dict[RequestSequence, tuple[PendingRequest, int]] = {}
        self.thread = threading.Thread(target=self.work, name="postgrad-serve", daemon=True)
        self.stopping = False
        self.inbox: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()

    @property
    def version(self) -> int:
        return self.batch.version

    @property
    def vocab_size(self) -> int:
        return int(self.batch.model.config.vocab_size)

    def start(self) -> None:
        self.thread.start()

    def stop(self) -> None:
        self.stopping = True
        self.inbox.put(lambda: None)
        self.thread.join()

    # called by the event loop

    def ask(self, prompt: Sequence[int], requests: Sequence[Request]) -> PendingRequest:
        """Asks for sequences after a prompt; refused where too many wait already."""
        self.reserve(len(requests))
        pending = PendingRequest(asyncio.get_running_loop(), len(requests))

        def add() -> None:
            if pending.dropped:
                return
            try:
                pending.sequences = self.batch.add(prompt, requests)
                self.pending |= {sequence: (pending, i) for i, sequence in enumerate(pending.sequences)}
            except Exception as error:  # raised to whoever waits
                pending.loop.call_soon_threadsafe(self.hear_failure, pending, error)
        self.inbox.put(add)
        return pending

    async def call(self, function: Callable[[], T]) -> T:
        """Calls a function on the thread, between two steps -> its result or exception."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def settle(settled: Callable[[], None]) -> None:
            if not future.done():
                settled()

        def answer() -> None:
            try:
                settled = partial(future.set_result, function())
            except Exception as fault:  # raised to whoever called
                settled = partial(future.set_exception, fault)
            loop.call_soon_threadsafe(settle, settled)
        self.inbox.put(answer)
        return await future

    async def score(self, tokens: Sequence[int], top: int) -> list[SampledToken]:
        self.reserve(1)
        try:
            return await self.call(lambda: self.batch.score(tokens, top))
        finally:
            self.open -= 1

    def drop(self, pending: PendingRequest) -> None:
        """Cancels a request."""
        if pending.open and not pending.dropped:
            pending.dropped = True
            self.open -= pending.open
            pending.open = 0
            self.inbox.put(lambda: self.abort(pending.sequences))

    def reserve(self, rows: int) -> None:
        if self.stopping:
            raise Refusal("the server is being stopped.", 503)
        if self.open + rows > self.most:
            raise Refusal(f"{self.open} replies are being decoded or wait, and there is room for "
                          f"{self.most}: ask again in a moment.", 503, code="queue_full")
        self.open += rows

    # on the thread

    def work(self) -> None:
        while not self.stopping:
            for order in self.orders():
                order()
            if self.batch.busy:
                try:
                    self.report(self.batch.step())
                except Exception as error:  # a model that has diverged, say
                    self.fail(error)

    def orders(self) -> Iterator[Callable[[], object]]:
        """Orders of the event loop; blocks for the next one while there is nothing to decode."""
        if not self.batch.busy:
            yield self.inbox.get()
        while not self.inbox.empty():
            yield self.inbox.get()

    def report(self, sampled: list[tuple[RequestSequence, list[SampledToken]]]) -> None:
        reports: dict[asyncio.AbstractEventLoop, list[Report]] = {}
        for sequence, tokens in sampled:
            end = sequence.finish_reason
            if end or sequence.request.stream:
                pending, i = self.pending.pop(sequence) if end else self.pending[sequence]
                reports.setdefault(pending.loop, []).append((pending, i, tokens, end))
        for loop, listed in reports.items():
            loop.call_soon_threadsafe(self.hear, listed)

    def hear(self, reports: list[Report]) -> None:
        """In the event loop: the tokens of one step."""
        for pending, i, tokens, end in reports:
            if not pending.dropped:
                pending.reports.put_nowait((i, tokens))
                if end:
                    pending.open -= 1
                    self.open -= 1

    def abort(self, sequences: Sequence[RequestSequence]) -> None:
        for sequence in sequences:
            self.batch.abort(sequence)
            self.pending.pop(sequence, None)

    def fail(self, error: Exception) -> None:
        """Aborts every sequence; the error is raised to all that wait."""
        traceback.print_exception(error, file=sys.stderr)
        lost = {id(pending): pending for pending, _ in self.pending.values()}
        self.abort([*self.pending])
        for pending in lost.values():
            pending.loop.call_soon_threadsafe(self.hear_failure, pending, error)

    def hear_failure(self, pending: PendingRequest, error: Exception) -> None:
        """In the event loop: the request has failed."""
        if not pending.dropped:
            pending.reports.put_nowait(error)
            self.open -= pending.open
            pending.dropped = True


@dataclass(kw_only=True)
class ServedModel:
    """name: what clients call it. context: tokens of a prompt and its reply together. weights: the name that
    a training gave the weights in use, "" without one."""

    name: str
    chat: Chat
    worker: DecodeWorker
    context: int
    recorder: Recorder | None = None
    weights: str = ""
    began: int = field(default_factory=lambda: int(time.time()))

    @classmethod
    def of(cls, model: DecodableModel, chat: Chat, name: str, *, rows: int, context: int, waiting: int,
           version: int = 0) -> ServedModel:
        """Makes the KV cache of a model; its thread is started by the app."""
        batch = RequestBatch(model, chat, rows=rows, max_prompt_tokens=context, max_new_tokens=context,
                             positions=context)
        batch.version = version
        return cls(name=name, chat=chat, worker=DecodeWorker(batch, waiting=waiting), context=context)

    @property
    def version(self) -> int:
        """The optimizer step of the weights in use; 0 of a model that is no run's."""
        return self.worker.version

    def envelope(self, id: str, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        """The fields that every completion has."""
        return {"id": id, "object": kind, "created": int(time.time()), "model": self.name, "choices": choices,
                "system_fingerprint": f"postgrad-{__version__}-step-{self.version}",
                "policy_step": self.version}

    def check_name(self, name: str | None) -> None:
        if name is not None and name != self.name:
            raise Refusal(f"there is no model {name!r:.80}: this server has {self.name!r}.", 404,
                          param="model", code="model_not_found")

    def reply_room(self, prompt: list[int], asked: int | None, param: str) -> int:
        """The most tokens of a reply: as many as were asked for, or all that fit."""
        left = self.context - len(prompt)
        if not prompt:
            raise Refusal(f"{param} has no token: a model needs at least one.", param=param)
        if (asked or 0) > left or left < 1:
            wanted = f" and {asked} for the reply" if asked is not None else ""
            raise Refusal(f"{param} has {len(prompt)} tokens{wanted}, and the context is {self.context} "
                          "tokens: shorten it, or ask for a shorter reply.", param=param,
                          code="context_length_exceeded")
        return left if asked is None else asked

    def check_tokens(self, tokens: list[int], name: str) -> list[int]:
        most = self.worker.vocab_size
        bad = next((t for t in tokens if type(t) is not int or not 0 <= t < most), None)
        if bad is not None:
            raise Refusal(f"{name} holds {bad!r:.40}, and a token is a whole number from 0 to {most - 1}.",
                          param=name)
        return tokens

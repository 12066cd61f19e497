"""The served model, and the thread that decodes: it owns the request batch, takes orders between two steps,
and reports sampled tokens.

Everything that touches the model runs on this thread, so requests, weight updates and closed connections
cannot meet inside a step. The event loop calls `ask`, `score`, `drop` and `call`, and is answered through a
channel, once a step. HTTP in processes of its own (front.py) has channels over pipes.
"""

from __future__ import annotations

import asyncio
import queue
import sys
import threading
import time
import traceback
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, Protocol, TypeVar

from postgrad import __version__
from postgrad.models.chat import Chat
from postgrad.models.kernels.cpu import NoDistribution
from postgrad.resolve.handles import gpu_of
from postgrad.sampling import Request, RequestBatch, RequestSequence, SampledToken
from postgrad.sampling.sampler import DecodableModel
from postgrad.serving.request_body import Refusal
from postgrad.serving.session_recorder import Recorder

T = TypeVar("T")
Report = tuple["AskedRequest", int, list[SampledToken], str | None]


class Channel(Protocol):
    """The way from the decode thread to those who asked."""

    def deliver(self, reports: list[Report]) -> None: ...

    def fail(self, asked: AskedRequest, error: Exception) -> None: ...


class AskedRequest:
    """A request, as the decode thread sees it. stream: its tokens are reported as they come."""

    def __init__(self, channel: Channel | None, stream: bool):
        self.channel, self.stream, self.dropped = channel, stream, False
        self.batch: RequestBatch | None = None  # in which its sequences are decoded
        self.sequences: list[RequestSequence] = []


@dataclass(frozen=True)
class LoopChannel:
    """To an event loop of this process."""

    worker: DecodeWorker
    loop: asyncio.AbstractEventLoop

    def deliver(self, reports: list[Report]) -> None:
        self.loop.call_soon_threadsafe(self.worker.hear, reports)

    def fail(self, asked: AskedRequest, error: Exception) -> None:
        assert isinstance(asked, PendingRequest)
        self.loop.call_soon_threadsafe(self.worker.hear_failure, asked, error)


class PendingRequest(AskedRequest):
    """The sequences of one request, as the event loop sees them.

    async for i, sampled in pending: tokens of sequence i as they come; without `stream`, only its last ones.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, count: int, stream: bool = False,
                 channel: Channel | None = None):
        super().__init__(channel, stream)
        self.loop, self.count = loop, count
        self.reports: asyncio.Queue[tuple[int, list[SampledToken]] | Exception] = asyncio.Queue()
        self.open = count  # sequences that have not ended

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


class Worker(ABC):
    """What the routes ask of a model. most: sequences that may be decoded or wait at once."""

    def __init__(self, most: int):
        self.most, self.stopping = most, False
        self.open = 0  # sequences asked for that have not ended, counted by the event loop

    @property
    @abstractmethod
    def version(self) -> int:
        """Of the weights."""

    @property
    @abstractmethod
    def vocab_size(self) -> int: ...

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def stop(self) -> None: ...

    @abstractmethod
    def ask(self, prompt: Sequence[int], requests: Sequence[Request]) -> PendingRequest:
        """Asks for sequences after a prompt; refused where too many wait already."""

    def drop(self, pending: PendingRequest) -> None:
        """Cancels a request."""
        if pending.open and not pending.dropped:
            pending.dropped = True
            self.open -= pending.open
            pending.open = 0
            self.cancel(pending)

    @abstractmethod
    def cancel(self, pending: PendingRequest) -> None: ...

    async def score(self, tokens: Sequence[int], top: int) -> list[SampledToken]:
        """The model's own log-probs of these tokens."""
        self.reserve(1)
        try:
            return await self.scored(tokens, top)
        finally:
            self.open -= 1

    @abstractmethod
    async def scored(self, tokens: Sequence[int], top: int) -> list[SampledToken]: ...

    @abstractmethod
    async def health(self) -> dict[str, Any]:
        """Slots in all and free, how many sequences may wait for one, how many are decoded or wait, the
        version of the weights, the GPU."""

    def reserve(self, rows: int) -> None:
        if self.stopping:
            raise Refusal("the server is being stopped.", 503)
        if self.open + rows > self.most:
            raise Refusal(f"{self.open} replies are being decoded or wait, and there is room for "
                          f"{self.most}: ask again in a moment.", 429, code="queue_full")
        self.open += rows

    def put(self, pending: PendingRequest, i: int, tokens: list[SampledToken], end: str | None) -> None:
        """In the event loop: tokens of a sequence."""
        if not pending.dropped:
            pending.reports.put_nowait((i, tokens))
            if end:
                pending.open -= 1
                self.open -= 1

    def hear_failure(self, pending: PendingRequest, error: Exception) -> None:
        """In the event loop: the request has failed."""
        if not pending.dropped:
            pending.reports.put_nowait(error)
            self.open -= pending.open
            pending.dropped = True


class DecodeWorker(Worker):
    """A model's request batch and the thread that decodes it. waiting: how many sequences may wait for a
    slot. batches: this one, and others of the same thread."""

    def __init__(self, batch: RequestBatch, *, waiting: int):
        super().__init__(batch.rows + waiting)
        self.batch, self.batches = batch, [batch]
        self.pending: dict[RequestSequence, tuple[AskedRequest, int]] = {}
        self.thread = threading.Thread(target=self.work, name="postgrad-serve", daemon=True)
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
        self.reserve(len(requests))
        loop = asyncio.get_running_loop()
        pending = PendingRequest(loop, len(requests), requests[0].stream, LoopChannel(self, loop))
        self.inbox.put(partial(self.add, pending, prompt, requests))
        return pending

    def cancel(self, pending: PendingRequest) -> None:
        self.inbox.put(lambda: self.abort(pending.sequences))

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

    async def scored(self, tokens: Sequence[int], top: int) -> list[SampledToken]:
        return await self.call(lambda: self.batch.score(tokens, top))

    async def health(self) -> dict[str, Any]:
        return self.state()

    def state(self) -> dict[str, Any]:
        alive = self.thread.is_alive() and not self.stopping
        return {"status": "ok" if alive else "stopped", "policy_step": self.version,
                "gpu": gpu_of(self.batch.device), "slots": self.batch.rows,
                "free": len(self.batch.scheduler.free_slots), "queue": self.most - self.batch.rows,
                "asked": self.open}

    # on the thread

    def add(self, asked: AskedRequest, prompt: Sequence[int], requests: Sequence[Request],
            batch: RequestBatch | None = None) -> None:
        if asked.dropped:
            return
        try:
            asked.batch = batch or self.batch
            asked.sequences = asked.batch.add(prompt, requests)
            self.pending |= {sequence: (asked, i) for i, sequence in enumerate(asked.sequences)}
        except Exception as error:  # raised to whoever waits
            self.send_failure(asked, error)

    def work(self) -> None:
        while not self.stopping:
            for order in self.orders():
                order()
            for batch in [batch for batch in self.batches if batch.busy]:
                try:
                    self.report(batch.step())
                except Exception as error:  # a model that has diverged, say
                    row = error.row if isinstance(error, NoDistribution) else len(batch.active)
                    self.fail(error, batch.active[row: row + 1] or [
                        sequence for sequence, (asked, _) in self.pending.items() if asked.batch is batch])

    @property
    def busy(self) -> bool:
        return any(batch.busy for batch in self.batches)

    def orders(self) -> Iterator[Callable[[], object]]:
        """Orders of the event loop; blocks for the next one while there is nothing to decode."""
        if not self.busy:
            yield self.inbox.get()
        while not self.inbox.empty():
            yield self.inbox.get()

    def report(self, sampled: list[tuple[RequestSequence, list[SampledToken]]]) -> None:
        reports: dict[Channel, list[Report]] = {}
        for sequence, tokens in sampled:
            if sequence not in self.pending:  # another one of its request has failed
                continue
            end, (asked, i) = sequence.finish_reason, self.pending[sequence]
            if sequence.fault:
                self.fail(sequence.fault, [sequence])
                continue
            if end:
                del self.pending[sequence]
            if asked.channel and (end or asked.stream):
                reports.setdefault(asked.channel, []).append((asked, i, tokens, end))
        for channel, listed in reports.items():
            channel.deliver(listed)

    def hear(self, reports: list[Report]) -> None:
        """In the event loop: the tokens of one step."""
        for asked, i, tokens, end in reports:
            assert isinstance(asked, PendingRequest)
            self.put(asked, i, tokens, end)

    def abort(self, sequences: Sequence[RequestSequence]) -> None:
        for sequence in sequences:
            if sequence in self.pending:
                asked, _ = self.pending.pop(sequence)
                assert asked.batch, "it was added to one"
                asked.batch.abort(sequence)

    def fail(self, error: Exception, sequences: Sequence[RequestSequence]) -> None:
        """Aborts the requests of these sequences; the error is raised to who waits for them."""
        traceback.print_exception(error, file=sys.stderr)
        lost = {id(asked): asked for asked, _ in map(self.pending.__getitem__, sequences)}
        for asked in lost.values():
            self.abort(asked.sequences)
            self.send_failure(asked, error)

    @staticmethod
    def send_failure(asked: AskedRequest, error: Exception) -> None:
        if asked.channel:
            asked.channel.fail(asked, error)


@dataclass(kw_only=True)
class ServedModel:
    """name: what clients call it. context: tokens of a prompt and its reply together. weights: the name that
    a training gave the weights in use, "" without one."""

    name: str
    chat: Chat
    worker: Worker
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

    @cached_property
    def longest_token(self) -> int:
        """Characters of the longest token, as the tokenizer writes it."""
        return max(map(len, self.chat.tokenizer.get_vocab()), default=1)

    def check_length(self, text: str, param: str) -> None:
        """Refuses, before it is tokenized, a text that is longer than a context of the longest tokens."""
        most = self.context * self.longest_token
        if len(text) > most:
            raise Refusal(f"{param} has {len(text):,} characters, and the context of {self.context:,} tokens "
                          f"holds at most {most:,}: shorten it.", param=param, code="context_length_exceeded")

    def check_tokens(self, tokens: list[int], name: str) -> list[int]:
        most = self.worker.vocab_size
        bad = next((t for t in tokens if type(t) is not int or not 0 <= t < most), None)
        if bad is not None:
            raise Refusal(f"{name} holds {bad!r:.40}, and a token is a whole number from 0 to {most - 1}.",
                          param=name)
        return tokens

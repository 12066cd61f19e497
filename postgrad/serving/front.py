"""HTTP in processes of its own: a front has the routes, the templates and the detokenizing; the model's
process has the decode thread, which meets no other work.

A front sends requests over a pipe, under numbers of its own, and is sent their tokens: of one that streams
after every burst, of others when a sequence has ended. All fronts listen on one port (SO_REUSEPORT), among
which the kernel divides connections.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import queue
import socket
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from multiprocessing import get_context
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, NamedTuple

from postgrad.models.chat import Chat
from postgrad.sampling import Request, RequestSequence, SampledToken
from postgrad.sampling.detokenizer import IncrementalDetokenizer
from postgrad.sampling.scheduler import CachedPrompt
from postgrad.serving.app import create_app
from postgrad.serving.decode_worker import (
    AskedRequest,
    DecodeWorker,
    PendingRequest,
    Report,
    ServedModel,
    Worker,
)
from postgrad.serving.weight_updates import WeightFeed, follow_weights
from postgrad.system.web_server import BACKLOG, http_server


class FrontSettings(NamedTuple):
    """What a front knows of the model. chat: a folder that holds it."""

    name: str
    chat: str
    context: int
    vocab_size: int
    most: int
    token: str | None
    address: tuple[str, int]


class Update(NamedTuple):
    """Tokens of a sequence: all of them when it has ended, or those since the last update."""

    number: int
    i: int
    tokens: tuple[int, ...]
    logps: tuple[float, ...]
    tops: tuple[tuple[tuple[int, float], ...], ...] | None
    weight_versions: list[tuple[int, int]]
    cached: int  # tokens of the prompt that were in the cache


# in the model's process

class FrontRequest(AskedRequest):
    def __init__(self, channel: FrontChannel, number: int, stream: bool):
        super().__init__(channel, stream)
        self.number = number


class FrontChannel:
    """The requests of one front. Two threads read and write, so that the decode thread never waits for it."""

    def __init__(self, served: ServedModel, worker: DecodeWorker, connection: Connection):
        self.served, self.worker, self.connection = served, worker, connection
        self.asked: dict[int, FrontRequest] = {}
        self.outbox: queue.SimpleQueue[tuple[Any, ...] | None] = queue.SimpleQueue()
        for target in (self.read, self.write):
            threading.Thread(target=target, daemon=True).start()

    def read(self) -> None:
        try:
            while True:
                what, number, *rest = self.connection.recv()
                getattr(self, f"on_{what}")(number, *rest)
        except (EOFError, OSError):  # the front has ended
            for number in [*self.asked]:
                self.on_drop(number)
            self.outbox.put(None)

    def write(self) -> None:
        try:
            while message := self.outbox.get():
                self.connection.send(message)
        except OSError:  # the reader hears of it too
            return

    def on_ask(self, number: int, prompt: list[int], requests: list[Request]) -> None:
        asked = self.asked[number] = FrontRequest(self, number, requests[0].stream)
        # the front detokenizes; here only what may end at a text
        quiet = [replace(request, stream=False) for request in requests]
        self.worker.inbox.put(lambda: self.worker.add(asked, prompt, quiet))

    def on_drop(self, number: int) -> None:
        if asked := self.asked.pop(number, None):
            asked.dropped = True
            self.worker.inbox.put(lambda: self.worker.abort(asked.sequences))

    def on_score(self, number: int, tokens: list[int], top: int) -> None:
        self.worker.inbox.put(lambda: self.answer(number, lambda: self.worker.batch.score(tokens, top)))

    def on_health(self, number: int) -> None:
        self.answer(number, self.worker.state)

    def answer(self, number: int, function: Callable[[], object]) -> None:
        try:
            self.outbox.put(("result", number, function()))
        except Exception as error:  # raised to whoever asked
            self.outbox.put(("failure", number, sendable(error)))

    def deliver(self, reports: list[Report]) -> None:
        updates: list[Update] = []
        for asked, i, tokens, end in reports:
            assert isinstance(asked, FrontRequest)
            sequence = asked.sequences[i]
            sampled = tokens if asked.stream else sequence.sampled
            chosen, logps, tops, _ = zip(*sampled, strict=True)
            updates.append(Update(asked.number, i, chosen, logps,
                                  tops if sequence.request.top_logprobs else None,
                                  list(sequence.weight_versions), sequence.prompt.begun))
            if end and all(s.finish_reason for s in asked.sequences):
                self.asked.pop(asked.number, None)
        self.outbox.put(("updates", self.worker.version, self.served.weights, updates))

    def fail(self, asked: AskedRequest, error: Exception) -> None:
        assert isinstance(asked, FrontRequest)
        self.asked.pop(asked.number, None)
        self.outbox.put(("failure", asked.number, sendable(error)))


def sendable(error: Exception) -> Exception:
    """The error, or one that says its kind where it can't be pickled."""
    try:
        ForkingPickler.loads(ForkingPickler.dumps(error))  # as the pipe will
    except Exception:  # an error's class may do anything
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def serve_by_fronts(served: ServedModel, fronts: int, sock: socket.socket, *, token: str | None,
                    source: WeightFeed | None, every: float, ready: Callable[[], None]) -> None:
    """Serves a model through so many processes until one of them ends. sock: bound to the port, not
    listening. ready: called once all listen."""
    context, processes, worker = get_context("spawn"), list[BaseProcess](), served.worker
    assert isinstance(worker, DecodeWorker), "the model is in this process"
    with tempfile.TemporaryDirectory(prefix="postgrad-front-") as folder:
        served.chat.save(Path(folder))
        settings = FrontSettings(served.name, folder, served.context, worker.vocab_size,
                                 -(-worker.most // fronts), token, sock.getsockname()[:2])
        worker.start()
        try:
            links = []
            for _ in range(fronts):
                ours, theirs = context.Pipe()
                processes.append(context.Process(target=run_front, args=(settings, theirs), daemon=True))
                processes[-1].start()
                theirs.close()
                links.append(ours)
            for link in links:
                link.recv()  # it listens
                FrontChannel(served, worker, link)
            ready()
            asyncio.run(until_one_ends(served, worker, processes, source, every))
        finally:
            for process in processes:
                process.terminate()
            for process in processes:
                process.join(5)
            worker.stop()


async def until_one_ends(served: ServedModel, worker: DecodeWorker, processes: list[BaseProcess],
                         source: WeightFeed | None, every: float) -> None:
    following = asyncio.create_task(follow_weights(served, worker, source, every)) if source else None
    while all(process.is_alive() for process in processes):
        await asyncio.sleep(0.5)
    if following:
        following.cancel()
    raise ChildProcessError("a process that serves HTTP has ended: see above, and start the server again.")


# in a front

class FrontWorker(Worker):
    """The model of another process, behind a pipe."""

    def __init__(self, connection: Connection, settings: FrontSettings):
        super().__init__(settings.most)
        self.connection, self.settings = connection, settings
        self.step, self.numbers = 0, itertools.count()
        self.asked: dict[int, PendingRequest] = {}
        self.awaited: dict[int, asyncio.Future[Any]] = {}
        self.served: ServedModel | None = None
        self.left: Callable[[], None] = lambda: None  # called when the model's process has ended

    @property
    def version(self) -> int:
        return self.step

    @property
    def vocab_size(self) -> int:
        return self.settings.vocab_size

    def start(self) -> None:
        loop = asyncio.get_running_loop()

        def read() -> None:
            try:
                while True:
                    what, *rest = self.connection.recv()
                    loop.call_soon_threadsafe(getattr(self, f"on_{what}"), *rest)
            except (EOFError, OSError, RuntimeError):  # the model's process, or this loop, has ended
                self.left()

        threading.Thread(target=read, daemon=True).start()

    def stop(self) -> None:
        self.stopping = True

    def ask(self, prompt: Sequence[int], requests: Sequence[Request]) -> PendingRequest:
        self.reserve(len(requests))
        number, first = next(self.numbers), requests[0]
        pending = PendingRequest(asyncio.get_running_loop(), len(requests), first.stream)
        cached, wanted = CachedPrompt(list(prompt), len(requests)), first.stream or first.sampling.stop
        decode = self.served.chat.decode if self.served else None
        assert decode, "a front serves one model"
        pending.sequences = [RequestSequence(
            cached, request=request, seeds=(request.seed,),
            detokenizer=IncrementalDetokenizer(decode, request.sampling.stop) if wanted else None)
            for request in requests]
        self.asked[number] = pending
        self.connection.send(("ask", number, cached.tokens, list(requests)))
        return pending

    def cancel(self, pending: PendingRequest) -> None:
        number = next((n for n, other in self.asked.items() if other is pending), None)
        if number is not None:
            del self.asked[number]
            self.connection.send(("drop", number))

    async def scored(self, tokens: Sequence[int], top: int) -> list[SampledToken]:
        scored: list[SampledToken] = await self.result("score", list(tokens), top)
        return scored

    async def health(self) -> dict[str, Any]:
        state: dict[str, Any] = await self.result("health")
        return state

    async def result(self, what: str, *words: object) -> Any:
        number = next(self.numbers)
        self.awaited[number] = asyncio.get_running_loop().create_future()
        self.connection.send((what, number, *words))
        return await self.awaited[number]

    # in the event loop, of what the model's process sends

    def on_updates(self, step: int, weights: str, updates: list[Update]) -> None:
        self.step = step
        if self.served:
            self.served.weights = weights
        for number, i, tokens, logps, tops, versions, cached in updates:
            if pending := self.asked.get(number):
                sequence = pending.sequences[i]
                sequence.prompt.begun = cached
                sampled = SampledToken.listed(tokens, logps, tops)
                try:
                    sampled = sequence.take(sampled, step)
                except Exception as error:  # of the detokenizer: raised to whoever asked
                    self.cancel(pending)
                    self.hear_failure(pending, error)
                    continue
                sequence.weight_versions = versions
                self.put(pending, i, sampled, sequence.finish_reason)
                if not pending.open:
                    del self.asked[number]

    def on_result(self, number: int, result: object) -> None:
        if not (future := self.awaited.pop(number)).done():
            future.set_result(result)

    def on_failure(self, number: int, error: Exception) -> None:
        if future := self.awaited.pop(number, None):
            if not future.done():
                future.set_exception(error)
        elif pending := self.asked.pop(number, None):
            self.hear_failure(pending, error)


def run_front(settings: FrontSettings, connection: Connection) -> None:
    """A process that serves HTTP for a model in another one, until that ends."""
    os.setsid()  # Ctrl-C is for the model's process, which ends this one
    host, port = settings.address
    sock = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM,
                         socket.IPPROTO_TCP)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    sock.bind((host, port))
    sock.listen(BACKLOG)
    worker = FrontWorker(connection, settings)
    served = worker.served = ServedModel(name=settings.name, chat=Chat.load(Path(settings.chat)),
                                         worker=worker, context=settings.context)
    connection.send("listening")
    server = http_server(create_app(served, token=settings.token))
    worker.left = lambda: setattr(server, "should_exit", True)
    server.run(sockets=[sock])

"""The endpoint that agents call: on the loopback address, with a key for each episode.

A chat completion waits here until its episode's next reply is sampled, beside the others, by the policy that
is trained. The training sets the sampling, so sampling fields are refused by name.
"""

from __future__ import annotations

import queue
import secrets
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import cast

from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from postgrad.data.environments import Asks
from postgrad.models.chat import Chat
from postgrad.models.chat.tools import ModelReply
from postgrad.records import Message
from postgrad.sampling import RequestSequence, SampledToken
from postgrad.sampling.detokenizer import IncrementalDetokenizer
from postgrad.sampling.scheduler import CachedPrompt
from postgrad.serving.app import build_endpoint, model_info
from postgrad.serving.chat_completions import ChatCompletion, respond
from postgrad.serving.decode_worker import DecodeWorker, PendingRequest, ServedModel
from postgrad.serving.messages import read_message
from postgrad.serving.request_body import Refusal, RequestBody, read_body
from postgrad.system.sockets import bind, origin
from postgrad.system.web_server import http_server

NAME = "policy"
TRAINING_FIELDS = ("temperature", "top_p", "top_k", "min_p", "seed", "n", "top_logprobs", "stop_token_ids",
                   "ignore_eos")


class EpisodeWorker:
    """What a `ServedModel` needs of its worker, where the training decodes."""

    most = 1

    def __init__(self, vocab_size: int):
        self.vocab_size, self.version = vocab_size, 0

    def drop(self, pending: PendingRequest) -> None:
        pending.dropped = True


@dataclass(eq=False)
class EpisodeSession:
    """An episode: its key, and the calls of its program that are not answered yet; None behind the last."""

    key: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    waiting: queue.SimpleQueue[ChatCompletion | None] = field(default_factory=queue.SimpleQueue)

    def next(self, seconds: float) -> Asks | None:
        """The next call; None where the program has ended. TimeoutError after so many seconds."""
        until = time.monotonic() + seconds
        while True:
            try:
                call = self.waiting.get(timeout=max(until - time.monotonic(), 0))
            except queue.Empty:
                raise TimeoutError from None
            if call is None or not call.pending.dropped:
                return as_asks(call) if call else None


class EpisodeServer:
    """with EpisodeServer(chat, vocab_size, context) as server: server.url is called with
    server.open().key."""

    def __init__(self, chat: Chat, vocab_size: int, context: int):
        self.served = ServedModel(name=NAME, chat=chat, context=context,
                                  worker=cast(DecodeWorker, EpisodeWorker(vocab_size)))
        self.sessions: dict[str, EpisodeSession] = {}

    def __enter__(self) -> EpisodeServer:
        sock = bind("127.0.0.1", 0)
        self.url = f"{origin('127.0.0.1', sock.getsockname()[1])}/v1"
        routes = [Route("/v1/models", self.models, methods=["GET"]),
                  Route("/v1/chat/completions", self.complete, methods=["POST"])]
        self.server = http_server(build_endpoint(routes, self.served))
        threading.Thread(target=self.server.run, kwargs={"sockets": [sock]}, daemon=True,
                         name="postgrad-episodes").start()
        return self

    def __exit__(self, *fault: object) -> None:
        self.server.should_exit = True  # not waited for: it ends within a second, and knows no key any more

    def open(self) -> EpisodeSession:
        session = EpisodeSession()
        self.sessions[session.key] = session
        return session

    def close(self, session: EpisodeSession) -> None:
        self.sessions.pop(session.key, None)

    def session(self, request: HttpRequest) -> EpisodeSession:
        key = request.headers.get("authorization", "").partition(" ")[2].strip()
        if key not in self.sessions:
            raise Refusal("this key is of no episode that is being played: an agent asks with the key that "
                          "it was given in OPENAI_API_KEY.", 401, code="invalid_api_key")
        return self.sessions[key]

    async def models(self, request: HttpRequest) -> Response:
        self.session(request)
        return JSONResponse({"object": "list", "data": [model_info(self.served)]})

    async def complete(self, request: HttpRequest) -> Response:
        session, body = self.session(request), await read_body(request)
        refuse_sampling_fields(body)
        call = ChatCompletion.read(body, self.served)
        session.waiting.put(call)
        return await respond(request, call)


def refuse_sampling_fields(body: RequestBody) -> None:
    for name in TRAINING_FIELDS:
        if body.left.get(name) is not None:
            body.refuse(name, "is the training's to choose, for every reply alike: leave it out")


def as_asks(call: ChatCompletion) -> Asks:
    """A call as an environment yields it."""
    settings = {"max_new_tokens": call.max_tokens} if call.max_tokens else {}
    stop = {"stop": call.fields.stop} if call.fields.stop else {}
    return Asks(messages=call.talk.messages, tools=call.talk.tools or (), settings=settings | stop,
                answer=partial(deliver_reply, call))


def deliver_reply(call: ChatCompletion, reply: ModelReply, context: list[int], step: int) -> Message:
    """Sends the reply to the client -> the message, as the client will quote it in its next call."""
    chat, pending = call.served.chat, call.pending
    request = call.fields.requests(max(len(reply.tokens), 1), stream=True)[0]
    sequence = RequestSequence(CachedPrompt(context, 1), request=request,
                               detokenizer=IncrementalDetokenizer(chat.decode, request.sampling.stop))
    sampled = [*map(SampledToken, reply.tokens, reply.logp)]
    sampled = sequence.take(sampled, 0) if sampled else []

    def hear() -> None:
        cast(EpisodeWorker, call.served.worker).version = step
        call.prompt, pending.sequences = context, [sequence]
        if sampled:
            pending.reports.put_nowait((0, sampled))
        pending.open -= 1

    with suppress(RuntimeError):  # the client's event loop has ended with the server
        pending.loop.call_soon_threadsafe(hear)
    return read_message(call.message(sequence), "message.")

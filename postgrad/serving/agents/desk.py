"""The endpoint that agents ask: on the loopback address, with a key for each episode.

A chat completion waits here until its episode is sampled, beside the others, by the policy that trains. How
tokens are chosen is the training's to say, so fields that ask for another way are refused by name.
"""

from __future__ import annotations

import queue
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial

import uvicorn
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from postgrad.data.environments import Asks
from postgrad.models.chat import Chat
from postgrad.models.chat.tools import ModelReply
from postgrad.records import Message
from postgrad.sampling import Chosen, Row
from postgrad.sampling.request import Place
from postgrad.sampling.text import Text
from postgrad.serving.app import card, endpoint
from postgrad.serving.body import Body, read_body
from postgrad.serving.chat_completions import ChatCompletion, answer
from postgrad.serving.errors import Refusal
from postgrad.serving.messages import message
from postgrad.serving.served import Served
from postgrad.serving.worker import Asked
from postgrad.system.sockets import bind, origin

NAME = "policy"
OWN = ("temperature", "top_p", "top_k", "min_p", "seed", "n", "top_logprobs", "stop_token_ids", "ignore_eos")
LOOK = 0.02  # seconds between two looks whether a program has ended


class Waiting:
    """What a `Served` asks of the thread that writes, where others write."""

    most = 1

    def __init__(self, vocab_size: int):
        self.vocab_size, self.version = vocab_size, 0

    def drop(self, asked: Asked) -> None:
        asked.dropped = True


@dataclass(eq=False)
class Session:
    """An episode at the desk: its key, and what its program has asked and is not answered yet."""

    key: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    waiting: queue.SimpleQueue[ChatCompletion] = field(default_factory=queue.SimpleQueue)

    def next(self, seconds: float, ended: Callable[[], bool]) -> Asks | None:
        """What is asked next; None where the program has ended. TimeoutError after so many seconds."""
        until = time.monotonic() + seconds
        while True:
            over = ended()  # looked at first: what it asked before stands in the queue by then
            try:
                call = self.waiting.get(timeout=0 if over else LOOK)
            except queue.Empty:
                if over:
                    return None
                if time.monotonic() > until:
                    raise TimeoutError from None
                continue
            if not call.asked.dropped:
                return asks(call)


class Desk:
    """with Desk(chat, vocab_size, context) as desk: desk.url is asked by those who hold desk.open().key."""

    def __init__(self, chat: Chat, vocab_size: int, context: int):
        self.served = Served(name=NAME, chat=chat, worker=Waiting(vocab_size), context=context)
        self.sessions: dict[str, Session] = {}

    def __enter__(self) -> Desk:
        sock = bind("127.0.0.1", 0)
        self.url = f"{origin('127.0.0.1', sock.getsockname()[1])}/v1"
        routes = [Route("/v1/models", self.models, methods=["GET"]),
                  Route("/v1/chat/completions", self.complete, methods=["POST"])]
        config = uvicorn.Config(endpoint(routes, self.served), log_level="warning", access_log=False,
                                server_header=False, timeout_graceful_shutdown=1, lifespan="off")
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, kwargs={"sockets": [sock]}, daemon=True,
                                       name="postgrad-desk")
        self.thread.start()
        return self

    def __exit__(self, *fault) -> None:
        self.server.should_exit = True
        self.thread.join()

    def open(self) -> Session:
        session = Session()
        self.sessions[session.key] = session
        return session

    def close(self, session: Session) -> None:
        self.sessions.pop(session.key, None)

    def session(self, request: HttpRequest) -> Session:
        key = request.headers.get("authorization", "").partition(" ")[2].strip()
        if key not in self.sessions:
            raise Refusal("this key is of no episode that is being played: an agent asks with the key that "
                          "it was given in OPENAI_API_KEY.", 401, code="invalid_api_key")
        return self.sessions[key]

    async def models(self, request: HttpRequest) -> Response:
        self.session(request)
        return JSONResponse({"object": "list", "data": [card(self.served)]})

    async def complete(self, request: HttpRequest) -> Response:
        session, body = self.session(request), await read_body(request)
        refuse_own(body)
        call = ChatCompletion.read(body, self.served)
        session.waiting.put(call)
        return await answer(request, call)


def refuse_own(body: Body) -> None:
    for name in OWN:
        if body.left.get(name) is not None:
            body.refuse(name, "is the training's to choose, for every reply alike: leave it out")


def asks(call: ChatCompletion) -> Asks:
    """A call as an episode takes it."""
    settings = {"max_new_tokens": call.most} if call.most else {}
    stop = {"stop": call.choosing.stop} if call.choosing.stop else {}
    return Asks(messages=call.talk.messages, tools=call.talk.tools or (), settings=settings | stop,
                answer=partial(told, call))


def told(call: ChatCompletion, reply: ModelReply, context: list[int], step: int) -> Message:
    """The client gets the reply; -> the message, as it will stand in what the client asks next."""
    chat, asked = call.served.chat, call.asked
    request = call.choosing.requests(max(len(reply.tokens), 1), pieces=True)[0]
    row = Row(request, Place(context, 1), text=Text(chat.decode, request.settings.stop))
    chosen = [row.take(Chosen(token, logp), 0)
              for token, logp in zip(reply.tokens, reply.logp, strict=True)]

    def hear() -> None:
        call.served.worker.version = step
        call.prompt, asked.rows = context, [row]
        for one in chosen:
            asked.told.put_nowait((0, one))
        asked.open -= 1

    with suppress(RuntimeError):  # the client's event loop has ended with the desk
        asked.loop.call_soon_threadsafe(hear)
    return message(call.message(row), "message.")

"""POST /v1/chat/completions: a conversation, gone on with by the assistant."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from postgrad.sampling import Chosen, Row
from postgrad.serving.body import Body, read_body
from postgrad.serving.messages import Conversation
from postgrad.serving.record import Session
from postgrad.serving.replies import chat_logprobs, reply_text, usage
from postgrad.serving.sampling import MOST_TOP, NEUTRAL, Choosing
from postgrad.serving.served import Served
from postgrad.serving.streams import Events, whole
from postgrad.serving.tools import Holding, Tools, parameters, read_calls
from postgrad.serving.worker import Asked

ASKS_NOTHING = NEUTRAL | {"parallel_tool_calls": (True,), "modalities": (["text"],),
                          "add_generation_prompt": (True,), "continue_final_message": (False,)}


@dataclass(kw_only=True)
class ChatCompletion:
    """One call: the conversation, how it is to be gone on with, and the rows that do.

    keep: told each row that has ended, with the message that the client is given.
    """

    served: Served
    talk: Conversation
    choosing: Choosing
    most: int | None
    logprobs: bool
    top: int
    ids: bool
    stream: bool
    count_tokens: bool
    id: str
    asked: Asked
    prompt: list[int] = field(default_factory=list)
    keep: Callable[[Row, dict], None] | None = None

    @classmethod
    def read(cls, body: Body, served: Served) -> ChatCompletion:
        """All fields are understood before any row is asked for."""
        served.check_name(body.take("model", str, None))
        talk = Conversation.read(body, served.chat)
        choosing = Choosing.read(body, served)
        logprobs = body.take("logprobs", bool, False)
        top = body.take("top_logprobs", int, 0, low=0, high=MOST_TOP)
        if top and not logprobs:
            body.refuse("top_logprobs", "needs logprobs: true beside it")
        older, newer = (body.take(name, int, None, low=1) for name in ("max_tokens", "max_completion_tokens"))
        if None not in (older, newer) and older != newer:
            body.refuse("max_tokens", "and max_completion_tokens ask for two lengths: leave one out")
        stream, ids = body.take("stream", bool, False), body.take("return_token_ids", bool, False)
        options = Body(body.take("stream_options", dict, {}) if stream else {}, "stream_options.")
        counts = options.take("include_usage", bool, False)
        options.done()
        body.done(ASKS_NOTHING)
        return cls(served=served, talk=talk, choosing=choosing, most=newer if older is None else older,
                   logprobs=logprobs, top=top, ids=ids, stream=stream, count_tokens=counts,
                   asked=Asked(asyncio.get_running_loop(), choosing.count), id=f"chatcmpl-{uuid.uuid4().hex}")

    @property
    def tools(self) -> Tools:
        """Those that may be called."""
        return {t["function"]["name"]: parameters(t["function"]) for t in self.talk.tools or ()}

    def ask(self, session: Session | None = None) -> None:
        """The rows are asked for. With a session the prompt has the tokens of its earlier replies as they
        were sampled, and log-probs are those of the distribution that was sampled from."""
        if session:
            request = session.ask(self.talk)
            self.prompt, self.keep = request.context, partial(session.wrote, request)
        else:
            self.prompt = self.talk.tokens(self.served.chat)
        new = self.served.room(self.prompt, self.most, "messages")
        requests = self.choosing.requests(new, own=session is None, top=self.top, pieces=self.stream)
        self.asked = self.served.worker.ask(self.prompt, requests)

    def ended(self) -> None:
        """All rows are written."""
        for row in self.asked.rows if self.keep else ():
            self.keep(row, self.message(row))

    def drop(self) -> None:
        self.served.worker.drop(self.asked)

    def envelope(self, kind: str, choices: list[dict]) -> dict:
        return {"id": self.id, "object": kind, "created": int(time.time()), "model": self.served.name,
                "choices": choices, "system_fingerprint": self.served.fingerprint,
                "policy_step": self.served.version}

    async def whole(self) -> dict:
        rows = await self.asked.ended()
        self.ended()
        out = self.envelope("chat.completion", [self.choice(i, row) for i, row in enumerate(rows)])
        out["usage"] = usage(len(self.prompt), sum(len(row.tokens) for row in rows))
        return out | ({"prompt_token_ids": self.prompt} if self.ids else {})

    def message(self, row: Row) -> dict:
        text, calls = reply_text(self.served.chat, row), []
        if self.tools:
            text, calls = read_calls(text, self.tools)
        message = {"role": "assistant", "content": text if text or not calls else None, "refusal": None}
        return message | ({"tool_calls": calls} if calls else {})

    def choice(self, index: int, row: Row) -> dict:
        message = self.message(row)
        out = {"index": index, "message": message,
               "logprobs": chat_logprobs(self.served.chat, row.sampled) if self.logprobs else None,
               "finish_reason": finish(row.end, "tool_calls" in message)}
        return out | ({"token_ids": row.tokens} if self.ids else {})

    async def parts(self) -> AsyncIterator[dict]:
        """The same piece by piece, the rows as they come."""
        kind, writing = "chat.completion.chunk", [Writing(i) for i in range(self.asked.count)]
        for one in writing:
            yield self.envelope(kind, [one.part({"role": "assistant", "content": ""})])
        async for i, chosen in self.asked:
            row, one = self.asked.rows[i], writing[i]
            one.count += 1
            one.chosen.append(chosen)
            ended = row.end is not None and one.count == len(row.sampled)
            piece, calls = one.held.add(chosen.piece) if self.tools else chosen.piece, []
            if ended and self.tools:
                rest, calls = one.held.end(self.tools)
                piece += rest
            if piece or calls or ended:
                delta = ({"content": piece} if piece else {}) | (
                    {"tool_calls": [{"index": n} | call for n, call in enumerate(calls)]} if calls else {})
                end = finish(row.end, bool(calls)) if ended else None
                yield self.envelope(kind, [one.part(delta, self, end)])
        self.ended()
        if self.count_tokens:
            written = sum(one.count for one in writing)
            yield self.envelope(kind, []) | {"usage": usage(len(self.prompt), written)}


class Writing:
    """A row of a streamed reply: tokens that were not told yet, and text that may still become a call."""

    def __init__(self, index: int):
        self.index, self.count, self.held = index, 0, Holding()
        self.chosen: list[Chosen] = []

    def part(self, delta: dict, call: ChatCompletion | None = None, end: str | None = None) -> dict:
        out = {"index": self.index, "delta": delta, "logprobs": None, "finish_reason": end}
        if call and call.logprobs:
            out["logprobs"] = chat_logprobs(call.served.chat, self.chosen)
        if call and call.ids:
            out["token_ids"] = [c.token for c in self.chosen]
        if call:
            self.chosen = []
        return out


def finish(end: str | None, calls: bool) -> str | None:
    return "tool_calls" if calls and end == "stop" else end


async def chat_completions(request: Request) -> Response:
    served = request.app.state.served
    call = ChatCompletion.read(await read_body(request), served)
    call.ask(served.recorder.session(request.headers) if served.recorder else None)
    return await answer(request, call)


async def answer(request: Request, call: ChatCompletion) -> Response:
    """What a call gives, whole or as a stream."""
    if call.stream:
        return Events(call.parts(), call.drop, request.app.state.explain)
    return JSONResponse(await whole(request, call.whole(), call.drop))

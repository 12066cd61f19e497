"""POST /v1/chat/completions: the assistant's reply to a conversation."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from postgrad.sampling import RequestSequence, SampledToken
from postgrad.serving.completions import (
    MOST_COUNT,
    MOST_TOP,
    NEUTRAL,
    SamplingFields,
    chat_logprobs,
    encode_text,
    reply_text,
    token_usage,
)
from postgrad.serving.decode_worker import PendingRequest, ServedModel
from postgrad.serving.messages import ChatMessages, ToolCallBuffer, ToolSchemas, parameter_schemas, read_calls
from postgrad.serving.request_body import RequestBody, read_body
from postgrad.serving.session_recorder import RecordedSession
from postgrad.serving.streaming import EventStream, await_unless_closed

CHAT_NEUTRAL = NEUTRAL | {"parallel_tool_calls": (True,), "modalities": (["text"],),
                          "add_generation_prompt": (True,), "continue_final_message": (False,)}


@dataclass(kw_only=True)
class ChatCompletion:
    """One call. record: called with each finished sequence and the message that the client receives."""

    served: ServedModel
    talk: ChatMessages
    fields: SamplingFields
    max_tokens: int | None
    logprobs: bool
    top: int
    ids: bool
    stream: bool
    include_usage: bool
    pending: PendingRequest
    id: str = field(default_factory=lambda: f"chatcmpl-{uuid.uuid4().hex}")
    prompt: list[int] = field(default_factory=list)
    record: Callable[[RequestSequence, dict[str, Any]], None] | None = None

    @classmethod
    def read(cls, body: RequestBody, served: ServedModel) -> ChatCompletion:
        """Reads all fields before any sequence is requested."""
        served.check_name(body.take("model", str, None))
        talk = ChatMessages.read(body, served.chat)
        served.check_length(talk.text, "messages")
        fields = SamplingFields.read(body, served)
        logprobs = body.take("logprobs", bool, False)
        top = body.take("top_logprobs", int, 0, low=0, high=MOST_TOP)
        if top and not logprobs:
            body.refuse("top_logprobs", "needs logprobs: true beside it")
        older, newer = (body.take(name, int, None, low=1, high=MOST_COUNT)
                        for name in ("max_tokens", "max_completion_tokens"))
        if None not in (older, newer) and older != newer:
            body.refuse("max_tokens", "and max_completion_tokens ask for two lengths: leave one out")
        stream, include_usage = body.stream_options()
        ids = body.take("return_token_ids", bool, False)
        body.done(CHAT_NEUTRAL)
        return cls(served=served, talk=talk, fields=fields, max_tokens=newer if older is None else older,
                   logprobs=logprobs, top=top, ids=ids, stream=stream, include_usage=include_usage,
                   pending=PendingRequest(asyncio.get_running_loop(), fields.n))

    @property
    def tools(self) -> ToolSchemas:
        """The tools that may be called."""
        return {t["function"]["name"]: parameter_schemas(t["function"]) for t in self.talk.tools or ()}

    async def ask(self, session: RecordedSession | None = None) -> None:
        """Requests the sequences. With a session the prompt has the sampled tokens of earlier replies, and
        log-probs are those of the sampling distribution."""
        if session:
            request = await session.ask(self.talk)
            self.prompt, self.record = request.context, partial(session.record_reply, request)
        else:
            self.prompt = await encode_text(self.served, self.talk.text)
        new = self.served.reply_room(self.prompt, self.max_tokens, "messages")
        requests = self.fields.requests(new, raw_logprobs=session is None, top_logprobs=self.top,
                                        stream=self.stream)
        self.pending = self.served.worker.ask(self.prompt, requests)

    def record_all(self) -> None:
        if self.record:
            for sequence in self.pending.sequences:
                self.record(sequence, self.message(sequence))

    def drop(self) -> None:
        self.served.worker.drop(self.pending)

    async def response(self) -> dict[str, Any]:
        sequences = await self.pending.finished()
        self.record_all()
        out = self.served.envelope(self.id, "chat.completion",
                                   [self.choice(i, sequence) for i, sequence in enumerate(sequences)])
        out["usage"] = token_usage(len(self.prompt), sum(len(s.tokens) for s in sequences), [self.pending])
        return out | ({"prompt_token_ids": self.prompt} if self.ids else {})

    def message(self, sequence: RequestSequence) -> dict[str, Any]:
        text, calls = reply_text(self.served.chat, sequence), list[dict[str, Any]]()
        if self.tools:
            text, calls = read_calls(text, self.tools)
        message = {"role": "assistant", "content": text if text or not calls else None, "refusal": None}
        return message | ({"tool_calls": calls} if calls else {})

    def choice(self, index: int, sequence: RequestSequence) -> dict[str, Any]:
        message = self.message(sequence)
        out = {"index": index, "message": message,
               "logprobs": chat_logprobs(self.served.chat, sequence.sampled) if self.logprobs else None,
               "finish_reason": chat_finish_reason(sequence, "tool_calls" in message)}
        return out | ({"token_ids": sequence.tokens} if self.ids else {})

    async def chunks(self) -> AsyncIterator[dict[str, Any]]:
        """The response in chunks, as tokens come."""
        choices = [StreamedChoice(self, i) for i in range(self.pending.count)]
        for choice in choices:
            yield self.chunk([choice.delta({"role": "assistant", "content": ""})])
        async for i, sampled in self.pending:
            sequence, choice = self.pending.sequences[i], choices[i]
            if delta := choice.add(sequence, sampled):
                yield self.chunk([delta])
        self.record_all()
        if self.include_usage:
            sampled_tokens = sum(choice.count for choice in choices)
            yield self.chunk([]) | {
                "usage": token_usage(len(self.prompt), sampled_tokens, [self.pending])}

    def chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return self.served.envelope(self.id, "chat.completion.chunk", choices)


class StreamedChoice:
    """A sequence of a streamed response: tokens not sent yet, and text that may still become a tool call."""

    def __init__(self, call: ChatCompletion, index: int):
        self.call, self.index, self.count, self.buffer = call, index, 0, ToolCallBuffer()
        self.unsent: list[SampledToken] = []

    def add(self, sequence: RequestSequence, sampled: list[SampledToken]) -> dict[str, Any] | None:
        """The choice to send with further tokens; None where nothing is sent."""
        tools, calls, text = self.call.tools, list[dict[str, Any]](), sampled[-1].text
        self.count += len(sampled)
        self.unsent += sampled
        ended = sequence.finish_reason is not None and self.count == len(sequence.sampled)
        text = self.buffer.add(text) if tools else text
        if ended and tools:
            rest, calls = self.buffer.end(tools)
            text += rest
        if not (text or calls or ended):
            return None
        delta: dict[str, Any] = {"content": text} if text else {}
        if calls:
            delta["tool_calls"] = [{"index": n} | call for n, call in enumerate(calls)]
        out = self.delta(delta, chat_finish_reason(sequence, bool(calls)) if ended else None)
        if self.call.logprobs:
            out["logprobs"] = chat_logprobs(self.call.served.chat, self.unsent)
        if self.call.ids:
            out["token_ids"] = [token.token for token in self.unsent]
        self.unsent = []
        return out

    def delta(self, delta: dict[str, Any], end: str | None = None) -> dict[str, Any]:
        return {"index": self.index, "delta": delta, "logprobs": None, "finish_reason": end}


def chat_finish_reason(sequence: RequestSequence, calls: bool) -> str | None:
    return "tool_calls" if calls and sequence.finish_reason == "stop" else sequence.finish_reason


async def chat_completions(request: Request) -> Response:
    served = request.app.state.served
    call = ChatCompletion.read(await read_body(request), served)
    await call.ask(served.recorder.session(request.headers) if served.recorder else None)
    return await respond(request, call)


async def respond(request: Request, call: ChatCompletion) -> Response:
    """The response to a call, complete or as a stream."""
    if call.stream:
        return EventStream(call.chunks(), call.drop, request.app.state.explain)
    return JSONResponse(await await_unless_closed(request, call.response(), call.drop))

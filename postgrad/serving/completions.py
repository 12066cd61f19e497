"""POST /v1/completions: a text or tokens, continued; with `echo`, the prompt's own log-probs."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from postgrad.sampling import RequestSequence, SampledToken
from postgrad.serving.decode_worker import PendingRequest, ServedModel
from postgrad.serving.logprobs import completion_logprobs, reply_text, token_usage
from postgrad.serving.request_body import Refusal, RequestBody, read_body, shorten_value
from postgrad.serving.sampling_fields import MOST_TOP, NEUTRAL, SamplingFields
from postgrad.serving.streaming import EventStream, await_unless_closed

LONG = 20_000  # characters from which a text is tokenized beside the event loop


@dataclass(kw_only=True)
class Completion:
    """One call. new: the most tokens after each prompt."""

    served: ServedModel
    prompts: list[list[int]]
    fields: SamplingFields
    new: list[int]
    echo: bool
    top: int | None
    ids: bool
    stream: bool
    include_usage: bool
    id: str = field(default_factory=lambda: f"cmpl-{uuid.uuid4().hex}")
    pending: list[PendingRequest] = field(default_factory=list)

    @classmethod
    async def read(cls, body: RequestBody, served: ServedModel) -> Completion:
        served.check_name(body.take("model", str, None))
        special = body.take("add_special_tokens", bool, True)
        prompts = await read_prompt_field(body, served, special)
        fields = SamplingFields.read(body, served)
        echo, top = body.take("echo", bool, False), body.take("logprobs", int, None, low=0, high=MOST_TOP)
        new = body.take("max_tokens", int, 16, low=0 if echo else 1)
        stream, include_usage = body.stream_options()
        if stream and echo:
            body.refuse("echo", "with stream is not honoured by this server: leave one of them out")
        if not new and fields.n > 1:
            body.refuse("n", "above 1 with max_tokens 0 would be the same text again: leave it out")
        ids = body.take("return_token_ids", bool, False)
        body.done(NEUTRAL)
        return cls(served=served, prompts=prompts, fields=fields, echo=echo, top=top, ids=ids, stream=stream,
                   new=[served.reply_room(p, new, "prompt") for p in prompts], include_usage=include_usage)

    def ask(self) -> None:
        """Asks for all sequences, or none."""
        try:
            for i, (prompt, new) in enumerate(zip(self.prompts, self.new, strict=True)):
                if new:
                    requests = self.fields.requests(new, i, raw_logprobs=True, top_logprobs=self.top or 0,
                                                    stream=self.stream)
                    self.pending.append(self.served.worker.ask(prompt, requests))
        except Refusal:
            self.drop()
            raise

    def drop(self) -> None:
        for pending in self.pending:
            self.served.worker.drop(pending)

    def envelope(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return self.served.envelope(self.id, "text_completion", choices)

    async def response(self) -> dict[str, Any]:
        self.ask()
        scores = [await self.served.worker.score(p, self.top) if self.echo and self.top is not None else []
                  for p in self.prompts]
        sequences: list[Sequence[RequestSequence | None]] = [await p.finished() for p in self.pending]
        choices: list[dict[str, Any]] = []
        replies = sequences or [[None]] * len(scores)
        for prompt, scored, mine in zip(self.prompts, scores, replies, strict=True):
            choices += [self.choice(len(choices) + i, prompt, scored, s) for i, s in enumerate(mine)]
        sampled = sum(len(s.tokens) for mine in sequences for s in mine if s)
        return self.envelope(choices) | {"usage": token_usage(sum(map(len, self.prompts)), sampled)}

    def choice(self, index: int, prompt: list[int], scored: list[SampledToken],
               sequence: RequestSequence | None) -> dict[str, Any]:
        chat = self.served.chat
        echoed = chat.tokenizer.decode(prompt, skip_special_tokens=False) if self.echo else ""
        first, sampled = prompt[:1] if self.echo else [], sequence.sampled if sequence else []
        out = {"index": index, "text": echoed + (reply_text(chat, sequence) if sequence else ""),
               "logprobs": None if self.top is None else completion_logprobs(
                   chat, [*first, *scored, *sampled], echoed=len(prompt) if self.echo else 0),
               "finish_reason": sequence.finish_reason if sequence else "length"}
        if self.ids:
            out |= {"token_ids": sequence.tokens if sequence else [], "prompt_token_ids": prompt}
        return out

    async def chunks(self) -> AsyncIterator[dict[str, Any]]:
        """The response piece by piece: prompt after prompt, the sequences of each as they come."""
        total = index = 0
        for pending in self.pending:
            unsent: list[list[SampledToken]] = [[] for _ in range(pending.count)]
            starts, counts = [0] * pending.count, [0] * pending.count
            async for i, sampled in pending:
                sequence, counts[i] = pending.sequences[i], counts[i] + 1
                ended = sequence.finish_reason is not None and counts[i] == len(sequence.sampled)
                unsent[i].append(sampled)
                total += 1
                if sampled.text or ended:
                    yield self.envelope([self.chunk(index + i, sampled.text, unsent[i], starts[i],
                                                    sequence.finish_reason if ended else None)])
                    starts[i] += len(sampled.text)
                    unsent[i] = []
            index += pending.count
        if self.include_usage:
            yield self.envelope([]) | {"usage": token_usage(sum(map(len, self.prompts)), total)}

    def chunk(self, index: int, text: str, sampled: Sequence[SampledToken], start: int,
              end: str | None) -> dict[str, Any]:
        logprobs = None if self.top is None else completion_logprobs(self.served.chat, sampled, start)
        out = {"index": index, "text": text, "finish_reason": end, "logprobs": logprobs}
        return out | ({"token_ids": [s.token for s in sampled]} if self.ids else {})


async def read_prompt_field(body: RequestBody, served: ServedModel, special: bool) -> list[list[int]]:
    """The field prompt: a text, texts, tokens, or lists of tokens."""
    value = body.left.pop("prompt", None)
    body.known.add("prompt")
    kind = "a text, a list of texts, a list of tokens or a list of lists of tokens"
    if not isinstance(value, str | list) or value == []:
        body.refuse("prompt", f"is {shorten_value(value)}, and has to be {kind}")
    listed = [value] if isinstance(value, str) or type(value[0]) is int else value
    if len(listed) > served.worker.most:
        body.refuse("prompt", f"has {len(listed)} prompts, and {served.worker.most} are taken at most")
    prompts = []
    for one in listed:
        if isinstance(one, str):
            prompts.append(await encode_text(served, one, special))
        elif isinstance(one, list):
            prompts.append(served.check_tokens(one, "prompt"))
        else:
            body.refuse("prompt", f"holds {shorten_value(one)}, and has to be {kind}")
    return prompts


async def encode_text(served: ServedModel, text: str, special: bool = False) -> list[int]:
    def encode() -> list[int]:
        return list(served.chat.tokenizer.encode(text, add_special_tokens=special).ids)

    RequestBody({"prompt": text}).take("prompt", str)
    return encode() if len(text) < LONG else await run_in_threadpool(encode)


async def completions(request: Request) -> Response:
    call = await Completion.read(await read_body(request), request.app.state.served)
    if call.stream:
        call.ask()
        return EventStream(call.chunks(), call.drop, request.app.state.explain)
    return JSONResponse(await await_unless_closed(request, call.response(), call.drop))

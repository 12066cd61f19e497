"""POST /v1/completions: a text or tokens, gone on with; with `echo`, the prompt's own log-probs."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from postgrad.sampling import Chosen, Row
from postgrad.serving.body import Body, read_body, short
from postgrad.serving.errors import Refusal
from postgrad.serving.replies import completion_logprobs, reply_text, usage
from postgrad.serving.sampling import MOST_TOP, NEUTRAL, Choosing
from postgrad.serving.served import Served
from postgrad.serving.streams import Events, whole
from postgrad.serving.worker import Asked

LONG = 20_000  # characters from which a text is turned into tokens beside the event loop


@dataclass(kw_only=True)
class Completion:
    """One call: prompts, how many tokens are written after each, and what is told of them."""

    served: Served
    prompts: list[list[int]]
    choosing: Choosing
    new: list[int]
    echo: bool
    top: int | None
    ids: bool
    stream: bool
    count_tokens: bool
    id: str
    asked: list[Asked]

    @classmethod
    async def read(cls, body: Body, served: Served) -> Completion:
        served.check_name(body.take("model", str, None))
        special = body.take("add_special_tokens", bool, True)
        prompts = await prompts_of(body, served, special)
        choosing = Choosing.read(body, served)
        echo, top = body.take("echo", bool, False), body.take("logprobs", int, None, low=0, high=MOST_TOP)
        new = body.take("max_tokens", int, 16, low=0 if echo else 1)
        stream = body.take("stream", bool, False)
        options = Body(body.take("stream_options", dict, {}) if stream else {}, "stream_options.")
        counts = options.take("include_usage", bool, False)
        options.done()
        if stream and echo:
            body.refuse("echo", "with stream is not honoured by this server: leave one of them out")
        if not new and choosing.count > 1:
            body.refuse("n", "above 1 with max_tokens 0 would be the same text again: leave it out")
        ids = body.take("return_token_ids", bool, False)
        body.done(NEUTRAL)
        return cls(served=served, prompts=prompts, choosing=choosing, echo=echo, top=top, ids=ids,
                   new=[served.room(p, new, "prompt") for p in prompts], stream=stream, count_tokens=counts,
                   id=f"cmpl-{uuid.uuid4().hex}", asked=[])

    def ask(self) -> None:
        """All rows are added to the queue, or none."""
        try:
            for i, (prompt, new) in enumerate(zip(self.prompts, self.new, strict=True)):
                if new:
                    requests = self.choosing.requests(new, i, own=True, top=self.top or 0, pieces=self.stream)
                    self.asked.append(self.served.worker.ask(prompt, requests))
        except Refusal:
            self.drop()
            raise

    def drop(self) -> None:
        for asked in self.asked:
            self.served.worker.drop(asked)

    def envelope(self, choices: list[dict]) -> dict:
        return {"id": self.id, "object": "text_completion", "created": int(time.time()),
                "model": self.served.name, "choices": choices, "system_fingerprint": self.served.fingerprint,
                "policy_step": self.served.version}

    async def whole(self) -> dict:
        self.ask()
        told = self.echo and self.top is not None
        scored = [await self.served.worker.score(p, self.top) if told else [] for p in self.prompts]
        rows = [await asked.ended() for asked in self.asked] or [[None] for _ in self.prompts]
        choices = []
        for prompt, told, mine in zip(self.prompts, scored, rows, strict=True):
            choices += [self.choice(len(choices) + i, prompt, told, row) for i, row in enumerate(mine)]
        written = sum(len(row.tokens) for mine in rows for row in mine if row)
        return self.envelope(choices) | {"usage": usage(sum(map(len, self.prompts)), written)}

    def choice(self, index: int, prompt: list[int], scored: list[Chosen], row: Row | None) -> dict:
        chat = self.served.chat
        ahead = chat.tokenizer.decode(prompt, skip_special_tokens=False) if self.echo else ""
        first, chosen = prompt[:1] if self.echo else [], row.sampled if row else []
        told: list[Chosen | int] = [*first, *scored, *chosen]
        out = {"index": index, "text": ahead + (reply_text(chat, row) if row else ""),
               "logprobs": None if self.top is None else completion_logprobs(
                   chat, told, echoed=len(prompt) if self.echo else 0),
               "finish_reason": row.end if row else "length"}
        if self.ids:
            out |= {"token_ids": row.tokens if row else [], "prompt_token_ids": prompt}
        return out

    async def parts(self) -> AsyncIterator[dict]:
        """The same piece by piece: prompt after prompt, the rows of each as they come."""
        written = index = 0
        for asked in self.asked:
            held: list[list[Chosen]] = [[] for _ in range(asked.count)]
            starts, counts = [0] * asked.count, [0] * asked.count
            async for i, chosen in asked:
                row, counts[i] = asked.rows[i], counts[i] + 1
                ended = row.end is not None and counts[i] == len(row.sampled)
                held[i].append(chosen)
                written += 1
                if chosen.piece or ended:
                    yield self.envelope([self.part(index + i, chosen.piece, held[i], starts[i],
                                                   row.end if ended else None)])
                    starts[i] += len(chosen.piece)
                    held[i] = []
            index += asked.count
        if self.count_tokens:
            yield self.envelope([]) | {"usage": usage(sum(map(len, self.prompts)), written)}

    def part(self, index: int, piece: str, chosen: Sequence[Chosen], start: int, end: str | None) -> dict:
        out = {"index": index, "text": piece, "finish_reason": end,
               "logprobs": None if self.top is None else completion_logprobs(self.served.chat, chosen, start)}
        return out | ({"token_ids": [c.token for c in chosen]} if self.ids else {})


async def prompts_of(body: Body, served: Served, special: bool) -> list[list[int]]:
    """A text, texts, tokens, or lists of tokens."""
    value = body.left.pop("prompt", None)
    body.known.add("prompt")
    kind = "a text, a list of texts, a list of tokens or a list of lists of tokens"
    if not isinstance(value, str | list) or value == []:
        body.refuse("prompt", f"is {short(value)}, and has to be {kind}")
    listed = [value] if isinstance(value, str) or type(value[0]) is int else value
    if len(listed) > served.worker.most:
        body.refuse("prompt", f"has {len(listed)} prompts, and {served.worker.most} are taken at most")
    prompts = []
    for one in listed:
        if isinstance(one, str):
            prompts.append(await tokens_of(served, one, special))
        elif isinstance(one, list):
            prompts.append(served.check_tokens(one, "prompt"))
        else:
            body.refuse("prompt", f"holds {short(one)}, and has to be {kind}")
    return prompts


async def tokens_of(served: Served, text: str, special: bool = False) -> list[int]:
    def encode() -> list[int]:
        return served.chat.tokenizer.encode(text, add_special_tokens=special).ids

    Body({"prompt": text}).take("prompt", str)
    return encode() if len(text) < LONG else await run_in_threadpool(encode)


async def completions(request: Request) -> Response:
    call = await Completion.read(await read_body(request), request.app.state.served)
    if call.stream:
        call.ask()
        return Events(call.parts(), call.drop, request.app.state.explain)
    return JSONResponse(await whole(request, call.whole(), call.drop))

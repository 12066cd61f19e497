"""POST /v1/completions, a text or tokens, continued (with `echo`, the prompt's own log-probs), and the routes
of tokens as vLLM has them: /inference/v1/generate, /tokenize and /detokenize. With the sampling fields and
the log-prob formats of all routes.

generate takes tokens and returns tokens. Its log-probs are those of the distribution that was sampled from,
as training needs them. What vLLM has not: `seeds` in place of n and seed, a reply for each, whose
log-probs are a list of numbers, `logp`.
"""

from __future__ import annotations

import secrets
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from postgrad.models.chat import Chat
from postgrad.records import COLDEST
from postgrad.sampling import Request, RequestSequence, SampledToken, Sampling
from postgrad.sampling.detokenizer import IncrementalDetokenizer
from postgrad.sampling.sequences import Caching
from postgrad.serving.decode_worker import PendingRequest, ServedModel
from postgrad.serving.messages import ChatMessages, rendered_text
from postgrad.serving.request_body import LONG, Refusal, RequestBody, check_text, read_body
from postgrad.serving.streaming import EventStream, await_unless_closed
from postgrad.system.json_text import shorten_value

LOWEST = -9999.0  # in place of minus infinity, which JSON has no number for


def token_usage(prompt: int, sampled: int, asked: Sequence[PendingRequest] = ()) -> dict[str, Any]:
    """asked: the requests whose prompts may have begun with tokens that were in the cache."""
    cached = sum(pending.sequences[0].prompt.begun for pending in asked if pending.sequences)
    return {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled,
            "prompt_tokens_details": {"cached_tokens": cached}}


def reply_text(chat: Chat, sequence: RequestSequence) -> str:
    """A reply's text, without the stop string that ended it."""
    return sequence.detokenizer.text if sequence.detokenizer else chat.decode(sequence.tokens)


def token_name(chat: Chat, token: int) -> str:
    """A token's text, or token_id:NUMBER for a part of a character."""
    (piece,) = chat.pieces([token])
    return f"token_id:{token}" if "\ufffd" in piece else piece


def json_number(logp: float) -> float:
    return max(logp, LOWEST)


def chat_logprobs(chat: Chat, chosen: Sequence[SampledToken]) -> dict[str, Any]:
    """As chat completions have them: {"content": [{"token", "logprob", "bytes", "top_logprobs"}, ...]}."""
    return {"content": [one_logprob(chat, c.token, c.logp)
                        | {"top_logprobs": [one_logprob(chat, *pair) for pair in c.top]}
                        for c in chosen], "refusal": None}


def one_logprob(chat: Chat, token: int, logp: float) -> dict[str, Any]:
    name = token_name(chat, token)
    valid = not name.startswith("token_id:")
    return {"token": name, "logprob": json_number(logp), "bytes": list(name.encode()) if valid else None}


def generate_logprobs(chosen: Sequence[SampledToken]) -> dict[str, Any]:
    """The same, with tokens by their numbers."""
    def one(token: int, logp: float) -> dict[str, Any]:
        return {"token": f"token_id:{token}", "logprob": json_number(logp)}

    return {"content": [one(c.token, c.logp) | {"top_logprobs": [one(*pair) for pair in c.top]}
                        for c in chosen]}


def completion_logprobs(chat: Chat, sampled: Sequence[SampledToken | int], start: int = 0,
                        echoed: int = 0) -> dict[str, Any]:
    """In the format of completions: four lists, an item a token. A bare int is a token without a log-prob,
    the first of an echoed prompt. start: the text offset of the first token; echoed: how many tokens are the
    prompt's, whose special tokens are shown."""
    tokens = [c if isinstance(c, int) else c.token for c in sampled]
    offsets = []
    for part, decode in ((tokens[:echoed], partial(chat.tokenizer.decode, skip_special_tokens=False)),
                         (tokens[echoed:], chat.decode)):
        detokenizer = IncrementalDetokenizer(decode)
        for token in part:
            offsets.append(start + len(detokenizer.text))
            detokenizer.add(token)
        detokenizer.end()
        start += len(detokenizer.text)
    known = [None if isinstance(c, int) else c for c in sampled]
    return {"tokens": [token_name(chat, t) for t in tokens],
            "token_logprobs": [json_number(c.logp) if c else None for c in known],
            "top_logprobs": [logprobs_by_text(chat, c) if c else None for c in known] if any(
                c.top for c in known if c) else None,
            "text_offset": offsets}


def logprobs_by_text(chat: Chat, chosen: SampledToken) -> dict[str, float]:
    """The chosen token first, then the likeliest; a second one of the same text goes by its number."""
    by_text: dict[str, float] = {}
    for token, logp in {chosen.token: chosen.logp, **dict(chosen.top)}.items():
        name = token_name(chat, token)
        by_text[f"token_id:{token}" if name in by_text else name] = json_number(logp)
    return by_text


MOST_TOP, MOST_STOP, MOST_COUNT = 20, 16, 2**53
# values of fields that change nothing, which clients send
NEUTRAL: dict[str, tuple[object, ...]] = {
    "frequency_penalty": (0,), "presence_penalty": (0,), "repetition_penalty": (1,), "logit_bias": ({},),
    "best_of": (1,), "min_tokens": (0,), "suffix": ("",), "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"), "store": (False,), "prompt_logprobs": (), "user": (),
    "skip_special_tokens": (True,), "include_stop_str_in_output": (False,), "use_beam_search": (False,)}


@dataclass(frozen=True, kw_only=True)
class SamplingFields:
    """n, temperature, top_p, top_k, min_p, seed, stop, stop_token_ids and ignore_eos of a request."""

    n: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    seed: int
    stop: tuple[str, ...]
    stop_token_ids: tuple[int, ...]

    @classmethod
    def read(cls, body: RequestBody, served: ServedModel) -> SamplingFields:
        top_k = body.take("top_k", int, 0, low=-1, high=MOST_COUNT)
        temperature = body.take("temperature", float, 1.0, low=0, high=100)
        if 0 < temperature < COLDEST:
            body.refuse("temperature", f"is {temperature:g}, and has to be 0 or from {COLDEST:g} to 100")
        seed = body.take("seed", int, None, low=-2**63, high=2**63 - 1)
        ends = served.check_tokens(body.take("stop_token_ids", list, []), "stop_token_ids")
        natural = () if body.take("ignore_eos", bool, False) else served.chat.stop
        return cls(n=body.take("n", int, 1, low=1, high=served.worker.most),
                   temperature=temperature,
                   top_p=body.take("top_p", float, 1.0, low=1e-6, high=1), top_k=max(top_k, 0),
                   min_p=body.take("min_p", float, 0.0, low=0, high=0.999999),
                   seed=secrets.randbits(62) if seed is None else seed,
                   stop=body.texts("stop", MOST_STOP), stop_token_ids=tuple(dict.fromkeys((*natural, *ends))))

    def requests(self, new: int, prompt: int = 0, *, raw_logprobs: bool = False, top_logprobs: int = 0,
                 stream: bool = False, caching: Caching = "turns") -> list[Request]:
        """n requests for prompt number `prompt` of a call, of up to `new` tokens. The first reply to the
        first prompt has the call's seed, the others seeds derived from it."""
        sampling = Sampling(max_new_tokens=new, temperature=self.temperature, top_k=self.top_k,
                            top_p=self.top_p, min_p=self.min_p, stop=self.stop)
        first = Request(sampling=sampling, seed=self.seed, stop_token_ids=self.stop_token_ids,
                        raw_logprobs=raw_logprobs, top_logprobs=top_logprobs, stream=stream,
                        caching=caching)
        return [first.nth(i) for i in range(prompt * self.n, (prompt + 1) * self.n)]


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
        new = body.take("max_tokens", int, 16, low=0 if echo else 1, high=MOST_COUNT)
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
        """Requests all sequences, or none."""
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
        return self.envelope(choices) | {
            "usage": token_usage(sum(map(len, self.prompts)), sampled, self.pending)}

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
        """The response in chunks: prompt after prompt, the tokens of each as they come."""
        total = index = 0
        for pending in self.pending:
            unsent: list[list[SampledToken]] = [[] for _ in range(pending.count)]
            starts, counts = [0] * pending.count, [0] * pending.count
            async for i, sampled in pending:
                sequence, counts[i] = pending.sequences[i], counts[i] + len(sampled)
                ended = sequence.finish_reason is not None and counts[i] == len(sequence.sampled)
                unsent[i] += sampled
                total += len(sampled)
                if (text := sampled[-1].text) or ended:
                    yield self.envelope([self.chunk(index + i, text, unsent[i], starts[i],
                                                    sequence.finish_reason if ended else None)])
                    starts[i] += len(text)
                    unsent[i] = []
            index += pending.count
        if self.include_usage:
            yield self.envelope([]) | {
                "usage": token_usage(sum(map(len, self.prompts)), total, self.pending)}

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
            served.check_length(one, "prompt")
            prompts.append(await encode_text(served, one, special))
        elif isinstance(one, list):
            prompts.append(served.check_tokens(one, "prompt"))
        else:
            body.refuse("prompt", f"holds {shorten_value(one)}, and has to be {kind}")
    return prompts


async def encode_text(served: ServedModel, text: str, special: bool = False) -> list[int]:
    def encode() -> list[int]:  # a batch of one: other threads go on meanwhile
        return list(served.chat.tokenizer.encode_batch([text], add_special_tokens=special)[0].ids)

    check_text(text, "prompt")
    return encode() if len(text) < LONG else await run_in_threadpool(encode)


async def completions(request: HttpRequest) -> Response:
    call = await Completion.read(await read_body(request), request.app.state.served)
    if call.stream:
        call.ask()
        return EventStream(call.chunks(), call.drop, request.app.state.explain)
    return JSONResponse(await await_unless_closed(request, call.response(), call.drop))


# detokenize: there is no text either way; output_kind, stream: whole replies alone
GENERATE_NEUTRAL: dict[str, tuple[object, ...]] = {
    "detokenize": (True, False), "stream": (False,), "stream_options": (), "priority": (0,),
    "features": (), "kv_transfer_params": ()}


async def generate(request: HttpRequest) -> Response:
    served = request.app.state.served
    body = await read_body(request)
    served.check_name(body.take("model", str, None))
    prompt = served.check_tokens(body.take("token_ids", list), "token_ids")
    name = body.take("request_id", str, None) or f"generate-{uuid.uuid4().hex}"
    salted = body.take("cache_salt", str, None) is not None  # then its cache is shared with no other's
    inside = RequestBody(body.take("sampling_params", dict, {}), "sampling_params.")
    body.done(GENERATE_NEUTRAL)
    seeds = read_seeds(inside, served.worker.most)
    fields = SamplingFields.read(inside, served)
    top = inside.take("logprobs", int, None, low=0, high=MOST_TOP)
    new = served.reply_room(prompt, inside.take("max_tokens", int, 16, low=1, high=MOST_COUNT), "token_ids")
    inside.done(NEUTRAL | GENERATE_NEUTRAL)
    # the sampled token is reported in any case: 1 asks for no more
    requests = fields.requests(new, top_logprobs=top if top and top > 1 else 0,
                               caching="none" if salted else "prompts")
    pending = served.worker.ask(prompt, [replace(requests[0], seed=seed) for seed in seeds] or requests)
    sequences = await await_unless_closed(request, pending.finished(), lambda: served.worker.drop(pending))
    choices = [{"index": i, "token_ids": s.tokens, "finish_reason": s.finish_reason,
                "logprobs": None if top is None else generate_logprobs(s.sampled),
                **({"logp": [json_number(token.logp) for token in s.sampled]} if seeds else {}),
                "weight_versions": s.weight_versions} for i, s in enumerate(sequences)]
    return JSONResponse({"request_id": name, "choices": choices, "policy_step": served.version,
                         "weights": served.weights,
                         "usage": token_usage(len(prompt), sum(len(s.tokens) for s in sequences), [pending])})


def read_seeds(inside: RequestBody, most: int) -> list[int]:
    """The field seeds: one of each reply."""
    seeds: list[int] | None = inside.take("seeds", list, None)
    if seeds is None:
        return []
    if not 0 < len(seeds) <= most or not all(type(s) is int and -2**63 <= s < 2**63 for s in seeds):
        inside.refuse("seeds", f"has to be a list of 1 to {most} whole numbers of 64 bits")
    if any(inside.left.get(name) is not None for name in ("n", "seed")):
        inside.refuse("seeds", "stands in the place of n and seed: leave those out")
    return seeds


async def tokenize(request: HttpRequest) -> Response:
    served = request.app.state.served
    body = await read_body(request)
    served.check_name(body.take("model", str, None))
    if body.left.get("messages") is not None:
        talk = ChatMessages.read(body, served.chat)
        reply = body.take("add_generation_prompt", bool, True)
        body.done()
        text = talk.text if reply else rendered_text(served.chat, talk.messages, talk.tools, reply=False)
        tokens = await encode_text(served, text)
    else:
        text, special = body.take("prompt", str), body.take("add_special_tokens", bool, True)
        body.done()
        tokens = await encode_text(served, text, special)
    return JSONResponse({"count": len(tokens), "max_model_len": served.context, "tokens": tokens})


async def detokenize(request: HttpRequest) -> Response:
    served = request.app.state.served
    body = await read_body(request)
    served.check_name(body.take("model", str, None))
    tokens = served.check_tokens(body.take("tokens", list), "tokens")
    body.done()
    return JSONResponse({"prompt": served.chat.tokenizer.decode(tokens, skip_special_tokens=False)})

"""The routes of tokens, as vLLM has them: POST /inference/v1/generate, /tokenize and /detokenize.

generate takes tokens and returns tokens. Its log-probs are those of the distribution that was sampled from,
as training needs them. What vLLM has not: `seeds` in the place of n and seed, a reply for each, whose
log-probs are a list of numbers, `logp`.
"""

from __future__ import annotations

import uuid
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from postgrad.serving.completions import encode_text
from postgrad.serving.logprobs import generate_logprobs, json_number, token_usage
from postgrad.serving.messages import ChatMessages
from postgrad.serving.request_body import RequestBody, read_body
from postgrad.serving.sampling_fields import MOST_TOP, NEUTRAL, SamplingFields
from postgrad.serving.streaming import await_unless_closed

# detokenize: there is no text either way; output_kind, stream: whole replies alone
GENERATE_NEUTRAL: dict[str, tuple[object, ...]] = {
    "detokenize": (True, False), "stream": (False,), "stream_options": (), "priority": (0,),
    "features": (), "kv_transfer_params": ()}


async def generate(request: Request) -> Response:
    served = request.app.state.served
    body = await read_body(request)
    served.check_name(body.take("model", str, None))
    prompt = served.check_tokens(body.take("token_ids", list), "token_ids")
    name = body.take("request_id", str, None) or f"generate-{uuid.uuid4().hex}"
    body.take("cache_salt", str, None)  # no prompt's cache is shared between requests
    inside = RequestBody(body.take("sampling_params", dict, {}), "sampling_params.")
    body.done(GENERATE_NEUTRAL)
    seeds = read_seeds(inside, served.worker.most)
    fields = SamplingFields.read(inside, served)
    top = inside.take("logprobs", int, None, low=0, high=MOST_TOP)
    new = served.reply_room(prompt, inside.take("max_tokens", int, 16, low=1), "token_ids")
    inside.done(NEUTRAL | GENERATE_NEUTRAL)
    # the sampled token is reported in any case: 1 asks for no more
    requests = fields.requests(new, top_logprobs=top if top and top > 1 else 0)
    pending = served.worker.ask(prompt, [replace(requests[0], seed=seed) for seed in seeds] or requests)
    sequences = await await_unless_closed(request, pending.finished(), lambda: served.worker.drop(pending))
    choices = [{"index": i, "token_ids": s.tokens, "finish_reason": s.finish_reason,
                "logprobs": None if top is None else generate_logprobs(s.sampled),
                **({"logp": [json_number(token.logp) for token in s.sampled]} if seeds else {}),
                "weight_versions": s.weight_versions} for i, s in enumerate(sequences)]
    return JSONResponse({"request_id": name, "choices": choices, "policy_step": served.version,
                         "weights": served.weights,
                         "usage": token_usage(len(prompt), sum(len(s.tokens) for s in sequences))})


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


async def tokenize(request: Request) -> Response:
    served = request.app.state.served
    body = await read_body(request)
    served.check_name(body.take("model", str, None))
    if body.left.get("messages") is not None:
        talk = ChatMessages.read(body, served.chat)
        reply = body.take("add_generation_prompt", bool, True)
        body.done()
        tokens = talk.tokens(served.chat, reply=reply)
    else:
        text, special = body.take("prompt", str), body.take("add_special_tokens", bool, True)
        body.done()
        tokens = await encode_text(served, text, special)
    return JSONResponse({"count": len(tokens), "max_model_len": served.context, "tokens": tokens})


async def detokenize(request: Request) -> Response:
    served = request.app.state.served
    body = await read_body(request)
    served.check_name(body.take("model", str, None))
    tokens = served.check_tokens(body.take("tokens", list), "tokens")
    body.done()
    return JSONResponse({"prompt": served.chat.tokenizer.decode(tokens, skip_special_tokens=False)})

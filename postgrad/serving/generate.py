"""POST /inference/v1/generate, as vLLM has it: tokens in, tokens out, nothing encoded or decoded on the way.

The log-probs are those of the distribution that was sampled from, as training needs them. What vLLM has not:
`seeds` in the place of n and seed, a reply for each, whose log-probs are a plain list, `logp`.
"""

from __future__ import annotations

import uuid
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from postgrad.serving.body import Body, read_body
from postgrad.serving.replies import generate_logprobs, number, usage
from postgrad.serving.sampling import MOST_TOP, NEUTRAL, Choosing
from postgrad.serving.streams import whole

# detokenize: there is no text either way; output_kind, stream: whole replies alone
ASKS_NOTHING = {"detokenize": (True, False), "stream": (False,), "stream_options": (), "priority": (0,),
                "features": (), "kv_transfer_params": ()}


async def generate(request: Request) -> Response:
    served = request.app.state.served
    body = await read_body(request)
    served.check_name(body.take("model", str, None))
    prompt = served.check_tokens(body.take("token_ids", list), "token_ids")
    name = body.take("request_id", str, None) or f"generate-{uuid.uuid4().hex}"
    body.take("cache_salt", str, None)  # no prompt's cache is shared between requests
    inside = Body(body.take("sampling_params", dict, {}), "sampling_params.")
    body.done(ASKS_NOTHING)
    seeds = read_seeds(inside, served.worker.most)
    choosing = Choosing.read(inside, served)
    top = inside.take("logprobs", int, None, low=0, high=MOST_TOP)
    new = served.room(prompt, inside.take("max_tokens", int, 16, low=1), "token_ids")
    inside.done(NEUTRAL | ASKS_NOTHING)
    # the chosen token is told in any case: 1 asks for no more
    requests = choosing.requests(new, top=top if top and top > 1 else 0)
    asked = served.worker.ask(prompt, [replace(requests[0], seed=seed) for seed in seeds] or requests)
    rows = await whole(request, asked.ended(), lambda: served.worker.drop(asked))
    choices = [{"index": i, "token_ids": row.tokens, "finish_reason": row.end,
                "logprobs": None if top is None else generate_logprobs(row.sampled),
                **({"logp": [number(chosen.logp) for chosen in row.sampled]} if seeds else {}),
                "weight_versions": row.versions} for i, row in enumerate(rows)]
    return JSONResponse({"request_id": name, "choices": choices, "policy_step": served.version,
                         "weights": served.weights,
                         "usage": usage(len(prompt), sum(len(row.tokens) for row in rows))})


def read_seeds(inside: Body, most: int) -> list[int]:
    """The seed of each reply, where they are given."""
    seeds = inside.take("seeds", list, None)
    if seeds is None:
        return []
    if not 0 < len(seeds) <= most or not all(type(s) is int and -2**63 <= s < 2**63 for s in seeds):
        inside.refuse("seeds", f"has to be a list of 1 to {most} whole numbers of 64 bits")
    if any(inside.left.get(name) is not None for name in ("n", "seed")):
        inside.refuse("seeds", "stands in the place of n and seed: leave those out")
    return seeds

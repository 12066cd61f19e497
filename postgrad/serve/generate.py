"""POST /inference/v1/generate, as vLLM has it: tokens in, tokens out, nothing encoded or decoded on the way.

The log-probs are those of the distribution that was sampled from, as training needs them.
"""

from __future__ import annotations

import uuid

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from postgrad.serve.body import Body, read_body
from postgrad.serve.replies import generate_logprobs, usage
from postgrad.serve.sampling import MOST_TOP, NEUTRAL, Choosing
from postgrad.serve.streams import whole

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
    choosing = Choosing.read(inside, served)
    top = inside.take("logprobs", int, None, low=0, high=MOST_TOP)
    new = served.room(prompt, inside.take("max_tokens", int, 16, low=1), "token_ids")
    inside.done(NEUTRAL | ASKS_NOTHING)
    # the chosen token is told in any case: 1 asks for no more
    asked = served.worker.ask(prompt, choosing.requests(new, top=top if top and top > 1 else 0))
    rows = await whole(request, asked.ended(), lambda: served.worker.drop(asked))
    choices = [{"index": i, "token_ids": row.tokens, "finish_reason": row.end,
                "logprobs": None if top is None else generate_logprobs(row.sampled),
                "weight_versions": row.versions} for i, row in enumerate(rows)]
    return JSONResponse({"request_id": name, "choices": choices, "policy_step": served.version,
                         "weights": served.weights,
                         "usage": usage(len(prompt), sum(len(row.tokens) for row in rows))})

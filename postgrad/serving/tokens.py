"""POST /tokenize and /detokenize, as vLLM has them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from postgrad.serving.body import read_body
from postgrad.serving.completions import tokens_of
from postgrad.serving.messages import Conversation


async def tokenize(request: Request) -> Response:
    served = request.app.state.served
    body = await read_body(request)
    served.check_name(body.take("model", str, None))
    if body.left.get("messages") is not None:
        talk = Conversation.read(body, served.chat)
        reply = body.take("add_generation_prompt", bool, True)
        body.done()
        tokens = talk.tokens(served.chat, reply=reply)
    else:
        text, special = body.take("prompt", str), body.take("add_special_tokens", bool, True)
        body.done()
        tokens = await tokens_of(served, text, special)
    return JSONResponse({"count": len(tokens), "max_model_len": served.context, "tokens": tokens})


async def detokenize(request: Request) -> Response:
    served = request.app.state.served
    body = await read_body(request)
    served.check_name(body.take("model", str, None))
    tokens = served.check_tokens(body.take("tokens", list), "tokens")
    body.done()
    return JSONResponse({"prompt": served.chat.tokenizer.decode(tokens, skip_special_tokens=False)})

"""create_app: the routes, access control, every error in OpenAI's format."""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from postgrad.serving.chat_completions import chat_completions
from postgrad.serving.completions import completions, detokenize, generate, tokenize
from postgrad.serving.decode_worker import DecodeWorker, ServedModel
from postgrad.serving.request_body import Refusal
from postgrad.serving.weight_updates import WeightFeed, follow_weights
from postgrad.system.sockets import LOOPBACK, host_name, same_token


class AccessGuard:
    """ASGI middleware that refuses requests before any route sees them.

    On the loopback address no token is needed, and cross-site requests of a browser are refused: Host must
    be a name of this machine, and Origin, where a browser names one, this server. Elsewhere every request
    brings `Authorization: Bearer TOKEN`, which no page knows.
    """

    def __init__(self, app: ASGIApp, *, token: str | None):
        assert token is None or len(token) >= 16, "a short token can be guessed"
        self.app, self.token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (refusal := self.refusal(scope)):
            return await refusal.response()(scope, receive, send)
        assert scope["type"] in ("http", "lifespan"), "no route speaks anything else"
        await self.app(scope, receive, send)

    def refusal(self, scope: Scope) -> Refusal | None:
        headers = Headers(scope=scope)
        if self.token is not None:
            kind, _, token = headers.get("authorization", "").partition(" ")
            key, _, _ = headers.get("x-api-key", "").partition(".")  # TOKEN, or TOKEN.NAME
            bearer = token.strip() if kind.lower() == "bearer" else ""
            if same_token(key, self.token) or same_token(bearer, self.token):
                return None
            return Refusal("this server needs a token: send the header Authorization: Bearer TOKEN, with the "
                           "token that `postgrad serve` printed.", 401, code="invalid_api_key")
        host, origin = headers.get("host", ""), headers.get("origin")
        if host_name(host) not in LOOPBACK:
            return Refusal("this server does not go by that name: use the address that `postgrad serve` "
                           "printed.", 421)
        if origin not in (None, f"{scope['scheme']}://{host}"):
            return Refusal("a page of another address may not ask this server.", 403)
        return None


async def list_models(request: Request) -> Response:
    return JSONResponse({"object": "list", "data": [model_info(request.app.state.served)]})


async def get_model(request: Request) -> Response:
    request.app.state.served.check_name(request.path_params["name"])
    return JSONResponse(model_info(request.app.state.served))


def model_info(served: ServedModel) -> dict[str, object]:
    return {"id": served.name, "object": "model", "created": served.began, "owned_by": "postgrad",
            "max_model_len": served.context, "policy_step": served.version}


async def health(request: Request) -> Response:
    served = request.app.state.served
    state = await served.worker.health()
    return JSONResponse({"model": served.name, "weights": served.weights, **state},
                        200 if state["status"] == "ok" else 503)


Lifespan = Callable[[Starlette], AbstractAsyncContextManager[None]]
ROUTES = [Route("/v1/models", list_models, methods=["GET"]),
          Route("/v1/models/{name:path}", get_model, methods=["GET"]),
          Route("/v1/chat/completions", chat_completions, methods=["POST"]),
          Route("/v1/completions", completions, methods=["POST"]),
          Route("/inference/v1/generate", generate, methods=["POST"]),
          Route("/tokenize", tokenize, methods=["POST"]), Route("/detokenize", detokenize, methods=["POST"]),
          Route("/health", health, methods=["GET"])]


class Endpoint(Starlette):
    """A Starlette app whose access guard wraps its error pages too."""

    def build_middleware_stack(self) -> ASGIApp:
        return AccessGuard(super().build_middleware_stack(), token=self.state.token)


def create_app(served: ServedModel, *, token: str | None = None, source: WeightFeed | None = None,
               every: float = 2.0) -> Starlette:
    """The endpoint of a model. token: who else may ask; without one, this machine alone. source: where newer
    weights are looked for, every so many seconds. What is in state.closing is awaited before the worker
    stops."""
    @asynccontextmanager
    async def life(app: Starlette) -> AsyncIterator[None]:
        served.worker.start()
        task = None
        if source and isinstance(served.worker, DecodeWorker):
            task = asyncio.create_task(follow_weights(served, served.worker, source, every))
        yield
        if task:
            task.cancel()
        for close in app.state.closing:
            await close()
        await asyncio.to_thread(served.worker.stop)

    return build_endpoint(ROUTES, served, token=token, lifespan=life)


def build_endpoint(routes: list[Route], served: ServedModel, *, token: str | None = None,
                   lifespan: Lifespan | None = None) -> Starlette:
    """Routes behind the access guard, with every error in OpenAI's format."""
    handlers = {Refusal: on_refusal, HTTPException: on_http_exception, Exception: on_error}
    app = Endpoint(routes=routes, exception_handlers=handlers, lifespan=lifespan)
    app.state.served, app.state.token, app.state.explain = served, token, as_refusal
    app.state.closing = []
    return app


def as_refusal(error: Exception) -> Refusal:
    """What a client sees of an error; the traceback goes to the terminal."""
    if isinstance(error, Refusal):
        return error
    traceback.print_exception(error, file=sys.stderr)
    what = str(error) if isinstance(error, ValueError) else type(error).__name__
    return Refusal(f"the server failed: {what} (the terminal in which it runs has the details).", 500)


def on_refusal(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return error.response()


def on_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    paths = sorted(route.path for route in request.app.routes)
    sentence = {404: f"nothing is at {request.url.path[:100]}; there are {', '.join(paths)}.",
                405: f"{request.url.path[:100]} does not take {request.method[:20]}."}
    answer = Refusal(sentence.get(error.status_code, error.detail), error.status_code).response()
    answer.headers.update(error.headers or {})
    return answer


def on_error(request: Request, error: Exception) -> Response:
    return as_refusal(error).response()

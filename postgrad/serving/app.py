"""create_app: the routes, the guard around them, every fault as a sentence in OpenAI's shape."""

from __future__ import annotations

import asyncio
import sys
import traceback
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from postgrad.resolve.handles import gpu_of
from postgrad.serving.chat_completions import chat_completions
from postgrad.serving.completions import completions
from postgrad.serving.errors import Refusal
from postgrad.serving.follow import Newer, follow
from postgrad.serving.generate import generate
from postgrad.serving.guard import Guard
from postgrad.serving.served import Served
from postgrad.serving.tokens import detokenize, tokenize


async def models(request: Request) -> Response:
    return JSONResponse({"object": "list", "data": [card(request.app.state.served)]})


async def model(request: Request) -> Response:
    request.app.state.served.check_name(request.path_params["name"])
    return JSONResponse(card(request.app.state.served))


def card(served: Served) -> dict:
    return {"id": served.name, "object": "model", "created": served.began, "owned_by": "postgrad",
            "max_model_len": served.context, "policy_step": served.version}


async def health(request: Request) -> Response:
    """How it is: slots in all and free, how many rows may wait for one, rows that are written or wait, the
    step of the weights, the GPU."""
    served = request.app.state.served
    slots, worker = served.worker.slots, served.worker
    alive = worker.thread.is_alive() and not worker.stopping
    return JSONResponse({"status": "ok" if alive else "stopped", "model": served.name,
                         "policy_step": served.version, "weights": served.weights,
                         "gpu": gpu_of(slots.device),
                         "slots": slots.rows, "free": len(slots.free), "queue": worker.most - slots.rows,
                         "asked": worker.open},
                        200 if alive else 503)


ROUTES = [Route("/v1/models", models, methods=["GET"]),
          Route("/v1/models/{name:path}", model, methods=["GET"]),
          Route("/v1/chat/completions", chat_completions, methods=["POST"]),
          Route("/v1/completions", completions, methods=["POST"]),
          Route("/inference/v1/generate", generate, methods=["POST"]),
          Route("/tokenize", tokenize, methods=["POST"]), Route("/detokenize", detokenize, methods=["POST"]),
          Route("/health", health, methods=["GET"])]


class Endpoint(Starlette):
    """A Starlette app whose guard stands outside its error pages too."""

    def build_middleware_stack(self) -> ASGIApp:
        return Guard(super().build_middleware_stack(), token=self.state.token)


def create_app(served: Served, *, token: str | None = None, newer: Newer | None = None,
               every: float = 2.0) -> Starlette:
    """The endpoint of what is served. token: who else may ask; without one, this machine alone. newer: where
    newer weights are looked for, every so many seconds."""
    @asynccontextmanager
    async def life(app: Starlette):
        served.worker.start()
        task = asyncio.create_task(follow(served, newer, every)) if newer else None
        yield
        if task:
            task.cancel()
        await asyncio.to_thread(served.worker.stop)

    return endpoint(ROUTES, served, token=token, lifespan=life)


def endpoint(routes: list[Route], served: Served, *, token: str | None = None, **more) -> Starlette:
    """Routes on what is served, guarded, with every fault as a sentence."""
    app = Endpoint(routes=routes, exception_handlers={Refusal: refused, HTTPException: failed,
                                                      Exception: broken}, **more)
    app.state.served, app.state.token, app.state.explain = served, token, explain
    return app


def explain(error: Exception) -> Refusal:
    """What a client is told of a fault; what is ours is written to the terminal."""
    if isinstance(error, Refusal):
        return error
    traceback.print_exception(error, file=sys.stderr)
    said = str(error) if isinstance(error, ValueError) else type(error).__name__
    return Refusal(f"the server failed: {said} (the terminal in which it runs has the details).", 500)


def refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refusal)
    return error.answer()


def failed(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    paths = sorted(route.path for route in request.app.routes)
    sentence = {404: f"nothing is at {request.url.path[:100]}; there are {', '.join(paths)}.",
                405: f"{request.url.path[:100]} does not take {request.method[:20]}."}
    answer = Refusal(sentence.get(error.status_code, error.detail), error.status_code).answer()
    answer.headers.update(error.headers or {})
    return answer


def broken(request: Request, error: Exception) -> Response:
    return explain(error).answer()

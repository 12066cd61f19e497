"""create_app: the routes of every area, the guard around them, errors as pages with a sentence."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Scope

from postgrad.studio import home, reference
from postgrad.studio.book import web as book
from postgrad.studio.cells import web as lab
from postgrad.studio.exercises import web as exercise_pages
from postgrad.studio.instruments import label_dpo
from postgrad.studio.instruments import pipeline_replies as pipeline_ask
from postgrad.studio.instruments import web as instruments
from postgrad.studio.label import web as label
from postgrad.studio.pages import STATIC, fragment, full_page, wants_fragment
from postgrad.studio.runs import launch, live
from postgrad.studio.runs import web as runs
from postgrad.studio.security import RequestGuard

# launch before runs: /runs/new is no run
AREAS = (home, book, instruments, pipeline_ask, label_dpo, live, launch, runs, label, lab,
         exercise_pages, reference)
WORDS = {400: "That can’t be done", 403: "Not allowed", 404: "There is no such page", 405: "Not that way",
         413: "Too long", 415: "Not a form", 500: "Something went wrong here"}


class Studio(Starlette):
    """A Starlette app whose guard stands outside the pages for errors too."""

    def build_middleware_stack(self) -> ASGIApp:
        return RequestGuard(super().build_middleware_stack(), token=self.state.token, hosts=self.state.hosts)


class StaticAssets(StaticFiles):
    """Files whose address has a hash (`asset`) may be kept; the others are asked for again."""

    def file_response(self, full_path: str | os.PathLike[str], stat_result: os.stat_result, scope: Scope,
                      status_code: int = 200) -> Response:
        answer = super().file_response(full_path, stat_result, scope, status_code)
        kept = scope["query_string"].startswith(b"v=") or str(full_path).endswith(".woff2")
        answer.headers["Cache-Control"] = "private, max-age=31536000, immutable" if kept else "no-cache"
        return answer


def all_routes() -> list[BaseRoute]:
    return [route for area in AREAS for route in area.routes]


def create_studio(
    *, runs: Path, token: str, hosts: Sequence[str], store: Path | None = None, loopback: bool = True,
) -> Starlette:
    """The studio over a folder of runs. hosts: the names it answers to, without port. store: the preferences
    (default: beside the runs). loopback: False when others can reach the port,
    and so what runs code is refused."""
    app = Studio(routes=[*all_routes(), Mount("/static", StaticAssets(directory=STATIC), name="static")],
                 exception_handlers={HTTPException: http_error_page, ValueError: value_error_page,
                                     Exception: exception_page})
    app.state.runs, app.state.token, app.state.hosts = Path(runs), token, tuple(hosts)
    app.state.store = Path(store) if store else Path("preferences.db")
    app.state.loopback = loopback
    return app


def error_page(request: Request, status: int, sentence: str) -> Response:
    title = WORDS.get(status, f"Status {status}")
    if wants_fragment(request):
        return fragment(request, "sentence.html", status=status, title=title, sentence=sentence)
    return full_page(request, "error.html", status=status, code=status, title=title, sentence=sentence)


def http_error_page(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    plain = {404: f"Nothing is at {request.url.path}.",
             405: f"{request.url.path} does not take {request.method}."}
    bare = error.detail in ("Not Found", "Method Not Allowed")  # Starlette's own words
    answer = error_page(request, error.status_code,
                        plain.get(error.status_code, error.detail) if bare else error.detail)
    answer.headers.update(error.headers or {})
    return answer


def value_error_page(request: Request, error: Exception) -> Response:
    """A ValueError is a sentence for people."""
    return error_page(request, 400, str(error))


def exception_page(request: Request, error: Exception) -> Response:
    return error_page(request, 500,
                      f"The studio failed with {type(error).__name__}; the terminal in which it runs "
                      "has the details. Nothing that was saved is lost.")

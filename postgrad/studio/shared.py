"""What several areas share: the store, things that live as long as the app, forms handled in a thread,
what needs loopback."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import ImmutableMultiDict
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from postgrad.data.store import Store
from postgrad.studio.pages import fields

_MAKING = Lock()


@contextmanager
def open_store(request: Request) -> Iterator[Store | None]:
    """The store, or None where there is none yet: looking at a page makes no file."""
    path = request.app.state.store
    if not path.is_file():
        yield None
    else:
        with Store.open(path, create=False) as store:
            yield store


def app_object(request: Request, name: str, make: Callable):
    """What belongs to the app as long as it runs, made when it is first needed."""
    state = request.app.state
    with _MAKING:
        if not hasattr(state, name):
            setattr(state, name, make(state.store))
    return getattr(state, name)


def why_closed(request: Request, why: str) -> str:
    """Whatever runs code of the asker's choice is closed where other machines can reach the port:
    the sentence, or ""."""
    return "" if request.app.state.loopback else (
        f"{why}, so this is switched off while the studio listens to other machines: start it without "
        "--host to use it.")


def require_own_machine(request: Request, why: str) -> None:
    if said := why_closed(request, why):
        raise HTTPException(403, said)


def form_handler(act: Callable[[Request, ImmutableMultiDict], Response], limit: int = 1_000_000):
    """A handler of forms whose work is done in a thread; fields["x"] is the last x."""
    async def handler(request: Request) -> Response:
        return await run_in_threadpool(act, request, ImmutableMultiDict(await fields(request, limit)))
    return handler

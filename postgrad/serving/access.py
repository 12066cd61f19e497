"""Who may ask: this machine alone, or whoever has the token.

On the loopback address no token is needed, and cross-site requests of a browser are refused:
  Host      must be a name of this machine (no page can point its own name at this server)
  Origin    where a browser names one, it must be this server
Elsewhere every request brings `Authorization: Bearer TOKEN`, which no page knows.
"""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from postgrad.serving.errors import Refusal
from postgrad.system.sockets import LOOPBACK, host_name, same_token


class AccessGuard:
    """ASGI middleware that refuses requests before any route sees them."""

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
            if kind.lower() == "bearer" and same_token(token.strip(), self.token):
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

"""Who may ask the studio for anything, and what every answer tells the browser.

The guard stands outside everything, static files and error pages included:
  Host      must be one of ours: a page of another site can't point its own name at this server (DNS
            rebinding)
  Origin    where the browser names one, it must be this server; so must Sec-Fetch-Site on what is not a visit
  token     in an HttpOnly SameSite=Strict cookie; the start address, which has it in its query, exchanges it
            for the cookie
  X-Postgrad: 1   on every request that is not a GET or HEAD: a header that a form of another site can't send

Left out on purpose: users and passwords. The token's holder may do all that the owner may.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from urllib.parse import parse_qs, quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from postgrad.system.sockets import host_name, same_token

COOKIE, START = "postgrad", "/start"
SANDBOXED = "sandbox"
REFUSED = """<!doctype html><html lang="en">
<meta charset="utf-8"><meta name="color-scheme" content="light dark">
<title>postgrad studio</title><h1>{status}</h1><p>{sentence}</p></html>"""


def start_url(origin: str, token: str) -> str:
    return f"{origin}{START}?token={quote(token)}"


EXPORT_POLICY = ("default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
                 "font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'")
# of a page that runs Python itself: compiled code, in a worker that the page makes; the worker inherits it
ENGINE_POLICY = EXPORT_POLICY.replace("script-src 'self'", "script-src 'self' 'wasm-unsafe-eval'").replace(
    "connect-src 'self'", "connect-src 'none'") + "; worker-src 'self' blob:"


def answer_headers(nonce: str) -> dict[str, str]:
    """What every answer carries.

    The nonce is for style elements that a script makes (CodeMirror); scripts come from files.
    """
    policy = (f"default-src 'none'; script-src 'self'; style-src 'self' 'nonce-{nonce}'; img-src 'self' "
              "data:; font-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
              "frame-ancestors 'none'")
    return {"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY",
            "Referrer-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Permissions-Policy": "camera=(), microphone=(), geolocation=()"}


class RequestGuard:
    """An ASGI app around the studio. `hosts` are names without a port."""

    def __init__(self, app: ASGIApp, *, token: str, hosts: Sequence[str]):
        assert len(token) >= 16, "a short token can be guessed"
        self.app, self.token, self.hosts = app, token, {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            raise ValueError(f"the studio speaks HTTP, not {scope['type']}.")
        nonce = secrets.token_urlsafe(16)
        scope.setdefault("state", {})["nonce"] = nonce

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                own = headers.get("content-security-policy", "")
                headers.update(answer_headers(nonce))
                if own.startswith(f"{SANDBOXED};"):  # no script, form or origin: less than any page of ours
                    headers["Content-Security-Policy"] = own
                if "cache-control" not in headers:
                    headers["Cache-Control"] = "no-store"
            await send(message)

        early = self.judge(scope)
        await (self.app if early is None else early)(scope, receive, send_guarded)

    def judge(self, scope: Scope) -> Response | None:
        """None to let the request through, or the answer that stands in its place."""
        headers, reads = Headers(scope=scope), scope["method"] in ("GET", "HEAD")
        host = headers.get("host", "")
        if host_name(host) not in self.hosts:
            return refuse(421, "This server does not go by that name. Open the address that `postgrad "
                          "studio` printed.")
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        if origin not in (None, f"{scope['scheme']}://{host}"):
            return refuse(403, "A page of another address may not ask the studio for anything.")
        visit = reads and headers.get("sec-fetch-mode", "navigate") == "navigate"
        if site not in ("none", "same-origin") and not visit:
            return refuse(403, "A page of another address may not ask the studio for anything.")
        if scope["path"] == START and reads:
            return self.start(scope)
        if not self.knows(cookie_parser(headers.get("cookie", "")).get(COOKIE, "")):
            return refuse(401, "The studio does not know this browser. Open the address that `postgrad "
                          "studio` printed.")
        if not reads and headers.get("x-postgrad") != "1":
            return refuse(403, "A request that changes something needs the header X-Postgrad: 1.")
        return None

    def knows(self, token: str) -> bool:
        return same_token(token, self.token)

    def start(self, scope: Scope) -> Response:
        """The token in the address becomes a cookie, and the address is left behind."""
        token = parse_qs(scope["query_string"].decode("latin-1")).get("token", [""])[0]
        if not self.knows(token):
            return refuse(401,
                          "This is not the studio's token. Open the address that `postgrad studio` printed.")
        answer = RedirectResponse("/", status_code=303)
        answer.set_cookie(COOKIE, self.token, httponly=True, samesite="strict", max_age=90 * 24 * 3600)
        return answer


def refuse(status: int, sentence: str) -> Response:
    return Response(REFUSED.format(status=status, sentence=sentence), status,
                    media_type="text/html; charset=utf-8")

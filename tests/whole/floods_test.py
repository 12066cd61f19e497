"""Bodies that never end, never come or break off, at every route of every server that takes one; and one
server for all of them, which 500 silent connections do not stall."""

import asyncio
import http.client
import re
import socket

import pytest
from paths import ROOT
from starlette.routing import Mount
from web_small import on_a_port

from postgrad.models import find_model
from postgrad.resolve.models import open_writer
from postgrad.serving import request_body
from postgrad.serving.agents.episode_server import EpisodeServer
from postgrad.serving.app import create_app
from postgrad.serving.decode_worker import ServedModel
from postgrad.serving.tinker import routes as tinker_routes
from postgrad.serving.tinker.routes import add_tinker
from postgrad.serving.tinker.service import TinkerService
from postgrad.studio import pages
from postgrad.studio.app import create_studio
from postgrad.studio.security import COOKIE
from postgrad.system import web_server

PART = bytes(2**22)
TOKEN = "the-token-of-the-owner-of-this-studio"
MOST = {"studio": 2**24, "endpoint": 2**24, "passes": tinker_routes.LARGEST_PASS,
        "episodes": request_body.LARGEST}  # bytes that are read of any body


@pytest.fixture(scope="module")
def apps(tmp_path_factory):
    """Each server's app, and the headers of a client that it lets in."""
    folder = tmp_path_factory.mktemp("floods")
    net, chat = open_writer("tiny-chat")
    served = ServedModel.of(net.requires_grad_(False), chat, "small", rows=2, context=64, waiting=4)
    endpoint = create_app(served)
    add_tinker(endpoint, TinkerService(served, net, str(find_model("tiny-chat")), folder / "tinker"))
    studio = create_studio(runs=folder / "runs", token=TOKEN, hosts=("localhost",), store=folder / "p.db")
    with EpisodeServer(chat, 512, 64) as server:
        key = server.open().key
        app = server.server.config.app
        yield {"endpoint": (endpoint, {"content-type": "application/json", "x-api-key": "tml-a"}),
               "passes": (endpoint, {"content-type": tinker_routes.PROTOBUF, "x-api-key": "tml-a"}),
               "studio": (studio, {"content-type": "application/x-www-form-urlencoded", "x-postgrad": "1",
                                   "cookie": f"{COOKIE}={TOKEN}"}),
               "episodes": (app, {"content-type": "application/json", "authorization": f"Bearer {key}"})}


def written_to(routes, before=""):
    """(method, path) of every route that is not only read."""
    for route in routes:
        path = before + re.sub(r"\{[^}]*\}", "x", route.path)
        if isinstance(route, Mount):
            yield from written_to(route.routes or (), path)
        else:
            yield from ((method, path) for method in sorted((route.methods or set()) - {"GET", "HEAD"}))


async def request_status(app, method, path, headers, receive):
    """The status of its answer."""
    statuses = []

    async def send(message):
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    scope = {"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": method,
             "scheme": "http", "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
             "server": ("localhost", 80), "client": ("127.0.0.1", 9),
             "headers": [(b"host", b"localhost"),
                         *((name.encode(), value.encode()) for name, value in headers.items())]}
    async with asyncio.timeout(60):
        await app(scope, receive, send)
    return statuses[0] if statuses else None


def at_every_route(apps, name, source):
    """path -> (status, what was received), a client for each route. source: makes its `receive`."""
    app, headers = apps[name]
    found = {}

    async def all_routes():
        for method, path in sorted(set(written_to(app.routes))):
            receive, received = source()
            found[method, path] = await request_status(app, method, path, headers, receive), received

    asyncio.run(all_routes())
    assert len(found) >= {"studio": 10, "episodes": 1}.get(name, 20)
    return found


@pytest.mark.parametrize("name", MOST)
def test_a_body_that_does_not_end_is_read_to_the_limit_and_refused(apps, name):
    def endless():
        received = []

        async def receive():
            received.append(len(PART))
            return {"type": "http.request", "body": PART, "more_body": True}

        return receive, received

    found = at_every_route(apps, name, endless)
    assert {where: status for where, (status, received) in found.items()
            if status is None or status >= 500 or sum(received) > MOST[name] + len(PART)} == {}
    assert sum(status == 413 for status, _ in found.values()) >= {"episodes": 1, "passes": 1}.get(name, 5)


@pytest.mark.parametrize("name", MOST)
def test_a_body_that_does_not_come_is_not_waited_for(apps, name, monkeypatch):
    for module in (request_body, tinker_routes, pages):
        monkeypatch.setattr(module, "PATIENCE", 0.0)

    def never():
        return asyncio.Event().wait, []

    found = at_every_route(apps, name, never)
    assert {where: status for where, (status, _) in found.items() if status is None or status >= 500} == {}
    assert any(status == 408 for status, _ in found.values())


@pytest.mark.parametrize("name", MOST)
def test_who_breaks_off_is_no_fault_of_the_server(apps, name, capfd):
    def gone():
        async def receive():
            return {"type": "http.disconnect"}

        return receive, []

    found = at_every_route(apps, name, gone)
    assert {where: status for where, (status, _) in found.items() if (status or 0) >= 500} == {}
    assert "Traceback" not in capfd.readouterr().err


def test_every_server_is_the_one_that_has_limits():
    """No other file of the package makes one of uvicorn's, or of another package."""
    made = re.compile(r"^\s*(?:from|import)\s+(?:uvicorn|hypercorn|aiohttp|http\.server|socketserver)\b",
                      re.MULTILINE)
    found = {str(path.relative_to(ROOT / "postgrad")) for path in (ROOT / "postgrad").rglob("*.py")
             if made.search(path.read_text())}
    assert found == {"system/web_server.py"}


def test_500_silent_connections_and_header_floods_keep_nobody_out(apps):
    with on_a_port(apps["studio"][0]) as port:
        opened = [socket.create_connection(("127.0.0.1", port)) for _ in range(500)]
        for number, one in enumerate(opened):
            one.sendall((b"", b"GET / HTT", b"GET / HTTP/1.1\r\nX: ", b"\x16\x03\x01")[number % 4])
        flood = socket.create_connection(("127.0.0.1", port))
        headers = b"".join(b"X%d: a\r\n" % i for i in range(web_server.MOST_HEADERS + 1))
        flood.sendall(b"GET / HTTP/1.1\r\n" + headers + b"\r\n")
        assert flood.recv(12) == b"HTTP/1.1 400"
        client = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        client.request("GET", "/", headers={"Host": "localhost", "Cookie": f"{COOKIE}={TOKEN}"})
        assert client.getresponse().status == 200
        for connection in (client, flood, *opened):
            connection.close()

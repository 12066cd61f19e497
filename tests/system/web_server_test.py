"""A server whose clients are silent, slow, too many, or speak no HTTP."""

import http.client
import logging
import socket
from types import SimpleNamespace

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from web_small import on_a_port

from postgrad.system import web_server
from postgrad.system.web_server import WatchedConnection, http_server


async def count_body(request):
    return PlainTextResponse(f"{len(await request.body())} bytes")


APP = Starlette(routes=[Route("/", lambda request: PlainTextResponse("here")),
                        Route("/body", count_body, methods=["POST"])])


class Clock:
    """A loop whose time is set by hand."""

    def __init__(self):
        self.now, self.later = 0.0, []

    def time(self):
        return self.now

    def call_later(self, seconds, call, *args):
        self.later.append((self.now + seconds, call, args))
        return SimpleNamespace(cancel=lambda: None)

    def until(self, moment):
        while due := sorted((t for t in self.later if t[0] <= moment), key=lambda t: t[0]):
            self.later.remove(due[0])
            self.now = due[0][0]
            due[0][1](*due[0][2])
        self.now = moment


class Wire:
    """A transport that keeps what is written; unsent: bytes that the client has not taken."""

    def __init__(self):
        self.written, self.open, self.unsent = b"", True, 0

    def write(self, data):
        self.written += data

    def close(self):
        self.open = False

    abort = close

    def is_closing(self):
        return not self.open

    def get_write_buffer_size(self):
        return self.unsent

    def get_extra_info(self, name):
        return None

    def pause_reading(self):
        return None

    resume_reading = pause_reading


@pytest.fixture
def connect():
    """connect() -> a new connection of one server, and its wire; connect.clock: the server's."""
    server, clock = http_server(APP), Clock()
    server.config.load()

    def connected():
        made, wire = WatchedConnection(server.config, server.server_state, {}, clock), Wire()
        made.connection_made(wire)
        return made, wire

    connected.clock = clock
    return connected


def test_who_asks_nothing_is_left_however_slowly_it_goes_on(connect):
    (_, silent), (dribbling, wire) = connect(), connect()
    for second, byte in enumerate(b"GET / HTTP/1.1\r\nX-Slow: aaaaaaaaaaaaa"):
        connect.clock.until(second)
        if wire.open:
            dribbling.data_received(bytes([byte]))
    assert not silent.open and not wire.open and connect.clock.now > web_server.PATIENCE


def test_a_request_may_take_its_time_and_an_answer_has_to_be_taken(connect):
    made, wire = connect()
    made.cycle = SimpleNamespace(response_complete=False)
    connect.clock.until(500)
    assert wire.open
    wire.unsent = 9_000  # what is left of an answer shrinks: a slow reader, and then one that has stopped
    for second in range(500, 600, 10):
        wire.unsent -= 500
        connect.clock.until(second)
    assert wire.open
    connect.clock.until(700)
    assert not wire.open


def test_the_most_silent_makes_room_and_who_is_at_work_does_not(connect, monkeypatch):
    monkeypatch.setattr(web_server, "MOST_CONNECTIONS", 2)
    (busy, one), (_, two) = connect(), connect()
    busy.cycle = SimpleNamespace(response_complete=False)
    connect.clock.until(1)
    last, three = connect()
    assert one.open and not two.open and three.open and len(last.connections) == 2
    last.cycle = busy.cycle
    _, refused = connect()
    assert not refused.open and refused.written == web_server.BUSY and three.open
    head, body = web_server.BUSY.split(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head


@pytest.mark.parametrize("request_bytes", [
    b"GET / HTTP/1.1\r\nHost: a\r\n" + b"".join(b"X%d: a\r\n" % i for i in range(101)) + b"\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 2**17, b"\x16\x03\x01 tls", b"GET /\xff HTTP/1.1\r\n\r\n",
    b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 1, 2\r\n\r\n"],
    ids=["101 headers", "long header", "tls", "target", "lengths"])
def test_what_is_no_request_is_answered_and_not_logged(connect, request_bytes, caplog):
    made, wire = connect()
    with caplog.at_level(logging.INFO):
        made.data_received(request_bytes)
    assert wire.written.startswith(b"HTTP/1.1 400 ") and not wire.open and not caplog.records


def test_many_silent_connections_keep_nobody_out(monkeypatch):
    monkeypatch.setattr(web_server, "MOST_CONNECTIONS", 8)
    with on_a_port(APP) as port:
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
        asked = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        asked.request("GET", "/")
        assert asked.getresponse().read() == b"here"
        for connection in (asked, *silent):
            connection.close()


def test_a_body_that_is_none_ends_its_connection_alone(capfd):
    with on_a_port(APP) as port, socket.create_connection(("127.0.0.1", port), timeout=20) as broken:
        broken.sendall(b"POST /body HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n")
        broken.sendall(b"no length\r\n")
        assert ends(broken)
        asked = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        asked.request("POST", "/body", b"12345")
        assert asked.getresponse().read() == b"5 bytes"
        asked.close()
    assert "Traceback" not in capfd.readouterr().err


def ends(connection):
    try:
        while connection.recv(4096):
            continue
    except ConnectionResetError:
        return True
    return True


def test_no_more_connections_than_half_the_files(monkeypatch):
    limits = [256, 4096]
    monkeypatch.setattr(web_server.resource, "getrlimit", lambda what: tuple(limits))
    monkeypatch.setattr(web_server.resource, "setrlimit", lambda what, pair: limits.__setitem__(0, pair[0]))
    assert web_server.most_connections() == 128
    web_server.allow_connections()
    assert limits[0] == 2048 and web_server.most_connections() == 1024
    limits[:] = [web_server.resource.RLIM_INFINITY] * 2
    web_server.allow_connections()
    assert limits[0] == web_server.resource.RLIM_INFINITY and web_server.most_connections() == 1024

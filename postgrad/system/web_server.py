"""An HTTP server that clients cannot stall or flood.

A connection without a running request is closed after PATIENCE seconds, however slowly it goes on sending;
so is one that takes nothing of its answer. Where there are too many connections, the one that has been
silent longest makes room for a new one. Requests that are no HTTP are answered, and not logged.
Left out on purpose: the time that a body may take, which is the routes' own.
"""

from __future__ import annotations

import asyncio
import logging
import resource
from typing import Any

import h11
from starlette.types import ASGIApp
from uvicorn import Config, Server
from uvicorn.protocols.http.h11_impl import H11Protocol

PATIENCE = 30.0          # seconds
CHECK = 2.0              # seconds between two looks at a connection
MOST_CONNECTIONS = 1024  # fewer where the process may open few files
MOST_HEADERS = 100       # of a request
HEADER_BYTES = 2**16     # of all of them
BACKLOG = 128            # connections that are accepted at once
BUSY = (b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 1\r\nConnection: close\r\n"
        b"Content-Type: text/plain; charset=utf-8\r\nContent-Length: 40\r\n\r\n"
        b"Too many connections: try again shortly.")
FAULTS = logging.getLogger("postgrad.web")
FAULTS.setLevel(logging.ERROR)


class LimitedRequests(h11.Connection):
    """Requests of few headers; others are no HTTP."""

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request) and len(event.headers) > MOST_HEADERS:
            raise h11.RemoteProtocolError(f"{len(event.headers)} headers", error_status_hint=431)
        return event


class WatchedConnection(H11Protocol):
    """since: the time at which it last got something done; unsent: bytes of its answer that wait."""

    def __init__(self, *given: Any, **settings: Any):
        super().__init__(*given, **settings)
        self.logger, self.conn = FAULTS, LimitedRequests(h11.SERVER, HEADER_BYTES)
        self.since, self.unsent = self.loop.time(), 0

    @property
    def is_at_work(self) -> bool:
        """Whether a request is being answered."""
        return self.cycle is not None and not self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        if len(self.connections) >= most_connections() and not self.drop_silent():
            self.transport = transport
            transport.write(BUSY)
            transport.close()
            return
        super().connection_made(transport)
        self.watch()

    def drop_silent(self) -> bool:
        """Closes the connection that has been silent longest; False where all are at work."""
        silent = [other for other in self.connections
                  if isinstance(other, WatchedConnection) and not other.is_at_work]
        if not silent:
            return False
        oldest = min(silent, key=lambda other: other.since)
        self.connections.discard(oldest)
        oldest.transport.abort()
        return True

    def watch(self) -> None:
        if self.transport.is_closing() and not self.transport.get_write_buffer_size():
            return
        now, unsent = self.loop.time(), self.transport.get_write_buffer_size()
        if unsent < self.unsent or self.is_at_work and not unsent:
            self.since = now
        self.unsent = unsent
        if now - self.since > PATIENCE:
            self.transport.abort()
        else:
            self.loop.call_later(CHECK, self.watch)

    def send_400_response(self, msg: str) -> None:
        """Where a body breaks off while its request is answered, that has an end too."""
        if self.is_at_work:
            self.transport.abort()
        else:
            super().send_400_response(msg)

    def on_response_complete(self) -> None:
        self.since = self.loop.time()
        super().on_response_complete()


def most_connections() -> int:
    """Half of the files that this process may open are left to everything else."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return MOST_CONNECTIONS if files == resource.RLIM_INFINITY else max(1, min(MOST_CONNECTIONS, files // 2))


def allow_connections() -> None:
    """Raises the limit of open files to what the connections need, as far as this process may."""
    files, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * MOST_CONNECTIONS if most == resource.RLIM_INFINITY else min(most, 2 * MOST_CONNECTIONS)
    if files != resource.RLIM_INFINITY and files < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def http_server(app: ASGIApp) -> Server:
    """A server that says nothing of itself and ends within a second."""
    allow_connections()
    return Server(Config(app, http=WatchedConnection, ws="none", log_level="warning", access_log=False,
                         server_header=False, timeout_graceful_shutdown=1, backlog=BACKLOG))

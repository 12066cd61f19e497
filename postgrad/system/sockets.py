"""Sockets of servers: binding, host names, and the token that clients present."""

from __future__ import annotations

import hmac
import os
import secrets
import socket
import time
from pathlib import Path
from typing import Any

from postgrad.system.files import error_text, read_text

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server there."""
    return host in (*LOOPBACK, "::1")


def origin(host: str, port: int) -> str:
    """The address to open."""
    name = "localhost" if host in ("0.0.0.0", "::") else f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}"


def host_name(host: str) -> str:
    """The name in a Host header: "localhost:8765" -> "localhost", "[::1]:8765" -> "[::1]"."""
    name, _, port = host.lower().rpartition(":")
    return name if name and port.isdigit() else host.lower()


def same_token(given: str, token: str) -> bool:
    """Compares in constant time."""
    return hmac.compare_digest(given.encode(), token.encode())


def token_file(name: str) -> Path:
    """The file of a server's token, in the user's state folder."""
    home = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(home) / "postgrad" / f"{name}-token"


def keep_token(path: Path) -> str:
    """The token in this file, or a new one written there, readable by its owner alone: a bookmark outlives a
    restart."""
    try:
        if path.stat().st_mode & 0o077:
            raise ValueError(f"{path} can be read by others: `chmod 600` it, or remove it to "
                             "get a new token.")
        token = read_text(path, 4096).strip()
        if len(token) >= 32 and token.isascii() and token.replace("-", "").replace("_", "").isalnum():
            return token
        raise ValueError(f"{path} does not hold a token of ours: remove it to get a new one.")
    except FileNotFoundError:
        return new_token(path)
    except OSError as error:
        raise ValueError(f"the token {path} can neither be read nor made ({error_text(error)}): move away "
                         "what is there.") from error


def new_token(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    token = secrets.token_urlsafe(32)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token + "\n")
    return token


def read_within(answer: Any, most: int, until: float) -> bytes:
    """The body of an HTTP answer. One that is longer raises ValueError; one that does not end until a time,
    by time.monotonic(), TimeoutError."""
    pieces, size = list[bytes](), 0
    while piece := answer.read1(2**16):
        pieces.append(piece)
        size += len(piece)
        if size > most:
            raise ValueError(f"over {most:,} bytes came")
        if time.monotonic() > until:
            raise TimeoutError("its answer did not end")
    return b"".join(pieces)


def bind(host: str, port: int | None, usual: int = 0, *, shared: bool = False) -> socket.socket:
    """A listening socket. port None: the usual one, or any free one where that is taken. shared: it holds
    the port for sockets of other processes, and does not listen itself.

    IPPROTO_TCP makes asyncio switch off Nagle's algorithm, which would delay every answer by 40 ms.
    """
    if port is not None and not 0 <= port < 65_536:
        raise ValueError(f"--port {port}: a port is a number from 0 (any free one) to 65535.")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for wanted in (usual, 0) if port is None else (port,):
        sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, wanted))
            if not shared:
                sock.listen(128)
            elif hasattr(socket, "SO_REUSEPORT"):  # once it is bound: a port that is taken is refused
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            return sock
        except OSError as error:
            sock.close()
            fault = error
    if isinstance(fault, socket.gaierror):
        raise ValueError(f"--host {host}: there is no such machine ({fault.strerror}); this one is "
                         "127.0.0.1.")
    raise ValueError(f"cannot listen on {host}:{port} ({fault.strerror}): choose another --port, or 0 "
                     "for any free one.")

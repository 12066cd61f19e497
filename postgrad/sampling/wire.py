"""One question to a sampler elsewhere, in JSON over HTTP: answered whole by some moment, or a fault."""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
from typing import Any
from urllib.parse import urlsplit

KEY = "POSTGRAD_SAMPLER_KEY"  # in the environment: what samplers ask for as an API key
LARGEST = 2**28               # bytes of an answer
PIECE = 2**16


class SamplerFault(ValueError):
    """What is wrong with a sampler, with its address: nothing that it said is used."""


class NotThere(Exception):
    """No whole answer came: nobody listens, the connection broke, it is busy, or time is up."""


def check_address(address: str) -> str:
    parts = urlsplit(address)
    try:
        sound = parts.scheme == "http" and parts.hostname and parts.port != 0
    except ValueError:
        sound = False
    if not sound or parts.path.strip("/") or parts.query or parts.username:
        raise ValueError(f"sampler {address!r} is no address: write http://HOST:PORT, several with commas.")
    return address.rstrip("/")


def ask(address: str, path: str, body: dict | None, until: float) -> Any:
    """The JSON at address + path; a body is posted. until: by time.monotonic(). NotThere may be asked again;
    what the server refuses is a SamplerFault."""
    parts = urlsplit(address)
    link = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=left(until))
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get(KEY):
        headers["Authorization"] = f"Bearer {key}"
    try:
        link.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body),
                     headers)
        answer = link.getresponse()
        text = read(answer, link.sock, until)
    except TimeoutError:
        raise NotThere("it took the question and did not answer") from None
    except (OSError, http.client.HTTPException) as error:
        raise NotThere(str(error) or type(error).__name__) from None
    finally:
        link.close()
    if answer.status == 503:
        raise NotThere(f"it is busy: {shown(text)}")
    if answer.status != 200:
        raise SamplerFault(f"sampler {address} refused {path} with status {answer.status}: {shown(text)}")
    try:
        return json.loads(text) if text else None
    except ValueError:
        raise SamplerFault(f"sampler {address} answered {path} with what is no JSON: {shown(text)}") from None


def read(answer: http.client.HTTPResponse, sock: socket.socket | None, until: float) -> bytes:
    """All of an answer. A server that goes on sending, however slowly, is not waited for after `until`."""
    pieces, size = [], 0
    while piece := answer.read1(PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > LARGEST:
            raise http.client.HTTPException(f"over {LARGEST:,} bytes came")
        if sock is not None:
            sock.settimeout(left(until))
    if answer.length:
        raise http.client.IncompleteRead(b"", answer.length)
    return b"".join(pieces)


def left(until: float) -> float:
    seconds = until - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


def shown(text: bytes) -> str:
    """The sentence in an error of OpenAI's shape, else the beginning of what came."""
    try:
        said = json.loads(text)["error"]["message"]
    except (ValueError, LookupError, TypeError):
        said = text[:200].decode(errors="replace")
    return " ".join(str(said).split())[:300]

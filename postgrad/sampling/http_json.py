"""One JSON request over HTTP to a remote sampler: a complete answer by a deadline, or a fault."""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

API_KEY = "POSTGRAD_SAMPLER_KEY"  # in the environment: the samplers' API key
LARGEST = 2**28                   # bytes of an answer
PIECE = 2**16


class SamplerFault(ValueError):
    """A sampler is at fault: the message has its address, and nothing of it is trained on."""


class Unreachable(Exception):
    """No complete answer came: nobody listens, the connection broke, it is busy, or the deadline is over."""


def check_address(address: str) -> str:
    parts = urlsplit(address)
    try:
        sound = parts.scheme == "http" and parts.hostname and parts.port != 0
    except ValueError:
        sound = False
    if not sound or parts.path.strip("/") or parts.query or parts.username:
        raise ValueError(f"sampler {address!r} is no address, file or registered name: write "
                         "http://HOST:PORT, several with commas, FILE.py or vllm.")
    return address.rstrip("/")


def request_json(address: str, path: str, body: Mapping[str, object] | None, until: float) -> Any:
    """GETs the JSON at address + path, or POSTs a body there. until: by time.monotonic(). Unreachable may be
    tried again; what the server refuses is a SamplerFault."""
    parts = urlsplit(address)
    link = http.client.HTTPConnection(parts.hostname or "", parts.port or 80, timeout=seconds_left(until))
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get(API_KEY):
        headers["Authorization"] = f"Bearer {key}"
    try:
        link.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body),
                     headers)
        answer = link.getresponse()
        text = read_answer(answer, link.sock, until)
    except TimeoutError:
        raise Unreachable("it took the question and did not answer") from None
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(str(error) or type(error).__name__) from None
    finally:
        link.close()
    if answer.status == 503:
        raise Unreachable(f"it is busy: {response_error(text)}")
    if answer.status != 200:
        raise SamplerFault(f"sampler {address} refused {path} with status {answer.status}: "
                           f"{response_error(text)}")
    try:
        return json.loads(text) if text else None
    except ValueError:
        raise SamplerFault(f"sampler {address} answered {path} with what is no JSON: "
                           f"{response_error(text)}") from None


def read_answer(answer: http.client.HTTPResponse, sock: socket.socket | None, until: float) -> bytes:
    """The body of an answer; a server that goes on sending, however slowly, is left at the deadline."""
    pieces, size = [], 0
    while piece := answer.read1(PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > LARGEST:
            raise http.client.HTTPException(f"over {LARGEST:,} bytes came")
        if sock is not None:
            sock.settimeout(seconds_left(until))
    if answer.length:
        raise http.client.IncompleteRead(b"", answer.length)
    return b"".join(pieces)


def seconds_left(until: float) -> float:
    seconds = until - time.monotonic()
    if seconds <= 0:
        raise TimeoutError
    return seconds


def response_error(text: bytes) -> str:
    """The message of an error in OpenAI's format, else the beginning of the answer."""
    try:
        message = json.loads(text)["error"]["message"]
    except (ValueError, LookupError, TypeError):
        message = text[:200].decode(errors="replace")
    return " ".join(str(message).split())[:300]

"""A sampler behind addresses: POST /inference/v1/generate of `postgrad serve` or vLLM, tokens in, tokens out.

Row i goes to sampler i mod n, with its own seed. Rows after the same context go in one request to `postgrad
serve`; vLLM takes one seed a request. Every answer is validated: it names the weights that sampled it, is
complete, and has a finite log-prob for each token; the log-probs of a few rows are compared with the
trainer's. An unreachable sampler is asked again until the timeout; an invalid answer ends the run with the
sampler's address. Left out on purpose: failover to another sampler.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import json
import math
import os
import queue
import random
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import urlsplit

from postgrad.models.chat import Chat
from postgrad.records import Sampling
from postgrad.sampling.sequences import FinishedSequence
from postgrad.sampling.token_sampler import TokenSampler
from postgrad.system.files import error_text
from postgrad.system.json_text import strict_json

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
    link.response_class = partial(TimedResponse, until=until)  # type: ignore[assignment]
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get(API_KEY):
        headers["Authorization"] = f"Bearer {key}"
    try:
        link.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body),
                     headers)
        answer = link.getresponse()
        text = read_answer(answer)
    except TimeoutError:
        raise Unreachable("it took the question and did not answer") from None
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(str(error) or type(error).__name__) from None
    finally:
        link.close()
    if answer.status in (429, 503):
        raise Unreachable(f"it is busy: {response_error(text)}")
    if answer.status != 200:
        raise SamplerFault(f"sampler {address} refused {path} with status {answer.status}: "
                           f"{response_error(text)}")
    try:
        return strict_json(text) if text else None
    except ValueError as error:
        raise SamplerFault(f"sampler {address} answered {path} with what is no JSON ({error_text(error)}): "
                           f"{response_error(text)}") from None


class TimedReader(io.RawIOBase):
    """Reads from a socket until a deadline, by time.monotonic(), however slowly its bytes come."""

    def __init__(self, sock: socket.socket, until: float):
        self.sock, self.until, self.raw = sock, until, sock.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int | None:
        self.sock.settimeout(seconds_left(self.until))
        return self.raw.readinto(buffer)

    def close(self) -> None:
        self.raw.close()
        super().close()


class TimedResponse(http.client.HTTPResponse):
    """An answer whose headers and body come before a deadline."""

    def __init__(self, sock: socket.socket, *given: Any, until: float, **settings: Any):
        super().__init__(sock, *given, **settings)
        self.fp.close()
        self.fp = io.BufferedReader(TimedReader(sock, until))


def read_answer(answer: http.client.HTTPResponse) -> bytes:
    """The body of an answer, of at most LARGEST bytes."""
    pieces, size = [], 0
    while piece := answer.read1(PIECE):
        pieces.append(piece)
        size += len(piece)
        if size > LARGEST:
            raise http.client.HTTPException(f"over {LARGEST:,} bytes came")
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
        message = strict_json(text)["error"]["message"]
    except (ValueError, LookupError, TypeError):
        message = text[:200].decode(errors="replace")
    return " ".join(str(message).split())[:300]


MOST_ROOM = 2**16     # rows that a sampler may say it has room for
DEFAULT_ROOM = 64     # rows that a sampler is asked for at once, where it does not say its room
PARTS = 4             # into so many requests they are divided at least: while one row is long, others go on
SPOT_CHECKS = 2       # rows of each sampler and call, at random, compared with the trainer's log-probs
PAUSES = (0.02, 0.2)  # seconds between two tries: at first, at most
LATE = 30.0           # seconds after which a silent sampler is reported
TIMEOUT = 1800.0      # seconds


@dataclass(frozen=True)
class WeightVersion:
    """step: optimizer steps behind the weights. name: a fingerprint, by which `postgrad serve` calls them."""

    step: int
    name: str


class SpotCheck(NamedTuple):
    """A row whose log-probs are compared with the trainer's. weights: the name of their version."""

    address: str
    weights: str
    context: list[int]
    tokens: Sequence[int]
    logp: Sequence[float]


class RemoteRow(NamedTuple):
    number: int
    context: list[int]
    seed: int


class RemoteSampler(TokenSampler):
    """addresses: http://HOST:PORT each. positions, vocabulary: the model's. names: whether answers name their
    weights and requests take a list of seeds, as of `postgrad serve`. gpu: where all samplers have to be;
    None: anywhere. timeout: seconds. ranks: trainers that share the samplers. spot_checks: rows to be
    compared with the trainer's log-probs, by the optimizer step of their weights. room: rows that a sampler
    is asked for at once. secret: the run's seed, which no sampler is sent.
    """

    def __init__(self, addresses: Sequence[str], chat: Chat, *, positions: int, vocabulary: int,
                 names: bool = True, gpu: str | None = None, timeout: float = TIMEOUT, ranks: int = 1,
                 secret: int = 0):
        super().__init__(chat)
        self.addresses = [check_address(address) for address in addresses]
        self.model_positions, self.vocabulary, self.names, self.gpu = positions, vocabulary, names, gpu
        self.timeout, self.ranks, self.secret = timeout, ranks, secret
        self.spot_checks: dict[int, list[SpotCheck]] = {}
        self.weights: WeightVersion | None = None
        self.room: dict[str, int] = {}

    @property
    def positions(self) -> int:
        return self.model_positions

    def generate(self, contexts: list[list[int]], n: int, seeds: Sequence[int], sampling: Sampling,
                 after: Sequence[FinishedSequence | None] | None = None) -> Iterable[list[FinishedSequence]]:
        rows = [RemoteRow(i, contexts[i // n], seed) for i, seed in enumerate(seeds)]
        samplers, answers = len(self.addresses), queue.SimpleQueue[list[FinishedSequence] | Exception]()
        stop = threading.Event()
        for k, address in enumerate(self.addresses):
            self.start_threads(address, rows[k::samplers], sampling, answers, stop)
        all_ended: list[FinishedSequence] = []
        try:
            while len(all_ended) < len(rows):
                ended = answers.get()  # each request has its own limit
                if isinstance(ended, Exception):
                    raise ended
                all_ended += ended
                if len(all_ended) == len(rows):  # what is compared is chosen when all have answered
                    all_ended.sort(key=lambda row: row.number)
                    for k in range(samplers):
                        self.keep_spot_checks(all_ended[k::samplers], contexts, n, sampling)
                yield ended
        finally:
            stop.set()

    def start_threads(self, address: str, rows: Sequence[RemoteRow], sampling: Sampling,
                      answers: queue.SimpleQueue[list[FinishedSequence] | Exception],
                      stop: threading.Event) -> None:
        """Threads that ask for these rows, as many as the sampler has room for."""
        room = self.room.get(address, DEFAULT_ROOM)
        most, waiting = max(1, room // PARTS) if self.names else 1, queue.SimpleQueue[list[RemoteRow]]()
        requests = [same[i: i + most] for _, group in groupby(rows, key=lambda row: row.context)
                    for same in [list(group)] for i in range(0, len(same), most)]
        for request in requests:
            waiting.put(request)

        def work() -> None:
            while not stop.is_set():
                try:
                    request = waiting.get_nowait()
                except queue.Empty:
                    return
                try:
                    answers.put(self.ask_rows(address, request, sampling, stop))
                except Exception as fault:  # raised by whoever waits for the rows
                    answers.put(fault)
                    return

        longest = max(map(len, requests), default=1)
        for _ in range(min(len(requests), max(1, room // longest))):
            threading.Thread(target=work, name=f"postgrad-rows-{address}", daemon=True).start()

    def ask_rows(self, address: str, rows: list[RemoteRow], sampling: Sampling,
                 stop: threading.Event) -> list[FinishedSequence]:
        """Rows after one context, sampled by a sampler and checked."""
        params: dict[str, object] = {
            "max_tokens": sampling.max_new_tokens, "temperature": sampling.temperature,
            "top_p": sampling.top_p, "top_k": sampling.top_k or -1, "min_p": sampling.min_p,
            "stop_token_ids": list(self.chat.stop)}
        if self.names:
            params["seeds"] = [row.seed for row in rows]
        else:
            params |= {"n": 1, "seed": rows[0].seed, "logprobs": 1}
        if sampling.stop:
            params["stop"] = list(sampling.stop)
        body = {"token_ids": rows[0].context, "sampling_params": params}
        asked = time.time()
        answer = self.ask_until(address, "/inference/v1/generate", body, "a row", stop)
        try:
            if len(answer["choices"]) != len(rows):
                raise ValueError(f"its reply has {len(answer['choices'])} rows, and {len(rows)} were asked "
                                 "for")
            return [self.check_row(answer, choice, row, sampling)
                    for choice, row in zip(answer["choices"], rows, strict=True)]
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            why = (str(error) if type(error) is ValueError else f"its answer lacks {error}" if isinstance(
                error, LookupError | TypeError) else f"its answer is out of form ({error_text(error)})")
            raise SamplerFault(f"sampler {address}, asked at {clock(asked)}: {why}. Nothing of it is trained "
                               "on: look at that sampler, then `postgrad resume`.") from error

    def check_row(self, answer: Any, choice: Any, row: RemoteRow, sampling: Sampling) -> FinishedSequence:
        """One row of an answer; a ValueError says what is wrong with it."""
        if self.names and self.weights:
            spans = [[*span] for span in choice["weight_versions"]]
            if spans != [[0, self.weights.step]] or answer["weights"] != self.weights.name:
                raise ValueError(f"its reply was sampled by weights {answer['weights']!r:.80} of steps "
                                 f"{sorted({step for _, step in spans})}, and {self.weights.name!r} of step "
                                 f"{self.weights.step} were asked for")
        tokens, end = choice["token_ids"], choice["finish_reason"]
        content = None if "logp" in choice else choice["logprobs"]["content"]
        logp = choice["logp"] if content is None else [c["logprob"] for c in content]
        if tokens and content and [token_id(c) for c in content] != tokens:
            raise ValueError(f"its log-probs are of {len(logp)} other tokens than the {len(tokens)} of its "
                             "reply")
        check_reply(tokens, logp, self.chat.stop, self.vocabulary, sampling, end)
        return FinishedSequence(row.number, tokens, [float(x) for x in logp], end == "stop")

    def keep_spot_checks(self, rows: Sequence[FinishedSequence], contexts: Sequence[list[int]], n: int,
                         sampling: Sampling) -> None:
        """Chooses rows of one sampler. The trainer's log-probs are those of an unfiltered distribution."""
        if not (sampling.unfiltered and sampling.temperature):
            return
        step, name = (self.weights.step, self.weights.name) if self.weights else (0, "")
        for row in choose_spot_checks(rows, f"{self.secret} {step}"):
            check = SpotCheck(self.addresses[row.number % len(self.addresses)], name,
                              contexts[row.number // n], list(row.tokens), list(row.logp))
            self.spot_checks.setdefault(step, []).append(check)

    def await_weights(self, weights: WeightVersion) -> None:
        """Waits until every sampler has these weights."""
        for address in self.addresses:
            for pause in self.pauses(address, f"weights {weights.name} of step {weights.step}"):
                health = self.ask_until(address, "/health", None, "its health")
                if not isinstance(health, dict) or "policy_step" not in health:
                    raise SamplerFault(f"sampler {address} does not say which weights it has: it is no "
                                       "`postgrad serve`; of vLLM, say remote.weight_sync=vllm.")
                if self.gpu is not None and health.get("gpu") != self.gpu:
                    raise SamplerFault(f"sampler {address} is on {health.get('gpu') or 'a CPU'}, and "
                                       f"remote.weight_sync=ipc hands the weights over on GPU {self.gpu}: "
                                       "start it with --device cuda on that GPU, or say "
                                       "remote.weight_sync=folder.")
                if (health["policy_step"], health.get("weights")) == (weights.step, weights.name):
                    self.room[address] = max(1, room_in(health) // self.ranks)
                    break
                time.sleep(pause)
        self.weights = weights

    def ask_until(self, address: str, path: str, body: Mapping[str, object] | None, what: str,
                  stop: threading.Event | None = None) -> Any:
        """A sampler's answer; an unreachable one is asked again until the timeout. stop: cancels."""
        faults: list[str] = []
        for pause in self.pauses(address, what, lambda: faults[-1]):
            if stop and stop.is_set():
                raise Unreachable("nobody waits for it any more")
            try:
                return request_json(address, path, body, time.monotonic() + self.timeout)
            except Unreachable as fault:
                faults.append(str(fault))
                time.sleep(pause)
        raise AssertionError("pauses end with a fault")

    def pauses(self, address: str, what: str,
               why: Callable[[], str] = lambda: "it has others") -> Iterator[float]:
        """Seconds to wait before each retry; a SamplerFault at the timeout. After LATE seconds the sampler is
        reported, once."""
        began, since, pause = time.monotonic(), time.time(), PAUSES[0]
        reported = False
        while (waited := time.monotonic() - began) < self.timeout:
            if waited > LATE and not reported:
                reported = True
                print(f"postgrad: sampler {address} is late with {what} since {clock(since)} ({why()})",
                      file=sys.stderr)
            yield pause
            pause = min(2 * pause, PAUSES[1])
        raise SamplerFault(f"sampler {address} did not give {what} within {self.timeout:g} s, since "
                           f"{clock(since)} ({why()}): look at that process, then `postgrad resume`, or "
                           "allow more with POSTGRAD_TIMEOUT=SECONDS.")


def check_reply(tokens: Any, logp: Any, stop: Sequence[int], vocabulary: int, sampling: Sampling,
                end: str) -> None:
    """Raises ValueError for a reply that is no list of tokens with a log-prob each, or is not complete. end:
    the finish reason."""
    if not tokens or not all(type(t) is int and 0 <= t < vocabulary for t in tokens):
        raise ValueError(f"its reply is no list of tokens: {tokens!r:.80}")
    if len(logp) != len(tokens):
        raise ValueError(f"its log-probs are of {len(logp)} other tokens than the {len(tokens)} of its reply")
    if not all(isinstance(x, int | float) and math.isfinite(x) and x <= 1e-3 for x in logp):
        raise ValueError(f"its log-probs hold what is none: {min(logp, key=sort_number)!r:.40}")
    early = any(t in stop for t in tokens[:-1])
    complete = {"stop": tokens[-1] in stop or bool(sampling.stop),
                "length": len(tokens) == sampling.max_new_tokens}
    if early or len(tokens) > sampling.max_new_tokens or not complete.get(end):
        raise ValueError(f"its reply of {len(tokens)} tokens ends by {end!r:.40}, and neither a stop "
                         f"token nor {sampling.max_new_tokens} tokens are its end: it is no whole reply")


class HasReply(Protocol):
    @property
    def tokens(self) -> Sequence[int]: ...

    @property
    def logp(self) -> Sequence[float]: ...


RowT = TypeVar("RowT", bound=HasReply)


def choose_spot_checks(rows: Sequence[RowT], secret: str) -> list[RowT]:
    """SPOT_CHECKS of these rows: the same for the same secret and replies, and nobody knows which before all
    have been given."""
    digest = hashlib.sha256(secret.encode())
    for row in rows:
        digest.update(f"\n{list(row.tokens)} {list(row.logp)}".encode())
    return random.Random(digest.digest()).sample(rows, min(SPOT_CHECKS, len(rows)))


def check_logprobs(rows: Sequence[SpotCheck], again: Sequence[Sequence[float]], step: int,
                   max_gap: float) -> None:
    """Raises SamplerFault where the mean |difference| of a sampler's log-probs and the trainer's, `again`, is
    over max_gap. step: of the weights."""
    gaps: dict[str, list[float]] = {}
    for row, logp in zip(rows, again, strict=True):
        gaps.setdefault(row.address, []).extend(abs(a - b) for a, b in zip(row.logp, logp, strict=True))
    for address, off in gaps.items():
        mean = sum(off) / len(off)
        if not mean <= max_gap:
            raise SamplerFault(
                f"sampler {address} has other weights than those of step {step}, or computes otherwise: "
                f"at {clock(time.time())} its log-probs were off by {mean:.2g} on average over "
                f"{len(off)} tokens, and {max_gap:g} is allowed (remote.max_logp_gap). Nothing of it is "
                "trained on: look at that sampler, then `postgrad resume`.")


def room_in(health: Mapping[str, Any]) -> int:
    """Rows that a sampler is asked for at once: as many as it decodes, and as many that wait for a slot."""
    slots, queue = (min(x, MOST_ROOM) if type(x := health.get(name, plain)) is int and x >= 0 else plain
                    for name, plain in (("slots", DEFAULT_ROOM), ("queue", 0)))
    return slots + min(slots, queue)


def token_id(entry: Mapping[str, Any]) -> int:
    """Which token a log-prob is of; vLLM gives its number alone from 0.32 on."""
    return entry["token_id"] if "token_id" in entry else int(entry["token"].removeprefix("token_id:"))


def sort_number(x: object) -> float:
    return x if isinstance(x, int | float) and math.isfinite(x) else -math.inf


def clock(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(seconds))

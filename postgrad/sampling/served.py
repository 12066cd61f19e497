"""A sampler behind addresses: tokens go there and come back over POST /inference/v1/generate, from
`postgrad serve` and vLLM alike.

Row i goes to sampler i mod n, with its own seed. Rows after the same context are asked for in one question,
where the sampler is ours; of vLLM, which takes one seed a question, each by itself. Every answer is checked
before it is used: it names the weights that wrote it, is whole, and has a finite log-prob for each token; a
few rows are kept, whose log-probs are computed again by whoever has the weights. A sampler that nobody hears
is asked again until POSTGRAD_TIMEOUT is over; one that says something wrong ends the run with its address.
Left out on purpose: rows that go to another sampler than their own.
"""

from __future__ import annotations

import math
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple

from postgrad.sampling.base import Sampling
from postgrad.sampling.rows import RowSampler
from postgrad.sampling.waiting import Written
from postgrad.sampling.wire import NotThere, SamplerFault, ask, check_address
from postgrad.system.processes.group import timeout, world

AT_ONCE = 64       # rows that are asked of a sampler at once, where it does not say how many it has room for
PARTS = 4          # into so many questions they are divided at least: while one row is long, others go on
CHECKED = 2        # rows of each sampler and call that are kept to be computed again
PAUSES = (0.02, 0.2)  # seconds between two questions: at first, at most
LATE = 30.0        # seconds after which a silent sampler is spoken of


@dataclass(frozen=True)
class Weights:
    """The weights that a sampler should have. step: optimizer steps behind them. name: by which a sampler
    that names its weights calls these."""

    step: int
    name: str


class Kept(NamedTuple):
    """A row that can be computed again: who wrote it, by which weights, after what, the tokens and their
    log-probs."""

    address: str
    weights: str
    context: list[int]
    tokens: list[int]
    logp: list[float]


class Asked(NamedTuple):
    number: int
    context: list[int]
    seed: int


class ServedSampler(RowSampler):
    """addresses: http://HOST:PORT each. positions: the model's. vocabulary: how many tokens there are. names:
    whether these samplers name the weights behind each answer and take seeds by the list, as ours do. gpu:
    the one on which all of them have to be; none: anywhere. kept: rows to be computed again, by the optimizer
    steps behind their weights. room: rows that a sampler is asked for at once.
    """

    def __init__(self, addresses: Sequence[str], chat, *, positions: int, vocabulary: int,
                 names: bool = True, gpu: str | None = None):
        super().__init__(chat)
        self.addresses = [check_address(address) for address in addresses]
        self.model_positions, self.vocabulary, self.names, self.gpu = positions, vocabulary, names, gpu
        self.kept: dict[int, list[Kept]] = {}
        self.weights: Weights | None = None
        self.room: dict[str, int] = {}

    @property
    def positions(self) -> int:
        return self.model_positions

    def write(self, contexts: list[list[int]], group_size: int, seeds: Sequence[int], settings: Sampling,
              after: Sequence[Written | None] | None = None) -> Iterable[list[Written]]:
        rows = [Asked(i, contexts[i // group_size], seed) for i, seed in enumerate(seeds)]
        n, told = len(self.addresses), queue.SimpleQueue[list[Written] | Exception]()
        stop = threading.Event()
        for k, address in enumerate(self.addresses):
            self.start(address, rows[k::n], settings, told, stop)
        try:
            missing = len(rows)
            while missing:
                came = told.get()  # each question has its own limit
                if isinstance(came, Exception):
                    raise came
                missing -= len(came)
                for row in came:
                    if row.request // n < CHECKED and settings.whole and settings.temperature:
                        self.keep(row, rows[row.request].context)
                yield came
        finally:
            stop.set()

    def start(self, address: str, rows: Sequence[Asked], settings: Sampling, told: queue.SimpleQueue,
              stop: threading.Event) -> None:
        """Threads that ask for these rows and tell what came, as many as the sampler has room for."""
        room = self.room.get(address, AT_ONCE)
        most, waiting = max(1, room // PARTS) if self.names else 1, queue.SimpleQueue[list[Asked]]()
        questions = [same[i: i + most] for _, group in groupby(rows, key=lambda row: row.context)
                     for same in [list(group)] for i in range(0, len(same), most)]
        for question in questions:
            waiting.put(question)

        def work() -> None:
            while not stop.is_set():
                try:
                    question = waiting.get_nowait()
                except queue.Empty:
                    return
                try:
                    told.put(self.ask(address, question, settings, stop))
                except Exception as fault:  # told to whoever waits for the rows
                    told.put(fault)
                    return

        longest = max(map(len, questions), default=1)
        for _ in range(min(len(questions), max(1, room // longest))):
            threading.Thread(target=work, name=f"postgrad-rows-{address}", daemon=True).start()

    def ask(self, address: str, rows: list[Asked], settings: Sampling,
            stop: threading.Event) -> list[Written]:
        """Rows after one context, written by a sampler and found sound."""
        params = {"max_tokens": settings.max_new_tokens, "temperature": settings.temperature,
                  "top_p": settings.top_p, "top_k": settings.top_k or -1, "min_p": settings.min_p,
                  "stop_token_ids": list(self.chat.stop)}
        if self.names:
            params["seeds"] = [row.seed for row in rows]
        else:
            params |= {"n": 1, "seed": rows[0].seed, "logprobs": 1}
        if settings.stop:
            params["stop"] = list(settings.stop)
        body = {"token_ids": rows[0].context, "sampling_params": params}
        asked = time.time()
        answer = patiently(address, "/inference/v1/generate", body, "a row", stop)
        try:
            if len(answer["choices"]) != len(rows):
                raise ValueError(f"its reply has {len(answer['choices'])} rows, and {len(rows)} were asked "
                                 "for")
            return [self.checked(answer, choice, row, settings)
                    for choice, row in zip(answer["choices"], rows, strict=True)]
        except (LookupError, TypeError, ValueError) as error:
            why = str(error) if type(error) is ValueError else f"its answer lacks {error}"
            raise SamplerFault(f"sampler {address}, asked at {clock(asked)}: {why}. Nothing of it is trained "
                               "on: look at that sampler, then `postgrad resume`.") from error

    def checked(self, answer: Any, choice: Any, row: Asked, settings: Sampling) -> Written:
        """One row of an answer."""
        if self.names and self.weights:
            spans = [[*span] for span in choice["weight_versions"]]
            if spans != [[0, self.weights.step]] or answer["weights"] != self.weights.name:
                raise ValueError(f"its reply was written by weights {answer['weights']!r:.80} of steps "
                                 f"{sorted({step for _, step in spans})}, and {self.weights.name!r} of step "
                                 f"{self.weights.step} were asked for")
        tokens, end = choice["token_ids"], choice["finish_reason"]
        if not tokens or not all(type(t) is int and 0 <= t < self.vocabulary for t in tokens):
            raise ValueError(f"its reply is no list of tokens: {tokens!r:.80}")
        content = None if "logp" in choice else choice["logprobs"]["content"]
        logp = choice["logp"] if content is None else [c["logprob"] for c in content]
        if len(logp) != len(tokens) or (content and [token_of(c) for c in content] != tokens):
            raise ValueError(f"its log-probs are of {len(logp)} other tokens than the {len(tokens)} of its "
                             "reply")
        if not all(isinstance(x, int | float) and math.isfinite(x) and x <= 1e-3 for x in logp):
            raise ValueError(f"its log-probs hold what is none: {min(logp, key=number)!r:.40}")
        stopped = tokens[-1] in self.chat.stop
        early = any(t in self.chat.stop for t in tokens[:-1])
        whole = {"stop": stopped or bool(settings.stop), "length": len(tokens) == settings.max_new_tokens}
        if early or len(tokens) > settings.max_new_tokens or not whole.get(end):
            raise ValueError(f"its reply of {len(tokens)} tokens ends by {end!r:.40}, and neither a stop "
                             f"token nor {settings.max_new_tokens} tokens are its end: it is no whole reply")
        return Written(row.number, tokens, [float(x) for x in logp], end == "stop")

    def keep(self, row: Written, context: list[int]) -> None:
        address = self.addresses[row.request % len(self.addresses)]
        step, name = (self.weights.step, self.weights.name) if self.weights else (0, "")
        self.kept.setdefault(step, []).append(Kept(address, name, context, list(row.tokens),
                                                    list(row.logp)))

    def await_weights(self, weights: Weights) -> None:
        """Every sampler has these weights: until then no row is asked for."""
        for address in self.addresses:
            for pause in pauses(address, f"weights {weights.name} of step {weights.step}"):
                health = patiently(address, "/health", None, "a word of its health")
                if not isinstance(health, dict) or "policy_step" not in health:
                    raise SamplerFault(f"sampler {address} does not say which weights it has: it is no "
                                       "`postgrad serve`; of vLLM, say remote.weight_sync=vllm.")
                if self.gpu is not None and health.get("gpu") != self.gpu:
                    raise SamplerFault(f"sampler {address} is on {health.get('gpu') or 'a CPU'}, and "
                                       f"remote.weight_sync=ipc hands the weights over on GPU {self.gpu}: "
                                       "start it with --device cuda on that GPU, or say "
                                       "remote.weight_sync=folder.")
                if (health["policy_step"], health.get("weights")) == (weights.step, weights.name):
                    self.room[address] = max(1, room_in(health) // world())
                    break
                time.sleep(pause)
        self.weights = weights


def patiently(address: str, path: str, body: dict | None, what: str,
              stop: threading.Event | None = None) -> Any:
    """What a sampler answers; where it does not, it is asked again until the limit. stop: nobody waits for it
    any more."""
    said: list[str] = []
    for pause in pauses(address, what, lambda: said[-1]):
        if stop and stop.is_set():
            raise NotThere("nobody waits for it any more")
        try:
            return ask(address, path, body, time.monotonic() + timeout())
        except NotThere as fault:
            said.append(str(fault))
            time.sleep(pause)
    raise AssertionError("pauses end with a fault")


def pauses(address: str, what: str, why: Callable[[], str] = lambda: "it has others") -> Iterator[float]:
    """Seconds to wait before each further question; a SamplerFault when the limit is over. After LATE
    seconds the one that is waited for is named, once."""
    began, since, pause, limit = time.monotonic(), time.time(), PAUSES[0], timeout()
    spoken = False
    while (waited := time.monotonic() - began) < limit:
        if waited > LATE and not spoken:
            spoken = True
            print(f"postgrad: sampler {address} is late with {what} since {clock(since)} ({why()})",
                  file=sys.stderr)
        yield pause
        pause = min(2 * pause, PAUSES[1])
    raise SamplerFault(f"sampler {address} did not give {what} within {limit:g} s, since {clock(since)} "
                       f"({why()}): look at that process, then `postgrad resume`, or allow more with "
                       "POSTGRAD_TIMEOUT=SECONDS.")


def compare(rows: Sequence[Kept], again: Sequence[Sequence[float]], step: int, gap: float) -> None:
    """Rows that were kept of the weights of a step, and their log-probs computed again. gap: how far a
    sampler's may be off, as the mean of |difference|."""
    off: dict[str, list[float]] = {}
    for row, logp in zip(rows, again, strict=True):
        off.setdefault(row.address, []).extend(abs(a - b) for a, b in zip(row.logp, logp, strict=True))
    for address, apart in off.items():
        mean = sum(apart) / len(apart)
        if not mean <= gap:
            raise SamplerFault(
                f"sampler {address} has other weights than those of step {step}, or computes otherwise: "
                f"at {clock(time.time())} its log-probs were off by {mean:.2g} on average over "
                f"{len(apart)} tokens, and {gap:g} is allowed (remote.max_logp_gap). Nothing of it is "
                "trained on: look at that sampler, then `postgrad resume`.")


def room_in(health: dict) -> int:
    """Rows that a sampler is asked for at once: as many as it writes, and as many that wait for a slot."""
    slots = int(health.get("slots", AT_ONCE))
    return slots + min(slots, int(health.get("queue", 0)))


def token_of(said: dict) -> int:
    """Which token a log-prob is of; vLLM says its number alone from 0.32 on."""
    return said["token_id"] if "token_id" in said else int(said["token"].removeprefix("token_id:"))


def number(x: object) -> float:
    return x if isinstance(x, int | float) and math.isfinite(x) else -math.inf


def clock(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.localtime(seconds))

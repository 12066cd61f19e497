"""The decode loop: a step gives every active sequence one more token. The sampler in this process and the
endpoint both run on it.

    batch = RequestBatch(model, chat, rows=8, max_prompt_tokens=512, max_new_tokens=256)
    sequence, = batch.add(chat.render(messages), [Request(seed=3, stop_token_ids=chat.stop)])
    while batch.busy:
        for sequence, sampled in batch.step():
            print(sampled.token, sequence.finish_reason)

State stays on the device, one column per active sequence. `step` serves requests that come and go, each with
its own sampling parameters, stop rule and seed; the host sees every token. `decode` serves a collection that
is sampled alike: the host only looks for finished sequences, on a GPU every few tokens, at a snapshot, while
the next steps are under way. What a sequence samples depends on the model, its prompt and its seed, not on
its neighbours. Left out on purpose: threads (all calls come from one).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from postgrad.maths.noise import seed_of, uniform
from postgrad.maths.packing import fetch_async, pack, to_device
from postgrad.models.chat import Chat
from postgrad.models.engine import Engine
from postgrad.models.graph_capture import capturing
from postgrad.models.kernels import Kernels
from postgrad.records import Sampling
from postgrad.sampling.detokenizer import IncrementalDetokenizer
from postgrad.sampling.sampler import DecodableModel
from postgrad.sampling.scheduler import MIN_ROWS, CachedPrompt, Scheduler, SlotSequence, int_tensor

NOTHING = 0, b""


class ArrayTuple(Sequence[Any]):
    """Tokens or log-probs: a NumPy array that compares, hashes and pickles as the tuple of its numbers, made
    at first use; `packing.concat_rows` takes the array. begun: of tokens, how many are detokenized, and
    their bytes."""

    def __init__(self, array: np.ndarray, begun: tuple[int, bytes] = NOTHING):
        self.array, self.begun = array, begun

    @cached_property
    def numbers(self) -> tuple[Any, ...]:
        return tuple(self.array.tolist())

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, at: Any) -> Any:
        return self.numbers[at]

    def __iter__(self) -> Iterator[Any]:
        return iter(self.numbers)

    def __eq__(self, other: object) -> bool:
        return self.numbers == (other.numbers if isinstance(other, ArrayTuple) else other)

    def __hash__(self) -> int:
        return hash(self.numbers)

    def __add__(self, other: Sequence[Any]) -> tuple[Any, ...]:
        return self.numbers + tuple(other)

    def __radd__(self, other: tuple[Any, ...]) -> tuple[Any, ...]:
        return other + self.numbers

    def __repr__(self) -> str:
        return repr(self.numbers)

    def __reduce__(self) -> tuple[Any, ...]:
        return tuple, (self.numbers,)


PREFETCH = 16       # prompts that are prefilled before a slot is free: few large passes take less time
SCORED = 512        # tokens whose logits stand in memory at once
CAPTURE_AFTER = 8   # steps of the same kind, of requests that come and go, after which a graph is captured
MAX_GRAPHS = 64
LOOK_STEPS = 4      # on a GPU, steps between two snapshots of a collection
LAST_STEPS = 16     # steps left to sequences that started together, none of which has ended: no look before
UNBOUNDED = 1 << 62


@dataclass(frozen=True, kw_only=True)
class Request:
    """A sequence to be sampled.

    sampling: max_new_tokens counts sampled tokens. raw_logprobs: log-probs of the model itself, not of the
    distribution that temperature, top-k, top-p and min-p make of it. top_logprobs: how many of the likeliest
    tokens are reported with each. stream: its text is wanted as it comes. keep: when it has ended it stays in
    its slot, to be extended or aborted.
    """

    sampling: Sampling = field(default_factory=Sampling)
    seed: int = 0
    stop_token_ids: tuple[int, ...] = ()
    raw_logprobs: bool = False
    top_logprobs: int = 0
    stream: bool = False
    keep: bool = False

    @cached_property
    def distribution(self) -> Sampling:
        """What decides which token is sampled: sequences with the same are sampled together."""
        return with_max_new_tokens(self.sampling, 1)

    def nth(self, i: int) -> Request:
        """The request of sample i: the first has the seed as it is, others a seed derived from it."""
        return replace(self, seed=seed_of(self.seed, i)) if i else self


@lru_cache(maxsize=256)
def with_max_new_tokens(sampling: Sampling, max_new_tokens: int) -> Sampling:
    return replace(sampling, max_new_tokens=max_new_tokens, stop=())


class SampledToken(NamedTuple):
    """A token, its log-prob, the likeliest tokens with theirs, and the text that may be shown with it."""

    token: int
    logp: float
    top: tuple[tuple[int, float], ...] = ()
    text: str = ""


@dataclass(eq=False, kw_only=True, slots=True)
class RequestSequence(SlotSequence):
    """seeds[number] is its seed; number: in its collection. tokens: all after the prompt, sampled or forced.
    forced: tokens that are appended without sampling. finish_reason: stop (a token or a text), length, abort;
    None while it is decoded. weight_versions: which weights sampled from which token on, as (sampled so far,
    version). turn: tokens sampled before this turn.

    Of a collection: shown: tokens of earlier turns. since: steps before its first. `tokens` are filled in
    when it has ended and is cached.
    """

    request: Request
    seeds: Sequence[int] = ()
    number: int = 0
    tokens: list[int] = field(default_factory=list)
    sampled: list[SampledToken] = field(default_factory=list)
    forced: deque[int] = field(default_factory=deque)
    weight_versions: list[tuple[int, int]] = field(default_factory=list)
    finish_reason: str | None = None
    detokenizer: IncrementalDetokenizer | None = None
    state: Tensor | None = None  # [D], of one that is kept: from which its next token is sampled
    turn: int = 0
    shown: int = 0
    since: int = 0

    def take(self, sampled: SampledToken, version: int) -> SampledToken:
        """Appends a sampled token -> the same with the text that may be shown."""
        request, detokenizer = self.request, self.detokenizer
        if not self.weight_versions or self.weight_versions[-1][1] != version:
            self.weight_versions.append((len(self.sampled), version))
        text = detokenizer.add(sampled.token) if detokenizer else ""
        self.tokens.append(sampled.token)
        self.sampled.append(sampled)
        if sampled.token in request.stop_token_ids or (detokenizer and detokenizer.stopped):
            self.finish_reason = "stop"
        elif len(self.sampled) - self.turn >= request.sampling.max_new_tokens:
            self.finish_reason = "length"
        if self.finish_reason and detokenizer:
            text += detokenizer.end()
        return sampled._replace(text=text) if text else sampled


class FinishedSequence(NamedTuple):
    """A row of a collection. tokens: sampled, the stop token included. finished: by a stop, not at the
    length. cached: what its sampler still has of it, where it may be continued."""

    number: int
    tokens: Sequence[int]
    logp: Sequence[float]
    finished: bool
    cached: RequestSequence | None = None


class Snapshot:
    """Asynchronous device-to-host copy: which of these sequences are done, and how many tokens each has.
    written: their tokens and log-probs, where those are copied too."""

    def __init__(self, sequences: Sequence[RequestSequence], done: Tensor, count: Tensor,
                 written: Sequence[Tensor] = ()):
        self.sequences: list[RequestSequence | None] = list(sequences)  # None: ended since
        self.columns = [x[: len(sequences)].to("cpu", non_blocking=True, copy=True) for x in (done, count)]
        self.written = [x.to("cpu", non_blocking=True, copy=True) for x in written]
        self.event = torch.cuda.Event() if done.is_cuda else None
        if self.event:
            self.event.record()

    def wait(self) -> tuple[list[bool], list[int]]:
        if self.event:
            self.event.synchronize()
        done, count = self.columns
        return done.tolist(), count.tolist()


class RequestBatch:
    """`rows` slots of `max_new_tokens` tokens each, after prompts of up to `max_prompt_tokens`.

    positions: the most of both together, where that is less; the model's own are never passed. prompts:
    places of the prompt cache. version: of the weights. decoded_tokens: sampled or forced tokens of requests
    that went through the layers.

    Column i of the state tensors is active sequence i. `slot` says where its KV cache is, `shown` how many
    tokens stand there before those sampled now, `at` the number of the next one.
    """

    def __init__(self, model: DecodableModel, chat: Chat, *, rows: int, max_prompt_tokens: int,
                 max_new_tokens: int, positions: int | None = None, prompts: int | None = None):
        self.model, self.chat, self.rows, self.version = model, chat, rows, 0
        self.max_prompt_tokens, self.max_new_tokens = max_prompt_tokens, max_new_tokens
        self.positions = min(positions or max_prompt_tokens + max_new_tokens,
                             model.config.max_position_embeddings)
        device = self.device = model.head.device
        size = self.size = max(rows, MIN_ROWS) if device.type == "cpu" else rows  # columns
        prompts, new = prompts or rows + min(rows, PREFETCH), max(max_new_tokens, 2)
        self.engine: Engine = model.engine(rows=size, prompts=prompts, read=max(max_prompt_tokens, MIN_ROWS),
                                           new=new, positions=max(self.positions, MIN_ROWS))
        hidden_size = model.config.hidden_size
        self.scheduler = Scheduler[RequestSequence](self.engine, rows, hidden_size)
        self.ends = torch.tensor(chat.stop, device=device)
        self.nobody = torch.tensor([[0], [0], [0], [size], [prompts], [1]], dtype=torch.int64, device=device)
        self.columns = self.nobody.repeat(1, size)
        self.at, self.count, self.shown, self.slot, self.prompt, self.prompt_length = self.columns
        self.done = torch.ones(size, dtype=torch.bool, device=device)
        self.hidden = torch.zeros(size, hidden_size, dtype=self.engine.dtype, device=device)
        # by slot and token number
        self.u = torch.zeros(size + 1, new, dtype=torch.float64, device=device)
        self.out = torch.zeros(size + 1, new, dtype=torch.int64, device=device)
        self.logp = torch.zeros(size + 1, new, device=device)
        # of a step of requests: tokens, where they stand in their slots, log-probs
        self.token, self.where = torch.zeros(2, size, dtype=torch.int64, device=device)
        self.token_logp = torch.zeros(size, device=device)
        self.active: list[RequestSequence] = []
        self.settings: Sampling | None = None  # by which all active sequences are sampled; None: each its own
        self.changed = True  # whether other sequences are active than in the last step
        self.pads = True     # whether few rows are padded to min_rows
        self.left = self.longest = 0  # the most tokens that a sequence has still to sample, and that one has
        self.fused_samplers: dict[Sampling, Callable[..., tuple[Tensor, Tensor]] | None] = {}
        self.graphs: dict[tuple[str, Sampling, int], torch.cuda.CUDAGraph] = {}
        self.runs: Counter[tuple[str, Sampling, int]] = Counter()
        self.logits: Tensor | None = None  # of the last step in which each was sampled by its own settings
        # of sequences about to end: how many tokens are detokenized, and their bytes
        self.detokenized: dict[RequestSequence, tuple[int, bytes]] = {}
        self.copy_stream = torch.cuda.Stream() if device.type == "cuda" else None
        self.decoded_tokens = 0

    @property
    def busy(self) -> bool:
        return bool(self.active or self.scheduler.waiting)

    @property
    def computed_tokens(self) -> int:
        """Tokens that went through the layers, prompts included."""
        return self.scheduler.prefilled_tokens + self.decoded_tokens

    @property
    def pace(self) -> tuple[int, int]:
        """Of a collection: steps between two snapshots, and snapshots that further steps do not wait for."""
        return (LOOK_STEPS, 1) if self.device.type == "cuda" else (1, 0)

    @property
    def min_rows(self) -> int:
        """Rows that a step on a CPU is padded to."""
        return MIN_ROWS if self.device.type == "cpu" and not self.engine.independent else 1

    # sequences enter and leave

    def admit(self) -> list[RequestSequence]:
        """Waiting sequences take free slots and the columns behind the active ones."""
        admitted = self.scheduler.admit()
        if admitted is None:
            return []
        sequences, _, states = admitted
        self.activate(sequences, states)
        return sequences

    def activate(self, sequences: list[RequestSequence], states: Tensor) -> None:  # [R, D]
        """states: from which the next token of each is sampled."""
        first = len(self.active)
        if not first:
            self.compact([], self.size)  # columns of finished sequences, and of a call that was broken off
        columns = slice(first, first + len(sequences))
        numbers = self.ints([(len(s.tokens) - s.shown, 0, s.shown, s.slot, s.prompt.place,
                              len(s.prompt.tokens)) for s in sequences]).T
        self.columns[:, columns] = numbers
        self.done[columns] = False
        self.hidden[columns] = states
        seed = self.ints([s.seeds[s.number] for s in sequences])
        number = torch.arange(self.u.shape[1], device=self.device)
        self.u[self.slot[columns]] = uniform(seed[:, None], number[None])
        self.engine.ops.nudge(self.hidden)  # the steps come next
        self.active, self.changed = [*self.active, *sequences], True

    def retire(self, ended: Iterable[RequestSequence]) -> None:
        """These leave their columns; the others move to the front."""
        gone = set(ended)
        stay = [i for i, sequence in enumerate(self.active) if sequence not in gone]
        if stay:
            self.compact(stay, len(self.active))
        self.active, self.changed = [self.active[i] for i in stay], True

    def compact(self, rows: list[int], before: int) -> None:
        """These rows move to the front; the columns behind them are dummies."""
        self.engine.ops.compact_rows(self.columns, self.done, self.hidden, self.ints(rows), before,
                                     self.nobody)

    # a step

    def advance(self, n: int) -> None:
        """One more token for the first n rows."""
        self.run_layers(n, *self.choose(n))

    def choose(self, n: int) -> tuple[Tensor, Tensor]:
        """The next tokens of the first n rows, and where they stand in their slots."""
        settings, ops, slot = self.settings, self.engine.ops, self.slot[:n]
        if settings and settings not in self.fused_samplers:
            if len(self.fused_samplers) == MAX_GRAPHS:  # clients may send any temperature
                self.fused_samplers.clear()
            self.fused_samplers[settings] = ops.fused_sampler(self)
        if settings and (fused := self.fused_samplers[settings]):
            return fused(self, n)
        logits, u = self.engine.logits(self.hidden[:n]), self.u[slot, self.at[:n]]
        token, logp = draw_tokens(logits, u, settings, ops) if settings else self.draw_each(logits, u)
        return token, ops.record_tokens(token, logp, self.at[:n], slot, self.shown[:n], self.done[:n],
                                        self.count[:n], self.out, self.logp, self.ends, self.out.shape[1] - 1)

    def run_layers(self, n: int, token: Tensor, where: Tensor, longest: int | None = None) -> None:
        """Sampled tokens through all layers, to the states from which the next ones are sampled."""
        self.hidden[:n] = self.engine.step(token, where, self.slot[:n], self.prompt[:n],
                                           self.prompt_length[:n], longest)

    def run(self, part: Callable[[int], None], n: int, capture_after: int = 1) -> None:
        """A part of a step for the first n rows; on a GPU, where all are sampled alike, by the graph of the
        next larger size, captured once it was run so many times (which compiles and loads all kernels)."""
        if self.device.type != "cuda" or not self.engine.graphs or self.settings is None:
            return part(n)
        key = (part.__name__, self.settings, min(self.size, graph_size(n)))
        if key in self.graphs:
            return self.graphs[key].replay()
        part(key[-1])
        self.runs[key] += 1
        if self.runs[key] == capture_after:
            if len(self.graphs) == MAX_GRAPHS:
                self.graphs.clear()
                self.runs.clear()
            self.capture(key, part)

    def capture(self, key: tuple[str, Sampling, int], part: Callable[[int], None]) -> None:
        """The CUDA graph of a part of a step; where there can be none, the engine says so."""
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        pool = next((g.pool() for g in self.graphs.values()), None)
        try:
            with capturing(), torch.cuda.graph(graph, pool=pool):
                part(key[-1])
        except RuntimeError as error:
            torch.cuda.set_stream(stream)  # that of a capture which failed is left current
            return self.engine.uncaptured(error)
        self.graphs[key] = graph

    # requests that come and go

    def check(self, prompt: int, new: int) -> None:
        """Refuses a prompt of so many tokens with so many new ones where they have no room."""
        if not 0 < prompt <= self.max_prompt_tokens:
            raise ValueError(f"the prompt has {prompt} tokens, and 1 to {self.max_prompt_tokens} have room.")
        if new > self.max_new_tokens or prompt + new > self.positions:
            raise ValueError(f"{new} tokens after a prompt of {prompt} are asked for, and "
                             f"{min(self.max_new_tokens, self.positions - prompt)} have room.")

    def add(self, prompt: Sequence[int], requests: Sequence[Request]) -> list[RequestSequence]:
        """Sequences that wait for a slot each; their prompt is prefilled once."""
        for request in requests:
            self.check(len(prompt), request.sampling.max_new_tokens)
        cached = CachedPrompt(list(prompt), len(requests))
        sequences = [RequestSequence(cached, request=request, seeds=(request.seed,),
                                     detokenizer=self.detokenizer(request)) for request in requests]
        self.scheduler.waiting += sequences
        return sequences

    def detokenizer(self, request: Request) -> IncrementalDetokenizer | None:
        wanted = request.stream or request.sampling.stop
        return IncrementalDetokenizer(self.chat.decode, request.sampling.stop) if wanted else None

    def extend(self, sequence: RequestSequence, tokens: Iterable[int],
               request: Request | None = None) -> None:
        """Appends tokens to a kept sequence and samples on, by its request or a new one."""
        assert sequence.finish_reason and sequence.state is not None, "a sequence that has ended and was kept"
        tokens, request = list(tokens), request or sequence.request
        self.check(len(sequence.prompt.tokens),
                   len(sequence.tokens) + len(tokens) + request.sampling.max_new_tokens)
        sequence.request, sequence.finish_reason, sequence.turn = request, None, len(sequence.sampled)
        sequence.forced, sequence.detokenizer = deque(tokens), self.detokenizer(request)
        sequence.seeds = (request.seed,)
        self.activate([sequence], sequence.state)

    def abort(self, sequence: RequestSequence) -> None:
        """Removes a sequence from the queue or its slot."""
        sequence.finish_reason = sequence.finish_reason or "abort"
        if sequence in self.scheduler.waiting:
            self.scheduler.waiting.remove(sequence)
        elif sequence.slot is None:
            return
        elif sequence in self.active:
            self.retire([sequence])
        self.scheduler.release([sequence])

    def update_weights(self, version: int) -> None:
        """In-flight weight update: active sequences go on with the model's current weights and their KV
        cache."""
        self.scheduler.forget_prefilled()
        self.engine.refresh()
        self.version = version

    @torch.no_grad()
    def step(self) -> list[tuple[RequestSequence, SampledToken]]:
        """One more token for every sequence -> those that were sampled, not those that were forced."""
        self.admit()
        active, n = self.active, len(self.active)
        if not active:
            return []
        if self.changed or self.settings is None:
            self.arrange()
        rows = max(n, self.min_rows) if self.pads else n
        self.left, self.longest = self.left - 1, self.longest + 1
        self.run(self.choose_requests, rows, CAPTURE_AFTER)
        tokens, logps = fetch_async(self.token[:n]), fetch_async(self.token_logp[:n])
        if self.left:  # the host reads the tokens meanwhile; rows that end now are computed for nothing
            self.run(self.run_request_layers, rows, CAPTURE_AFTER)
        sampled = [(s, s.take(self.with_logprobs(i, s.request, token, logp), self.version))
                   for i, (s, token, logp) in enumerate(zip(active, tokens().tolist(), logps().tolist(),
                                                            strict=True)) if not s.forced]
        for s in active if len(sampled) < n else ():
            if s.forced:
                s.tokens.append(s.forced.popleft())
        ended = [s for s in active if s.finish_reason]
        if ended:
            for i, s in enumerate(active):
                s.state = self.hidden[i].clone() if s.finish_reason and s.request.keep else None
            self.retire(ended)
            gone = [s for s in ended if not s.request.keep]
            self.scheduler.release(gone)
            n -= len(gone)
        self.decoded_tokens += n
        return sampled

    def arrange(self) -> None:
        """Whether the active sequences are all sampled by the same settings; how long they may become."""
        requests = [s.request for s in self.active]
        first = requests[0].distribution
        alike = not any(r.raw_logprobs or r.top_logprobs
                        or (r.distribution is not first and r.distribution != first) for r in requests)
        forced = any(s.forced for s in self.active)
        self.settings = with_max_new_tokens(first, self.out.shape[1] - 1) if alike and not forced else None
        self.left = UNBOUNDED if forced or any(r.keep for r in requests) else max(
            s.request.sampling.max_new_tokens + s.turn - len(s.sampled) for s in self.active)
        self.longest = max(len(s.prompt.tokens) + len(s.tokens) for s in self.active)
        self.changed = False

    def choose_requests(self, n: int) -> None:
        token, where = self.token[:n], self.where[:n]
        token[:], where[:] = self.choose(n)
        self.token_logp[:n] = self.logp[self.slot[:n], where - self.shown[:n]]

    def run_request_layers(self, n: int) -> None:
        longest = None if self.settings and self.engine.graphs else self.longest
        self.run_layers(n, self.token[:n], self.where[:n], longest)

    def draw_each(self, logits: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:  # [R, V], [R] -> [R], [R]
        """The next token of each sequence, by its own settings or forced, and its log-prob."""
        token, logp = torch.zeros_like(u, dtype=torch.int64), torch.zeros_like(u, dtype=torch.float32)
        groups: dict[Sampling, list[int]] = {}
        for i, s in enumerate(self.active):
            if not s.forced:
                groups.setdefault(s.request.distribution, []).append(i)
        for sampling, mine in groups.items():
            index = self.ints(mine)
            token[index], logp[index] = draw_tokens(logits[index], u[index], sampling, self.engine.ops)
        forced = [(i, s.forced[0]) for i, s in enumerate(self.active) if s.forced]
        if forced:
            index, tokens = self.ints(forced).T
            token[index] = tokens
        self.logits = logits
        return token, logp

    def with_logprobs(self, i: int, request: Request, token: int, logp: float) -> SampledToken:
        if (request.raw_logprobs or request.top_logprobs) and self.logits is not None:
            return token_with_logprobs(request, self.logits[i], token, logp)
        return SampledToken(token, logp)

    @torch.no_grad()
    def score(self, tokens: Sequence[int], top: int = 0) -> list[SampledToken]:
        """The model's own log-prob of each of these tokens but the first, given those before it."""
        self.check(len(tokens), 0)
        row = torch.tensor([[*tokens, *[0] * (MIN_ROWS - len(tokens))]])
        packed = pack(torch.tensor([row.shape[1]]), row).to(self.device)
        states = self.model.states(to_device(row, self.device), packed)
        request = Request(raw_logprobs=True, top_logprobs=top)
        scored: list[SampledToken] = []
        for start in range(0, len(tokens) - 1, SCORED):
            logits = self.engine.logits(states[start: start + SCORED])
            scored += [token_with_logprobs(request, x, token, 0.0)
                       for x, token in zip(logits, tokens[start + 1:], strict=False)]
        self.decoded_tokens += len(tokens)
        return scored

    @torch.no_grad()
    def stream(self, prompt: list[int], seed: int, sampling: Sampling) -> Iterator[int]:
        """The tokens of one sequence, alone in the batch, as they are sampled."""
        self.reset(pads=False)
        stop_strings, sampling = sampling.stop, replace(sampling, stop=())
        (sequence,) = self.add(prompt, [Request(sampling=sampling, seed=seed, stop_token_ids=self.chat.stop)])
        while sequence.finish_reason is None and self.stops_at(sequence.tokens, stop_strings) is None:
            self.step()
            yield sequence.tokens[-1]

    def reset(self, held: Iterable[RequestSequence] = (), *, pads: bool) -> None:
        """Nothing is active or waits, and nothing is cached but the sequences `held`."""
        self.scheduler.reset(held)
        self.active, self.detokenized, self.pads = [], {}, pads

    # collections

    def fits(self, *, rows: int, max_prompt_tokens: int, prompts: int) -> bool:
        """Whether a collection of as many rows and prompts, as long as these, has room."""
        return (rows <= self.rows and max_prompt_tokens <= self.max_prompt_tokens
                and prompts <= self.engine.prompts)

    def cache_hits(self, contexts: Sequence[list[int]],
                   after: Sequence[FinishedSequence | None]) -> dict[int, RequestSequence]:
        """The contexts that continue a sequence which is still in its slot, by number."""
        hits = {}
        for i, (context, last) in enumerate(zip(contexts, after, strict=bool(after))):
            cached = last.cached if last else None
            if cached is None or cached.slot is None or self.scheduler.cached.get(cached.slot) is not cached:
                continue
            begun = [*cached.prompt.tokens, *cached.tokens]
            if len(context) > len(begun) and context[: len(begun)] == begun:
                hits[i] = cached
        return hits

    def grow(self, read: int, new: int) -> None:
        """Room for longer prompts and sequences; the cache stays. The engine has to be refreshed then."""
        read, new = max(read, self.engine.read), max(new, self.engine.new)
        if (read, new) != (self.engine.read, self.engine.new):
            self.positions = min(read + new - 1, self.model.config.max_position_embeddings)
            self.engine.grow(read=read, new=new, positions=max(self.positions, MIN_ROWS))
            self.max_prompt_tokens = read

    @torch.no_grad()
    def decode(self, prompts: list[list[int]], n: int, seeds: Sequence[int], sampling: Sampling,
               hits: Mapping[int, RequestSequence] | None = None) -> Iterator[list[FinishedSequence]]:
        """n sequences after every prompt, those together that were seen to end together.

        hits: the prompts, one for each sequence, that continue cached sequences; of them only what was added
        is computed. All sequences stay cached then; None: none does.

        On a CPU no sequence depends on how many stand beside it. Where the engine is not independent, 16 or
        more are padded as they end (MIN_ROWS); a call of fewer is not, which would cost twice its time.
        """
        held, request = hits or {}, Request(sampling=sampling)
        self.reset(held.values(), pads=len(seeds) >= MIN_ROWS)
        self.settings = sampling
        self.resume(held, prompts, seeds, request)
        cached = [CachedPrompt(tokens, n) for tokens in prompts]
        self.scheduler.waiting += [RequestSequence(cached[i // n], request=request, seeds=seeds, number=i)
                                   for i in range(len(seeds)) if i not in held]
        snapshots: deque[Snapshot] = deque()
        steps, ahead = self.pace
        least = self.min_rows if self.pads else 1
        now, quiet = 0, False  # steps so far; whether the last snapshot saw no sequence end
        while self.busy:
            for sequence in self.admit():
                sequence.since = now
            most = sampling.max_new_tokens - (now - self.active[-1].since)  # the last is the youngest
            soon = quiet and 0 < most <= LAST_STEPS and not self.scheduler.waiting
            times = most if soon else min(steps, most)
            self.advance_collection(max(len(self.active), least), times)
            now += max(times, steps)
            written = self.rows_of(self.slot[: len(self.active)]) if soon else ()
            snapshots.append(Snapshot(self.active, self.done, self.count, written))
            if len(snapshots) <= ahead and most > steps:
                continue
            ended = self.ended(snapshot := snapshots.popleft(), sampling.stop)
            quiet = ahead > 0 and not ended
            if soon and quiet:
                self.detokenize_ahead(snapshot)
            if ended:
                if hits is not None:
                    ended = {s: done._replace(cached=self.keep_cached(s, done.tokens))
                             for s, done in ended.items()}
                yield list(ended.values())
                if hits is None:
                    self.scheduler.release(ended)
                self.retire(ended)
                for later in snapshots:
                    later.sequences = [None if s in ended else s for s in later.sequences]

    def advance_collection(self, n: int, times: int) -> None:
        """So many more tokens for the first n rows."""
        for _ in range(times):
            self.run(self.advance, n)

    def resume(self, held: Mapping[int, RequestSequence], prompts: list[list[int]], seeds: Sequence[int],
               request: Request) -> None:
        """Cached sequences continue, after what was added to each."""
        sequences: list[RequestSequence] = []
        for i, last in held.items():
            tokens = prompts[i][len(last.prompt.tokens):]
            sequences.append(RequestSequence(last.prompt, last.slot, request=request, seeds=seeds, number=i,
                                             tokens=tokens, shown=len(tokens)))
        if sequences:
            self.activate(sequences, self.append(sequences, [len(last.tokens) for last in held.values()]))

    def append(self, sequences: list[RequestSequence], computed: list[int]) -> Tensor:  # [R, D]
        """Computes the tokens of each sequence behind those that are computed already -> the state after its
        last token.

        All added tokens are rows of a step, as many as a step has: each attends to those before it in its
        slot, as every layer stores the keys of all of them before any attends.
        """
        dummy = (0, 0, self.size, self.engine.prompts, 1)
        tokens = [(token, at, s.slot, s.prompt.place, len(s.prompt.tokens))
                  for s, start in zip(sequences, computed, strict=True)
                  for at, token in enumerate(s.tokens[start:], start)]
        states = []
        for start in range(0, len(tokens), self.size):
            part = tokens[start: start + self.size]
            columns = self.ints([*part, *[dummy] * (self.min_rows - len(part))]).T
            states.append(self.engine.step(*(column.contiguous() for column in columns))[: len(part)])
        added = [len(s.tokens) - start for s, start in zip(sequences, computed, strict=True)]
        return torch.cat(states)[torch.tensor(added).cumsum(0) - 1]

    def ended(self, snapshot: Snapshot, stop_strings: tuple[str, ...]
              ) -> dict[RequestSequence, FinishedSequence]:
        """Sequences that have ended: at a stop token, at the length, or where a stop string is complete."""
        done, count = snapshot.wait()
        asked = [i for i, s in enumerate(snapshot.sequences) if s is not None and (done[i] or stop_strings)]
        if not asked:
            return {}
        texts = self.fetch(snapshot, asked, max(count[i] for i in asked))
        last = texts[0][range(len(asked)), [count[i] - 1 for i in asked]]
        ended = {}
        stops = np.isin(last, self.chat.stop).tolist()
        for i, tokens, logp, stopped in zip(asked, *texts, stops, strict=True):
            cut = self.stops_at(tokens[: count[i]].tolist(), stop_strings) if stop_strings else None
            sequence = snapshot.sequences[i]
            if sequence is not None and (done[i] or cut is not None):
                length = count[i] if cut is None else cut
                begun = self.detokenized.pop(sequence, NOTHING)
                sampled = ArrayTuple(tokens[:length], begun if begun[0] <= length else NOTHING)
                ended[sequence] = FinishedSequence(sequence.number, sampled, ArrayTuple(logp[:length]),
                                                   stopped or cut is not None)
        return ended

    def stops_at(self, tokens: list[int], stop_strings: tuple[str, ...]) -> int | None:
        """How many tokens it takes to complete a stop string."""
        if not any(stop in self.chat.decode(tokens) for stop in stop_strings):
            return None
        return next(n for n in range(1, len(tokens) + 1)
                    if any(s in self.chat.decode(tokens[:n]) for s in stop_strings))

    def keep_cached(self, sequence: RequestSequence, sampled: Sequence[int]) -> RequestSequence:
        """A finished sequence stays in its slot until it is continued or evicted."""
        assert sequence.slot is not None
        sequence.tokens = [*sequence.tokens, *sampled]
        self.scheduler.cached[sequence.slot] = sequence
        return sequence

    def detokenize_ahead(self, snapshot: Snapshot) -> None:
        """Detokenizes what sequences have written that are all about to end, while the GPU decodes on."""
        _, count = snapshot.wait()
        here = [(i, s) for i, s in enumerate(snapshot.sequences) if s is not None]
        tokens, _ = self.fetch(snapshot, [i for i, _ in here], max(count[i] for i, _ in here))
        texts = self.chat.spell([row[: count[i]] for (i, _), row in zip(here, tokens, strict=True)])
        if texts is not None:
            self.detokenized = {s: (count[i], text) for (i, s), text in zip(here, texts, strict=True)}

    def fetch(self, snapshot: Snapshot, which: list[int], wide: int) -> list[np.ndarray]:
        """The first tokens and log-probs of these rows; steps under way are not waited for."""
        if snapshot.written:
            return [x.numpy()[which, :wide] for x in snapshot.written]
        slots = [s.slot for i in which if (s := snapshot.sequences[i]) is not None]
        with torch.cuda.stream(self.copy_stream) if self.copy_stream else nullcontext():
            return [x.cpu().numpy() for x in self.rows_of(self.ints(slots), wide)]

    def rows_of(self, slots: Tensor, wide: int | None = None) -> list[Tensor]:
        return [x[slots, :wide] for x in (self.out, self.logp)]

    def ints(self, numbers: Sequence[object]) -> Tensor:
        return int_tensor(numbers, self.device)


def graph_size(n: int) -> int:
    """The size of the graph that n rows run in: 8, 16, 32, 64, 128, then by 128s."""
    return max(8, 1 << (n - 1).bit_length()) if n <= 128 else -(-n // 128) * 128


def token_with_logprobs(request: Request, logits: Tensor, token: int, logp: float) -> SampledToken:  # [V]
    """A sampled token with the log-probs that its request asks for; logp: of the distribution that was
    sampled from."""
    sampling = request.sampling
    if not request.raw_logprobs and sampling.temperature == 0:
        return SampledToken(token, logp, ((token, logp),))
    if not request.raw_logprobs:
        logits = filter_logits(logits[None] / sampling.temperature, sampling)[0]
    all_logp = logits.log_softmax(-1)
    best = all_logp.topk(min(request.top_logprobs, len(all_logp))) if request.top_logprobs else None
    top = tuple(zip(best.indices.tolist(), best.values.tolist(), strict=True)) if best else ()
    return SampledToken(token, float(all_logp[token]) if request.raw_logprobs else logp, top)


def draw_tokens(logits: Tensor, u: Tensor, sampling: Sampling,
                ops: Kernels) -> tuple[Tensor, Tensor]:  # [R, V], [R] -> tokens, logp [R]
    """A token by the inverse of the cumulative distribution at u, and its log-prob under that same
    distribution."""
    if sampling.temperature == 0:
        return logits.argmax(-1), torch.zeros_like(u, dtype=torch.float32)
    if sampling.unfiltered:
        return ops.sample_tokens(logits, u, sampling.temperature)
    return ops.sample_tokens(filter_logits(logits / sampling.temperature, sampling), u, 1.0)


def filter_logits(logits: Tensor, sampling: Sampling) -> Tensor:  # [R, V] -> [R, V]
    """top-k, then top-p, then min-p; the logits of what they drop become -inf."""
    if sampling.top_k and sampling.top_k < logits.shape[1]:
        edge = logits.topk(sampling.top_k, dim=-1).values[:, -1:]
        logits = logits.masked_fill(logits < edge, -torch.inf)
    if sampling.top_p < 1:
        ordered, index = logits.sort(dim=-1, descending=True)
        p = ordered.softmax(-1)
        drop = p.cumsum(-1) - p >= sampling.top_p  # the first token past the edge stays
        logits = logits.masked_fill(torch.zeros_like(drop).scatter(1, index, drop), -torch.inf)
    if sampling.min_p > 0:
        p = logits.softmax(-1)
        logits = logits.masked_fill(p < sampling.min_p * p.amax(-1, keepdim=True), -torch.inf)
    return logits

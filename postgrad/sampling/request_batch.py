"""The decode loop: a step gives every active sequence one more token. The sampler in this process and the
endpoint both run on it.

    batch = RequestBatch(model, chat, rows=8, max_prompt_tokens=512, max_new_tokens=256)
    sequence, = batch.add(chat.render(messages), [Request(seed=3, stop_token_ids=chat.stop)])
    while batch.busy:
        for sequence, sampled in batch.step():
            print([s.token for s in sampled], sequence.finish_reason)

State stays on the device, one column per active sequence. `step` serves requests that come and go, each with
its own sampling parameters, stop rule and seed; the host sees every token, on a GPU several at a time.
`decode` serves a collection that is sampled alike: the host only looks for finished sequences, on a GPU every
few tokens, at a snapshot, while the next steps are under way. What a sequence samples depends on the model,
its prompt and its seed, not on its neighbours. Left out on purpose: threads (all calls come from one).
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from postgrad.maths.noise import uniform, widest
from postgrad.maths.packing import fetch_async, pack, to_device
from postgrad.models.chat import Chat
from postgrad.models.engine import Engine
from postgrad.models.graph_capture import capturing
from postgrad.models.kernels.cpu import NoDistribution
from postgrad.records import Sampling
from postgrad.sampling.detokenizer import IncrementalDetokenizer
from postgrad.sampling.drawing import draw_tokens, with_logprobs
from postgrad.sampling.sampler import DecodableModel
from postgrad.sampling.scheduler import MIN_ROWS, CachedPrompt, Scheduler, int_tensor
from postgrad.sampling.sequences import (
    NOTHING,
    ArrayTuple,
    FinishedSequence,
    Request,
    RequestSequence,
    SampledToken,
    with_max_new_tokens,
)

PREFETCH = 16       # prompts that are prefilled before a slot is free: few large passes take less time
SCORED = 512        # tokens whose logits stand in memory at once
CAPTURE_AFTER = 8   # steps of the same kind, of requests that come and go, after which a graph is captured
MAX_GRAPHS = 64
LOOK_STEPS = 4      # on a GPU, steps between two looks of the host
MANY_ROWS = 128     # from which requests take twice as many: the host's work is by row
# On a GPU a prefill takes as long as several steps of all rows: a request waits so many seconds for others,
# unless they are already such a share of the active ones
GATHER_SECONDS, GATHER_SHARE = 0.008, 1 / 8
LAST_STEPS = 16     # steps left to sequences that started together, none of which has ended: no look before
GraphKey = tuple[str, Sampling | None, int]  # part of a step, settings, rows


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


class Burst(NamedTuple):
    """Tokens of requests that the device samples, `times` for each; tokens and logps [R, times] wait for
    them. logits [R, V]: where log-probs are made of them."""

    sequences: list[RequestSequence]
    times: int
    version: int
    tokens: Callable[[], Tensor]
    logps: Callable[[], Tensor]
    logits: Tensor | None


class RequestBatch:
    """`rows` slots of `max_new_tokens` tokens each, after prompts of up to `max_prompt_tokens`.

    positions: the most of both together, where that is less; the model's own are never passed. prompts:
    places of the prompt cache. version: of the weights. decoded_tokens: sampled tokens of requests that went
    through the layers.

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
        self.u = widest(torch.zeros(size + 1, new, device=device))
        self.out = torch.zeros(size + 1, new, dtype=torch.int64, device=device)
        self.logp = torch.zeros(size + 1, new, device=device)
        # of a step of requests that are sampled each by its own settings: tokens, where they stand
        self.token, self.where = torch.zeros(2, size, dtype=torch.int64, device=device)
        self.bursts: deque[Burst] = deque()  # of requests, under way
        self.waits_since: float | None = None  # the first of those that wait for a prefill
        self.active: list[RequestSequence] = []
        self.settings: Sampling | None = None  # by which all active sequences are sampled; None: each its own
        self.changed = True  # whether other sequences are active than in the last step
        self.pads = True     # whether few rows are padded to min_rows
        self.left = self.longest = 0  # the most tokens that a request has still to sample, and that one has
        self.fused_samplers: dict[Sampling, Callable[..., tuple[Tensor, Tensor]] | None] = {}
        self.graphs: dict[GraphKey, torch.cuda.CUDAGraph] = {}
        self.runs: Counter[GraphKey] = Counter()
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
        """Steps between two looks of the host, and looks that further steps do not wait for."""
        return (LOOK_STEPS, 1) if self.device.type == "cuda" else (1, 0)

    @property
    def reuses(self) -> bool:
        """Whether any request may begin with the keys of another one's prefill: on a CPU where they are its
        own bits."""
        return self.device.type == "cuda" or self.engine.independent

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
        numbers = self.ints([(0, 0, s.shown, s.slot, s.prompt.place, len(s.prompt.tokens))
                             for s in sequences]).T
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
        """A part of a step for the first n rows; on a GPU by the graph of the next larger size, captured once
        it was run so many times (which compiles and loads all kernels)."""
        if self.device.type != "cuda" or not self.engine.graphs:
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

    def capture(self, key: GraphKey, part: Callable[[int], None]) -> None:
        """The CUDA graph of a part of a step; where there can be none, the engine says so."""
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        pool = next((g.pool() for g in self.graphs.values()), None)
        try:
            with capturing(tidy=pool is None), torch.cuda.graph(graph, pool=pool):
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
        """Sequences that wait for a slot each; their prompt is prefilled once, from where a prefix ends that
        is in the cache."""
        cached, sequences = CachedPrompt(list(prompt), len(requests)), list[RequestSequence]()
        caching = requests[0].caching
        if self.engine.extends and caching != "none" and (caching == "turns" or self.reuses):
            cached.exact = caching == "prompts"
        for request in requests:
            self.check(len(prompt), request.sampling.max_new_tokens)
            sequences.append(RequestSequence(cached, request=request, seeds=(request.seed,),
                                             detokenizer=self.detokenizer(request)))
        self.scheduler.waiting += sequences
        return sequences

    def detokenizer(self, request: Request) -> IncrementalDetokenizer | None:
        wanted = request.stream or request.sampling.stop
        return IncrementalDetokenizer(self.chat.decode, request.sampling.stop) if wanted else None

    @torch.no_grad()
    def extend(self, sequence: RequestSequence, tokens: Iterable[int],
               request: Request | None = None) -> None:
        """Appends tokens to a kept sequence and samples on, by its request or a new one."""
        assert sequence.finish_reason and sequence.slot is not None, "a sequence that has ended and was kept"
        tokens, request, before = list(tokens), request or sequence.request, len(sequence.tokens)
        self.check(len(sequence.prompt.tokens), before + len(tokens) + request.sampling.max_new_tokens)
        sequence.request, sequence.finish_reason, sequence.turn = request, None, len(sequence.sampled)
        sequence.seeds, sequence.detokenizer = (request.seed,), self.detokenizer(request)
        sequence.tokens += tokens
        sequence.shown = len(sequence.tokens)
        # the last sampled one has not gone through the layers
        self.activate([sequence], self.append([sequence], [before - 1]))

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
    def step(self) -> list[tuple[RequestSequence, list[SampledToken]]]:
        """More tokens for every sequence -> those that the host sees now. On a GPU, sequences that are
        sampled alike get several a call, and the host sees those of the call before while the device goes
        on."""
        if self.gathered():
            self.admit()
        if self.changed:
            self.arrange()
        steps, ahead = self.pace if self.settings else (1, 0)
        if self.left > 0:
            times = min(2 * steps if len(self.active) >= MANY_ROWS and ahead else steps, self.left)
            self.bursts.append(self.burst(times))
            self.left -= times
        seen: dict[RequestSequence, list[SampledToken]] = {}
        while len(self.bursts) > (ahead if self.left > 0 else 0):
            for sequence, sampled in self.see(self.bursts.popleft()):
                seen[sequence] = seen.get(sequence, []) + sampled
        return list(seen.items())

    def gathered(self) -> bool:
        """Whether waiting requests are admitted now."""
        waiting, active = len(self.scheduler.waiting), len(self.active)
        if not waiting:
            self.waits_since = None
            return False
        now = time.monotonic()
        self.waits_since = now if self.waits_since is None else self.waits_since
        if (self.device.type == "cpu" or waiting >= GATHER_SHARE * active
                or now - self.waits_since >= GATHER_SECONDS):
            self.waits_since = None
            return True
        return False

    def arrange(self) -> None:
        """Whether the active sequences are all sampled by the same settings; how long they may become."""
        requests = [s.request for s in self.active]
        first = requests[0].distribution if requests else None
        alike = first is not None and not any(
            r.needs_logits or (r.distribution is not first and r.distribution != first) for r in requests)
        self.settings = with_max_new_tokens(first, self.out.shape[1] - 1) if first and alike else None
        self.left = max((s.room - s.under_way for s in self.active), default=0)
        self.longest = max((len(s.prompt.tokens) + len(s.tokens) + s.under_way for s in self.active),
                           default=0)
        self.changed = False

    def burst(self, times: int) -> Burst:
        """So many more tokens for every active sequence; rows that end meanwhile are computed for nothing."""
        active, n = list(self.active), len(self.active)
        rows = max(n, self.min_rows) if self.pads else n
        places = self.at[:n, None] + torch.arange(times, device=self.device)
        for i in range(1, times + 1):
            last = i == self.left  # nobody samples another one
            self.longest += 1
            if self.settings and self.device.type == "cuda" and not last:
                self.run(self.advance, rows, CAPTURE_AFTER)
            else:
                self.choose_requests(rows)
                if not last:
                    self.run(self.run_request_layers, rows, CAPTURE_AFTER)
        places.clamp_(max=self.out.shape[1] - 1)
        tokens, logps = (fetch_async(x[self.slot[:n, None], places]) for x in (self.out, self.logp))
        for s in active:
            s.under_way += times
        return Burst(active, times, self.version, tokens, logps, None if self.settings else self.logits)

    def see(self, burst: Burst) -> list[tuple[RequestSequence, list[SampledToken]]]:
        """The tokens of a burst, of sequences that had not ended before; those that end with them leave."""
        tokens, logps = burst.tokens().tolist(), burst.logps().tolist()
        listed = [SampledToken.listed(*row) for row in zip(tokens, logps, strict=True)]
        if burst.logits is not None:
            self.put_logprobs(burst, listed)
        seen = []
        for s, mine in zip(burst.sequences, listed, strict=True):
            s.under_way -= burst.times
            if not s.finish_reason:
                try:
                    seen.append((s, s.take(mine, burst.version)))
                except Exception as error:  # of a detokenizer, say: the other sequences go on
                    s.finish_reason, s.fault = "error", error
                    seen.append((s, []))
                self.decoded_tokens += len(seen[-1][1])
        if ended := [s for s, _ in seen if s.finish_reason]:
            self.retire(ended)
            gone = [s for s in ended if not s.request.keep]
            self.scheduler.leave(s for s in gone if not s.fault)
            self.scheduler.release(gone)
            self.decoded_tokens -= len(ended)  # a last token does not go through the layers
        return seen

    def choose_requests(self, n: int) -> None:
        self.token[:n], self.where[:n] = self.choose(n)

    def run_request_layers(self, n: int) -> None:
        self.run_layers(n, self.token[:n], self.where[:n], None if self.engine.graphs else self.longest)

    def draw_each(self, logits: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:  # [R, V], [R] -> [R], [R]
        """The next token of each sequence, by its own settings, and its log-prob."""
        token, logp = torch.zeros_like(u, dtype=torch.int64), torch.zeros_like(u, dtype=torch.float32)
        groups: dict[Sampling, list[int]] = {}
        for i, s in enumerate(self.active):
            groups.setdefault(s.request.distribution, []).append(i)
        for sampling, mine in groups.items():
            index = self.ints(mine)
            try:
                token[index], logp[index] = draw_tokens(logits[index], u[index], sampling, self.engine.ops)
            except NoDistribution as error:
                raise NoDistribution(mine[error.row] if error.row < len(mine) else error.row) from None
        self.logits = logits
        return token, logp

    def put_logprobs(self, burst: Burst, listed: list[list[SampledToken]]) -> None:
        """The log-probs that requests ask for in place of those that were sampled with, settings by
        settings."""
        groups: dict[tuple[Sampling | None, int], list[int]] = {}
        for i, s in enumerate(burst.sequences):
            if s.request.needs_logits:
                raw, top = s.request.raw_logprobs, s.request.top_logprobs
                groups.setdefault((None if raw else s.request.distribution, top), []).append(i)
        for (sampling, top), mine in groups.items():
            assert burst.logits is not None
            made = with_logprobs([listed[i][0] for i in mine], burst.logits[self.ints(mine)], sampling, top)
            for i, sampled in zip(mine, made, strict=True):
                listed[i] = [sampled]

    @torch.no_grad()
    def score(self, tokens: Sequence[int], top: int = 0) -> list[SampledToken]:
        """The model's own log-prob of each of these tokens but the first, given those before it."""
        self.check(len(tokens), 0)
        row = torch.tensor([[*tokens, *[0] * (MIN_ROWS - len(tokens))]])
        packed = pack(torch.tensor([row.shape[1]]), row).to(self.device)
        states = self.model.states(to_device(row, self.device), packed)
        scored: list[SampledToken] = []
        for start in range(0, len(tokens) - 1, SCORED):
            after = [SampledToken(token, 0.0) for token in tokens[start + 1: start + 1 + SCORED]]
            scored += with_logprobs(after, self.engine.logits(states[start: start + len(after)]), None, top)
        self.decoded_tokens += len(tokens)
        return scored

    @torch.no_grad()
    def stream(self, prompt: list[int], seed: int, sampling: Sampling) -> Iterator[int]:
        """The tokens of one sequence, alone in the batch, as they are sampled."""
        self.reset(pads=False)
        stop_strings, sampling = sampling.stop, replace(sampling, stop=())
        (sequence,) = self.add(prompt, [Request(sampling=sampling, seed=seed, stop_token_ids=self.chat.stop)])
        while sequence.finish_reason is None and self.stops_at(sequence.tokens, stop_strings) is None:
            for _, sampled in self.step():
                yield from (s.token for s in sampled)

    def reset(self, held: Iterable[RequestSequence] = (), *, pads: bool) -> None:
        """Nothing is active or waits, and nothing is cached but the sequences `held`."""
        self.scheduler.reset(held)
        self.active, self.detokenized, self.pads, self.changed = [], {}, pads, True
        self.bursts.clear()

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
        is computed, by steps in the same slots where the engine appends, else by a prefill after them. All
        sequences stay cached then; None: none does.

        On a CPU no sequence depends on how many stand beside it. Where the engine is not independent, 16 or
        more are padded as they end (MIN_ROWS); a call of fewer is not, which would cost twice its time.
        """
        held, request = hits or {}, Request(sampling=sampling)
        self.reset(held.values(), pads=len(seeds) >= MIN_ROWS)
        self.settings = sampling
        if self.engine.appends:
            self.resume(held, prompts, seeds, request)
            cached, begun = [CachedPrompt(tokens, n) for tokens in prompts], set(held)
        else:
            self.scheduler.cached = {s.slot: s for s in held.values() if s.slot is not None}
            cached = [CachedPrompt(tokens, n, after=held.get(i)) for i, tokens in enumerate(prompts)]
            begun = set()
        self.scheduler.waiting += [RequestSequence(cached[i // n], request=request, seeds=seeds, number=i)
                                   for i in range(len(seeds)) if i not in begun]
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
                self.decoded_tokens += sum(len(done.tokens) for done in ended.values())
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

        Where the engine takes that, all added tokens are rows of a step, as many as a step has: each attends
        to those before it in its slot, as every layer stores the keys of all of them before any attends.
        """
        dummy = (0, 0, self.size, self.engine.prompts, 1)
        tokens = [(token, at, s.slot, s.prompt.place, len(s.prompt.tokens))
                  for s, start in zip(sequences, computed, strict=True)
                  for at, token in enumerate(s.tokens[start:], start)]
        states = []
        most = self.size if self.engine.appends else 1
        self.decoded_tokens += len(tokens)
        for start in range(0, len(tokens), most):
            part = tokens[start: start + most]
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
                                                   stopped or cut is not None,
                                                   routes=self.routes_of(sequence, length))
        return ended

    def routes_of(self, sequence: RequestSequence, length: int) -> Tensor | None:
        slot, place = sequence.slot, sequence.prompt.place
        if slot is None or place is None:
            return None
        return self.engine.routes_of(slot, place, len(sequence.prompt.tokens), sequence.shown + length)

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

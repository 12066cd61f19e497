"""Requests that come and go, decoded together: each has sampling settings of its own, and the host sees every
token.

    batch = RequestBatch(model, chat, rows=8, max_prompt_tokens=512, max_new_tokens=256)
    sequence, = batch.add(chat.render(messages), [Request(seed=3, stop_token_ids=chat.stop)])
    while batch.busy:
        for sequence, sampled in batch.step():
            print(sampled.token, sequence.finish_reason)

A sequence with `keep` stays in its slot when it has ended, and `extend` appends to it without computing its
KV cache again. What a sequence samples depends on the model, its prompt and its seed, not on its neighbours.
Left out on purpose: threads (all calls come from one).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from postgrad.maths.noise import seed_of, uniform
from postgrad.maths.packing import fetch_async, pack, to_device
from postgrad.models.chat import Chat
from postgrad.models.engine import Engine
from postgrad.records import Sampling
from postgrad.sampling.batch_decoder import capture_graph, graph_size
from postgrad.sampling.detokenizer import IncrementalDetokenizer
from postgrad.sampling.logits import draw_tokens, filter_logits
from postgrad.sampling.sampler import DecodableModel
from postgrad.sampling.scheduler import MIN_ROWS, CachedPrompt, Scheduler, SlotSequence, int_tensor

PREFETCH = 16       # prompts that are prefilled before a slot is free: few large passes take less time
SCORED = 512        # tokens whose logits stand in memory at once
CAPTURE_AFTER = 8   # steps of the same kind after which a graph of them is captured
MAX_GRAPHS = 64
UNBOUNDED = 1 << 62
T = TypeVar("T")


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
        return without_lengths(self.sampling)

    def nth(self, i: int) -> Request:
        """The request of sample i: the first has the seed as it is, others a seed derived from it."""
        return replace(self, seed=seed_of(self.seed, i)) if i else self


@lru_cache(maxsize=256)
def without_lengths(sampling: Sampling) -> Sampling:
    return replace(sampling, max_new_tokens=1, stop=())


class SampledToken(NamedTuple):
    """A token, its log-prob, the likeliest tokens with theirs, and the text that may be shown with it."""

    token: int
    logp: float
    top: tuple[tuple[int, float], ...] = ()
    text: str = ""


@dataclass(eq=False, kw_only=True)
class RequestSequence(SlotSequence):
    """tokens: all after the prompt, sampled or forced. forced: tokens that are appended without sampling.
    finish_reason: stop (a token or a text), length, abort; None while it is decoded. weight_versions: which
    weights sampled from which token on, as (sampled so far, version)."""

    request: Request
    tokens: list[int] = field(default_factory=list)
    sampled: list[SampledToken] = field(default_factory=list)
    forced: deque[int] = field(default_factory=deque)
    weight_versions: list[tuple[int, int]] = field(default_factory=list)
    finish_reason: str | None = None
    detokenizer: IncrementalDetokenizer | None = None
    turn: int = 0  # tokens sampled before this turn

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


class RequestBatch:
    """`rows` slots of `max_new_tokens` tokens each, after prompts of up to `max_prompt_tokens`.

    positions: the most of both together, where that is less; the model's own are never passed. version: of
    the weights. decoded_tokens: sampled or forced tokens that went through the layers.
    """

    def __init__(self, model: DecodableModel, chat: Chat, *, rows: int, max_prompt_tokens: int,
                 max_new_tokens: int, positions: int | None = None):
        self.model, self.chat, self.rows, self.version = model, chat, rows, 0
        self.positions = min(positions or max_prompt_tokens + max_new_tokens,
                             model.config.max_position_embeddings)
        self.max_prompt_tokens, self.max_new_tokens = max_prompt_tokens, max_new_tokens
        self.size = max(rows, MIN_ROWS)
        self.engine: Engine = model.engine(
            rows=self.size, prompts=rows + min(rows, PREFETCH), read=max(max_prompt_tokens, MIN_ROWS),
            new=max_new_tokens, positions=max(self.positions, MIN_ROWS))
        self.device, hidden_size = self.engine.device, model.config.hidden_size
        self.scheduler = Scheduler[RequestSequence](self.engine, rows, hidden_size)
        # by slot: the state from which a sequence's next token is sampled
        self.hidden = torch.zeros(self.size + 1, hidden_size, dtype=self.engine.dtype, device=self.device)
        self.uniform = UniformBatch(self.engine, self.hidden, self.size)
        self.active: list[RequestSequence] = []  # another list whenever they are other sequences
        self.decoded_tokens = 0

    @property
    def busy(self) -> bool:
        return bool(self.active or self.scheduler.waiting)

    @property
    def computed_tokens(self) -> int:
        """Tokens that went through the layers, prompts included."""
        return self.scheduler.prefilled_tokens + self.decoded_tokens

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
        sequences = [RequestSequence(cached, request=request, detokenizer=self.detokenizer(request))
                     for request in requests]
        self.scheduler.waiting += sequences
        return sequences

    def detokenizer(self, request: Request) -> IncrementalDetokenizer | None:
        wanted = request.stream or request.sampling.stop
        return IncrementalDetokenizer(self.chat.decode, request.sampling.stop) if wanted else None

    def extend(self, sequence: RequestSequence, tokens: Iterable[int],
               request: Request | None = None) -> None:
        """Appends tokens to a kept sequence, which is then sampled on; by another request where one is
        given."""
        assert sequence.finish_reason and sequence.slot is not None, "a sequence that has ended and was kept"
        tokens, request = list(tokens), request or sequence.request
        self.check(len(sequence.prompt.tokens),
                   len(sequence.tokens) + len(tokens) + request.sampling.max_new_tokens)
        sequence.request, sequence.finish_reason, sequence.turn = request, None, len(sequence.sampled)
        sequence.forced, sequence.detokenizer = deque(tokens), self.detokenizer(request)
        self.active = [*self.active, sequence]

    def abort(self, sequence: RequestSequence) -> None:
        """A sequence is no longer wanted: it leaves the queue or its slot."""
        sequence.finish_reason = sequence.finish_reason or "abort"
        if sequence in self.scheduler.waiting:
            self.scheduler.waiting.remove(sequence)
        elif sequence.slot is not None:
            self.active = [other for other in self.active if other is not sequence]
        else:
            return
        self.scheduler.release([sequence])

    def update_weights(self, version: int) -> None:
        """In-flight weight update: the model's weights as they are now. Active sequences go on with them, on
        the KV cache that they have."""
        self.scheduler.forget_prefilled()
        self.engine.refresh()
        self.version = version

    @torch.no_grad()
    def step(self) -> list[tuple[RequestSequence, SampledToken]]:
        """One more token for every sequence -> those that were sampled, not those that were forced."""
        if admitted := self.scheduler.admit():
            sequences, slots, states = admitted
            self.hidden[slots] = states
            self.active = [*self.active, *sequences]
        active = self.active
        sampled = self.step_alike() if active and self.uniform.takes(active) else self.step_each()
        ended = [s for s in active if s.finish_reason]
        if ended:
            self.active = [s for s in active if s.finish_reason is None]
            self.scheduler.release(s for s in ended if not s.request.keep)
        return sampled

    def step_alike(self) -> list[tuple[RequestSequence, SampledToken]]:
        """A step of sequences that are all sampled in the same way."""
        active, version = self.active, self.version
        tokens, logps = self.uniform.step()
        sampled = [(s, s.take(SampledToken(token, logp), version))
                   for s, token, logp in zip(active, tokens, logps, strict=True)]
        self.decoded_tokens += len(active) - sum(1 for s in active if s.finish_reason and not s.request.keep)
        return sampled

    def step_each(self) -> list[tuple[RequestSequence, SampledToken]]:
        """A step of sequences each of which has its own settings, or forced tokens."""
        asked = [s for s in self.active if not s.forced]
        sampled = [(s, s.take(token, self.version))
                   for s, token in zip(asked, self.sample(asked), strict=True)]
        for s in self.active:
            if s.forced:
                s.tokens.append(s.forced.popleft())
        self.uniform.sequences = ()
        self.advance([s for s in self.active if s.finish_reason is None or s.request.keep])
        return sampled

    def sample(self, sequences: list[RequestSequence]) -> list[SampledToken]:
        """The next token of each sequence, by its own settings."""
        if not sequences:
            return []
        slots = self.ints(self.padded([s.slot for s in sequences], self.size))
        logits = self.engine.logits(self.hidden[slots])
        seeds, numbers = [s.request.seed for s in sequences], [len(s.tokens) for s in sequences]
        u = uniform(self.ints(seeds), self.ints(numbers))
        token = torch.empty(len(sequences), dtype=torch.int64, device=self.device)
        logp = torch.empty(len(sequences), device=self.device)
        groups: dict[Sampling, list[int]] = {}
        for i, s in enumerate(sequences):
            groups.setdefault(s.request.distribution, []).append(i)
        for sampling, mine in groups.items():
            index = self.ints(mine) if len(mine) < len(sequences) else slice(len(sequences))
            token[index], logp[index] = draw_tokens(logits[index], u[index], sampling, self.engine.ops)
        return [with_logprobs(s.request, logits[i], t, p)
                if s.request.raw_logprobs or s.request.top_logprobs else SampledToken(t, p)
                for i, (s, t, p) in enumerate(zip(sequences, token.tolist(), logp.tolist(), strict=True))]

    def advance(self, sequences: list[RequestSequence]) -> None:
        """The last token of each sequence through all layers, to the state from which its next is sampled."""
        if not sequences:
            return
        rows = [(s.tokens[-1], len(s.tokens) - 1, s.slot, s.prompt.place, len(s.prompt.tokens))
                for s in sequences]
        columns = self.ints(self.padded(rows, (0, 0, self.size, self.engine.prompts, 1))).T
        token, at, slot, prompt, read = (column.contiguous() for column in columns)
        longest = max(len(s.tokens) + len(s.prompt.tokens) for s in sequences)
        self.hidden[slot] = self.engine.step(token, at, slot, prompt, read, longest=longest)
        self.decoded_tokens += len(sequences)

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
            scored += [with_logprobs(request, x, token, 0.0)
                       for x, token in zip(logits, tokens[start + 1:], strict=False)]
        self.decoded_tokens += len(tokens)
        return scored

    def padded(self, rows: Sequence[T], dummy: T) -> Sequence[T]:
        return rows if self.engine.independent else [*rows, *[dummy] * (MIN_ROWS - len(rows))]

    def ints(self, numbers: Sequence[object]) -> Tensor:
        return int_tensor(numbers, self.device)


class UniformBatch:
    """Sequences that are all sampled by the same settings, as columns on the device: of each the number of
    its next token (at), its slot, its prompt's place and length, its seed.

    The host sends nothing for as long as they are the same sequences. On a GPU a step is two captured graphs,
    the sampling and the layers: the host reads the tokens while the layers are computed. So sequences that
    have just ended go through the layers once more, for nothing.
    """

    def __init__(self, engine: Engine, hidden: Tensor, size: int):
        self.engine, self.hidden, self.device = engine, hidden, engine.device
        self.dummy = (0, size, engine.prompts, 1, 0)
        self.columns = int_tensor([self.dummy] * max(size, MIN_ROWS), self.device).T.contiguous()
        self.token = torch.zeros(self.columns.shape[1], dtype=torch.int64, device=self.device)
        self.logp = torch.zeros(self.columns.shape[1], device=self.device)
        self.sequences: Sequence[RequestSequence] = ()  # whose state the columns hold
        self.filled = 0  # columns that hold, or held, a sequence
        self.sampling = Sampling()
        self.left = self.longest = 0  # the most tokens that a sequence has still to sample, and that one has
        self.graphs: dict[tuple[str, Sampling, int], torch.cuda.CUDAGraph] = {}
        self.runs: Counter[tuple[str, Sampling, int]] = Counter()

    def takes(self, sequences: Sequence[RequestSequence]) -> bool:
        """Whether all of these can be sampled together; if so, they have the columns."""
        if sequences is self.sequences:
            return True
        requests = [s.request for s in sequences]
        first = requests[0].distribution
        if any(r.raw_logprobs or r.top_logprobs or (r.distribution is not first and r.distribution != first)
               for r in requests) or any(s.forced for s in sequences):
            return False
        rows = [(len(s.tokens), s.slot, s.prompt.place, len(s.prompt.tokens), s.request.seed)
                for s in sequences]
        rows += [self.dummy] * (self.filled - len(rows))  # in columns that others had
        self.columns[:, : len(rows)] = int_tensor(rows, self.device).T
        self.sequences, self.sampling, self.filled = sequences, first, len(sequences)
        self.left = UNBOUNDED if any(r.keep for r in requests) else max(
            s.request.sampling.max_new_tokens + s.turn - len(s.sampled) for s in sequences)
        self.longest = max(at + read for at, _, _, read, _ in rows)
        return True

    def step(self) -> tuple[list[int], list[float]]:
        """One more token for every sequence: the tokens and their log-probs."""
        n = len(self.sequences)
        size = min(len(self.token), graph_size(n)) if self.device.type != "cpu" else \
            n if self.engine.independent else max(n, MIN_ROWS)
        self.left, self.longest = self.left - 1, self.longest + 1
        self.run(self.sample, size)
        token, logp = fetch_async(self.token[:n]), fetch_async(self.logp[:n])
        if self.left:
            self.run(self.advance, size)
        return token().tolist(), logp().tolist()

    def sample(self, size: int) -> None:
        at, slot, _, _, seed = self.columns[:, :size]
        logits = self.engine.logits(self.hidden[slot])
        self.token[:size], self.logp[:size] = draw_tokens(logits, uniform(seed, at), self.sampling,
                                                            self.engine.ops)

    def advance(self, size: int) -> None:
        """Sampled tokens through all layers, to the states from which the next ones are sampled."""
        at, slot, prompt, length, _ = self.columns[:, :size]
        self.hidden[slot] = self.engine.step(self.token[:size], at, slot, prompt, length,
                                             longest=None if self.engine.graphs else self.longest)
        at += (at < self.engine.new - 1).to(at.dtype)  # dummies stay inside

    def run(self, part: Callable[[int], None], size: int) -> None:
        """A part of a step for the first columns; on a GPU as a graph, once it was run a few times."""
        key = (part.__name__, self.sampling, size)
        if key in self.graphs:
            return self.graphs[key].replay()
        part(size)
        if self.device.type == "cuda" and self.engine.graphs:
            self.runs[key] += 1
            if self.runs[key] == CAPTURE_AFTER:
                if len(self.graphs) == MAX_GRAPHS:
                    self.graphs.clear()
                    self.runs.clear()
                capture_graph(self.engine, self.graphs, key, lambda: part(size))


def with_logprobs(request: Request, logits: Tensor, token: int, logp: float) -> SampledToken:  # [V]
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

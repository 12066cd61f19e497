"""Decodes a collection of sequences that are all sampled alike: a step gives each of them one more token.

State stays on the device. On a GPU a step of all sequences is one captured graph, and the host looks for
finished ones every few tokens, at a snapshot, while the next steps are under way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from postgrad.maths.noise import uniform
from postgrad.models.chat import Chat
from postgrad.models.engine import Engine
from postgrad.models.graph_capture import capturing
from postgrad.records import Sampling
from postgrad.sampling.array_tuple import NOTHING, ArrayTuple
from postgrad.sampling.logits import draw_tokens
from postgrad.sampling.sampler import DecodableModel
from postgrad.sampling.scheduler import MIN_ROWS, CachedPrompt, Scheduler, SlotSequence, int_tensor

LOOK_STEPS = 4   # on a GPU, steps between two snapshots
LAST_STEPS = 16  # steps left to sequences that started together, none of which has ended: done without a look


@dataclass(eq=False, slots=True)
class BatchSequence(SlotSequence):
    """number: in its call. shown: tokens of earlier turns, after the prompt, in its slot. since: steps before
    its first. tokens: all of them, prompt included, of one that is finished and cached."""

    number: int = 0
    shown: int = 0
    since: int = 0
    tokens: Sequence[int] = ()


class FinishedSequence(NamedTuple):
    """number: in its call. tokens: sampled, the stop token included. finished: by a stop, not at the length.
    cached: what its sampler still has of it, where it may be continued."""

    number: int
    tokens: Sequence[int]
    logp: Sequence[float]
    finished: bool
    cached: BatchSequence | None = None


class Snapshot:
    """Asynchronous device-to-host copy: which of these sequences are done, and how many tokens each has.
    written: their tokens and log-probs, where those are copied too."""

    def __init__(self, sequences: Sequence[BatchSequence], done: Tensor, count: Tensor,
                 written: Sequence[Tensor] = ()):
        self.sequences: list[BatchSequence | None] = list(sequences)  # None: ended since
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


class BatchDecoder:
    """Column i of the state tensors is row i of the step. `slot` says where its KV cache is, `shown` how many
    tokens stand there before those sampled now."""

    def __init__(self, model: DecodableModel, chat: Chat, settings: Sampling, *, rows: int, read: int,
                 prompts: int):
        self.chat, self.settings, self.rows = chat, settings, rows
        device = self.device = model.head.device
        size = self.size = max(rows, MIN_ROWS) if device.type == "cpu" else rows  # columns
        read, new = max(read, MIN_ROWS), settings.max_new_tokens + 1
        self.positions: int = model.config.max_position_embeddings
        self.engine: Engine = model.engine(rows=size, prompts=prompts, read=read, new=new,
                                                 positions=self.positions_for(read, new))
        self.scheduler = Scheduler[BatchSequence](self.engine, rows, model.config.hidden_size)
        self.ends = torch.tensor(chat.stop, device=device)
        self.nobody = torch.tensor([[0], [0], [0], [size], [prompts], [1]], dtype=torch.int64, device=device)
        self.columns = self.nobody.repeat(1, size)
        self.at, self.count, self.shown, self.slot, self.prompt, self.prompt_length = self.columns
        self.done = torch.ones(size, dtype=torch.bool, device=device)
        self.hidden = torch.zeros(size, model.config.hidden_size, dtype=self.engine.dtype, device=device)
        self.u = torch.zeros(size + 1, new, dtype=torch.float64, device=device)
        self.out = torch.zeros(size + 1, new, dtype=torch.int64, device=device)
        self.logp = torch.zeros(size + 1, new, device=device)
        self.fused_sampler = self.engine.ops.fused_sampler(self)
        self.graphs: dict[int, torch.cuda.CUDAGraph] = {}  # by rows
        # of sequences about to end: how many tokens are detokenized, and their bytes
        self.detokenized: dict[BatchSequence, tuple[int, bytes]] = {}
        self.copy_stream = torch.cuda.Stream() if device.type == "cuda" else None

    @property
    def pace(self) -> tuple[int, int]:
        """Steps between two snapshots, and snapshots that further steps do not wait for."""
        return (LOOK_STEPS, 1) if self.device.type == "cuda" else (1, 0)

    @property
    def min_rows(self) -> int:
        """Rows that a step on a CPU is padded to."""
        return MIN_ROWS if self.device.type == "cpu" and not self.engine.independent else 1

    def fits(self, settings: Sampling, *, rows: int, read: int, prompts: int) -> bool:
        """Whether as many rows and prompts, as long as these, have room."""
        return (settings == self.settings and rows <= self.rows and read <= self.engine.read
                and prompts <= self.engine.prompts)

    def positions_for(self, read: int, new: int) -> int:
        """The most positions of a prompt and a reply of these sizes."""
        return max(min(read + new - 1, self.positions), MIN_ROWS)

    def cache_hits(self, contexts: Sequence[list[int]],
                   after: Sequence[FinishedSequence | None]) -> dict[int, BatchSequence]:
        """The contexts that continue a sequence which is still in its slot, by number."""
        hits = {}
        for i, (context, last) in enumerate(zip(contexts, after, strict=bool(after))):
            cached = last.cached if last else None
            if cached is None or cached.slot is None or self.scheduler.cached.get(cached.slot) is not cached:
                continue
            if len(context) > (n := len(cached.tokens)) and context[:n] == cached.tokens:
                hits[i] = cached
        return hits

    def grow(self, read: int, new: int) -> None:
        """Room for longer prompts and sequences; the cache stays. The engine has to be refreshed then."""
        read, new = max(read, self.engine.read), max(new, self.engine.new)
        if (read, new) != (self.engine.read, self.engine.new):
            self.engine.grow(read=read, new=new, positions=self.positions_for(read, new))

    @torch.no_grad()
    def decode(self, prompts: list[list[int]], n: int, seeds: Sequence[int],
               hits: Mapping[int, BatchSequence] | None = None) -> Iterator[list[FinishedSequence]]:
        """n sequences after every prompt, those together that were seen to end together.

        hits: the prompts, one for each sequence, that continue cached sequences; of them only what was added
        is computed. All sequences stay cached then; None: none does.

        On a CPU no sequence depends on how many stand beside it. Where the engine is not independent, 16 or
        more are padded as they end (MIN_ROWS); a call of fewer is not, which would cost twice its time.
        """
        held = hits or {}
        self.scheduler.reset(held.values())
        self.detokenized = {}
        running = self.resume(held, prompts, seeds)
        cached = [CachedPrompt(tokens, n) for tokens in prompts]
        self.scheduler.waiting += [BatchSequence(cached[i // n], number=i) for i in range(len(seeds))
                                   if i not in held]
        snapshots: deque[Snapshot] = deque()
        steps, ahead = self.pace
        least = self.min_rows if len(seeds) >= MIN_ROWS else 1
        now, quiet = 0, False  # steps so far; whether the last snapshot saw no sequence end
        while running or self.scheduler.waiting:
            running += self.admit(len(running), seeds, now)
            most = self.settings.max_new_tokens - (now - running[-1].since)  # the last is the youngest
            soon = quiet and 0 < most <= LAST_STEPS and not self.scheduler.waiting
            times = most if soon else min(steps, most)
            self.step(max(len(running), least), times)
            now += max(times, steps)
            written = self.rows_of(self.slot[: len(running)]) if soon else ()
            snapshots.append(Snapshot(running, self.done, self.count, written))
            if len(snapshots) <= ahead and most > steps:
                continue
            ended = self.ended(snapshot := snapshots.popleft())
            quiet = ahead > 0 and not ended
            if soon and quiet:
                self.detokenize_ahead(snapshot)
            if ended:
                if hits is not None:
                    contexts = {s: prompts[s.number // n] for s in ended}
                    ended = {s: done._replace(cached=self.keep_cached(s, [*contexts[s], *done.tokens]))
                             for s, done in ended.items()}
                yield list(ended.values())
                if hits is None:
                    self.scheduler.release(ended)
                stay = [i for i, sequence in enumerate(running) if sequence not in ended]
                if stay:
                    self.compact(stay, len(running))
                running = [running[i] for i in stay]
                for later in snapshots:
                    later.sequences = [None if s in ended else s for s in later.sequences]

    def resume(self, held: Mapping[int, BatchSequence], prompts: list[list[int]],
               seeds: Sequence[int]) -> list[BatchSequence]:
        """Cached sequences continue in the first columns."""
        sequences = [BatchSequence(last.prompt, last.slot, i, len(prompts[i]) - len(last.prompt.tokens))
                     for i, last in held.items()]
        if sequences:
            added = [prompts[i][len(last.tokens):] for i, last in held.items()]
            self.place(sequences, 0, seeds, self.append(sequences, added))
        return sequences

    def admit(self, at: int, seeds: Sequence[int], now: int = 0) -> list[BatchSequence]:
        """Waiting sequences take free slots, in the columns from `at`, after so many steps."""
        admitted = self.scheduler.admit()
        if admitted is None:
            return []
        sequences, _, states = admitted
        for sequence in sequences:
            sequence.since = now
        self.place(sequences, at, seeds, states)
        return sequences

    def place(self, sequences: list[BatchSequence], at: int, seeds: Sequence[int],
              states: Tensor) -> None:  # [R, D]
        """Sequences in the columns from `at`; states: from which the first token of each is sampled."""
        if not at:
            self.compact([], self.size)  # columns of finished sequences, and of a call that was broken off
        columns = slice(at, at + len(sequences))
        numbers = self.ints([(s.slot, s.prompt.place, len(s.prompt.tokens), s.shown) for s in sequences]).T
        for i, column in enumerate((self.slot, self.prompt, self.prompt_length, self.shown)):
            column[columns] = numbers[i]
        self.at[columns], self.count[columns], self.done[columns] = 0, 0, False
        self.hidden[columns] = states
        seed = self.ints([seeds[s.number] for s in sequences])
        number = torch.arange(self.u.shape[1], device=self.device)
        self.u[self.slot[columns]] = uniform(seed[:, None], number[None])
        self.engine.ops.nudge(self.hidden)  # the steps come next

    def append(self, sequences: list[BatchSequence], added: list[list[int]]) -> Tensor:  # [R, D]
        """Computes what was added to each sequence, after what is in its slot -> the state after its last
        token.

        All added tokens are rows of a step, as many as a step has: each attends to those before it in its
        slot, as every layer stores the keys of all of them before any attends.
        """
        dummy = (0, 0, self.size, self.engine.prompts, 1)
        tokens = [(token, at, s.slot, s.prompt.place, len(s.prompt.tokens))
                  for s, new in zip(sequences, added, strict=True)
                  for at, token in enumerate(new, s.shown - len(new))]
        states = []
        for start in range(0, len(tokens), self.size):
            part = tokens[start: start + self.size]
            columns = self.ints([*part, *[dummy] * (self.min_rows - len(part))]).T
            states.append(self.engine.step(*(column.contiguous() for column in columns))[: len(part)])
        last = torch.tensor([len(new) for new in added]).cumsum(0) - 1
        return torch.cat(states)[last]

    def ints(self, numbers: Sequence[object]) -> Tensor:
        return int_tensor(numbers, self.device)

    def step(self, n: int, times: int = 1) -> None:
        """So many more tokens for the first n rows; on a GPU by the graph of a step of the next larger
        size."""
        size = min(self.rows, graph_size(n))
        for _ in range(times):
            if self.device.type != "cuda" or not self.engine.graphs:
                self.advance(n)
            elif size in self.graphs:
                self.graphs[size].replay()
            else:
                self.advance(size)  # the first one as it is, so that all kernels are compiled and loaded
                self.capture(size)

    def capture(self, size: int) -> None:
        capture_graph(self.engine, self.graphs, size, lambda: self.advance(size))

    def advance(self, n: int) -> None:
        slot = self.slot[:n]
        token, where = self.fused_sampler(self, n) if self.fused_sampler else self.choose(n)
        self.hidden[:n] = self.engine.step(token, where, slot, self.prompt[:n], self.prompt_length[:n])

    def choose(self, n: int) -> tuple[Tensor, Tensor]:
        """The next tokens of the first n rows, and where they stand in their slots."""
        at, slot, ops = self.at[:n], self.slot[:n], self.engine.ops
        logits = self.engine.logits(self.hidden[:n])
        token, logp = draw_tokens(logits, self.u[slot, at], self.settings, ops)
        return token, ops.record_tokens(token, logp, at, slot, self.shown[:n], self.done[:n], self.count[:n],
                                        self.out, self.logp, self.ends, self.settings.max_new_tokens)

    def ended(self, snapshot: Snapshot) -> dict[BatchSequence, FinishedSequence]:
        """Sequences that have ended: at a stop token, at the length, or where a stop string is complete."""
        done, count = snapshot.wait()
        asked = [i for i, s in enumerate(snapshot.sequences)
                 if s is not None and (done[i] or self.settings.stop)]
        if not asked:
            return {}
        texts = self.fetch(snapshot, asked, max(count[i] for i in asked))
        last = texts[0][range(len(asked)), [count[i] - 1 for i in asked]]
        ended = {}
        stops = np.isin(last, self.chat.stop).tolist()
        for i, tokens, logp, stopped in zip(asked, *texts, stops, strict=True):
            cut = self.stops_at(tokens[: count[i]].tolist()) if self.settings.stop else None
            sequence = snapshot.sequences[i]
            if sequence is not None and (done[i] or cut is not None):
                length = count[i] if cut is None else cut
                begun = self.detokenized.pop(sequence, NOTHING)
                sampled = ArrayTuple(tokens[:length], begun if begun[0] <= length else NOTHING)
                ended[sequence] = FinishedSequence(sequence.number, sampled, ArrayTuple(logp[:length]),
                                                   stopped or cut is not None)
        return ended

    def keep_cached(self, sequence: BatchSequence, tokens: list[int]) -> BatchSequence:
        """A finished sequence, of these tokens in all, stays in its slot until it is continued or evicted."""
        assert sequence.slot is not None
        sequence.tokens = tokens
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

    def stops_at(self, tokens: list[int]) -> int | None:
        """How many tokens it takes to complete a stop string."""
        if not any(stop in self.chat.decode(tokens) for stop in self.settings.stop):
            return None
        return next(n for n in range(1, len(tokens) + 1)
                    if any(s in self.chat.decode(tokens[:n]) for s in self.settings.stop))

    def compact(self, rows: list[int], before: int) -> None:
        """These rows move to the front; the columns behind them are dummies."""
        self.engine.ops.compact_rows(self.columns, self.done, self.hidden, self.ints(rows), before,
                                     self.nobody)

    @torch.no_grad()
    def stream(self, prompt: list[int], seed: int) -> Iterator[int]:
        """The tokens of one sequence as they are sampled."""
        self.scheduler.reset()
        self.scheduler.waiting.append(BatchSequence(CachedPrompt(prompt, 1)))
        (sequence,) = self.admit(0, [seed])
        tokens: list[int] = []
        while not bool(self.done[0]) and self.stops_at(tokens) is None:
            self.step(1)
            tokens.append(int(self.out[sequence.slot, len(tokens)]))
            yield tokens[-1]


def graph_size(n: int) -> int:
    """The size of the graph that n rows run in: 8, 16, 32, 64, 128, then by 128s."""
    return max(8, 1 << (n - 1).bit_length()) if n <= 128 else -(-n // 128) * 128


K = TypeVar("K", bound=Hashable)


def capture_graph(engine: Engine, graphs: dict[K, torch.cuda.CUDAGraph], key: K,
                  run: Callable[[], None]) -> None:
    """graphs[key] becomes the CUDA graph of `run`; where there can be none, the engine says so."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    pool = next((g.pool() for g in graphs.values()), None)
    try:
        with capturing(), torch.cuda.graph(graph, pool=pool):
            run()
    except RuntimeError as error:
        torch.cuda.set_stream(stream)  # that of a capture which failed is left current
        return engine.uncaptured(error)
    graphs[key] = graph

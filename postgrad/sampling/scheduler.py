"""Continuous batching: which sequences hold a slot of the KV cache, which wait for one, and which prompts are
prefilled; for the decode loop in request_batch.py.

A prompt is prefilled once, into a place of the prompt cache, for all its sequences. Waiting sequences take
free slots first come, first served; waiting prompts are prefilled together, each from where a prefix ends
that stands in some place (prefixes.py). A finished sequence may stay in its slot to be continued, and is
evicted, the oldest first, where a slot or a place is needed. Left out on purpose: preemption and paging, as a
slot has room for the longest reply.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from postgrad.models.engine import PREFILL_TOKENS, Engine
from postgrad.records import pad_rows
from postgrad.sampling.prefixes import BLOCK, Prefixes, block_hashes

# Rows of a step and tokens of a prefill, padded with dummies: smaller matrix products may round differently,
# and a row would depend on its neighbours. Not needed where an engine is independent.
MIN_ROWS = 16


@dataclass(eq=False)
class CachedPrompt:
    """A prompt. users: sequences that still need its keys and values. place: where they are in the prompt
    cache; None before the prefill. exact: it may begin with the keys of prefills alone, which on a CPU are
    the bits that it would have itself; False: with those of decode steps too, and it leaves its own sequence
    to later prompts; None: it is prefilled as a whole. after: the cached sequence that it goes on from.
    begun: tokens that stood in the cache. prefilled: first tokens with the keys of a prefill."""

    tokens: list[int]
    users: int
    place: int | None = None
    exact: bool | None = None
    after: SlotSequence | None = None
    begun: int = 0
    prefilled: int = 0

    @cached_property
    def hashes(self) -> list[int]:
        return block_hashes(self.tokens)


@dataclass(eq=False, slots=True)
class SlotSequence:
    """A sequence after a prompt. slot: of the KV cache; None while it waits and after it has left. tokens:
    all after the prompt."""

    prompt: CachedPrompt
    slot: int | None = None
    tokens: list[int] = field(default_factory=list)


S = TypeVar("S", bound=SlotSequence)


class Scheduler(Generic[S]):
    """`rows` slots and as many prompt places as the engine has.

    cached: finished sequences that stay in their slots, by slot. prefixes: what stands in places, free ones
    among them. prefilled_tokens: of prompts, so far.
    """

    def __init__(self, engine: Engine, rows: int, hidden_size: int):
        self.engine, self.rows = engine, rows
        # [places + 1, D]: the state after each prompt, from which its first token is sampled
        self.prompt_state = torch.zeros(engine.prompts + 1, hidden_size, dtype=engine.dtype,
                                        device=engine.device)
        self.prefilled_tokens, self.prefixes = 0, Prefixes()
        self.reset()

    def reset(self, held: Iterable[S] = ()) -> None:
        """Nothing waits or is cached, and every slot is free but those of the sequences `held`."""
        held = list(held)
        for sequence in held:
            sequence.prompt.users = 0
        for sequence in held:
            sequence.prompt.users += 1
        self.prefixes.clear()
        slots, places = {s.slot for s in held}, {s.prompt.place for s in held}
        self.waiting: deque[S] = deque()
        self.cached: dict[int, S] = {}
        self.free_slots = deque(slot for slot in range(self.rows) if slot not in slots)
        self.free_places = deque(place for place in range(self.engine.prompts) if place not in places)

    def admit(self) -> tuple[list[S], Tensor, Tensor] | None:
        """Waiting sequences take the free slots: (sequences, their slots [R], the states [R, D] from which
        their first tokens are sampled); None where nobody can."""
        admitted: list[S] = []
        while self.waiting and self.has_room(prompt := self.waiting[0].prompt):
            if prompt.place is None:
                self.prefill_waiting()
            sequence = self.waiting.popleft()
            sequence.slot = self.free_slots.popleft()
            admitted.append(sequence)
        if not admitted:
            return None
        slots = int_tensor([s.slot for s in admitted], self.engine.device)
        places = int_tensor([s.prompt.place for s in admitted], self.engine.device)
        self.engine.seat(slots, places)
        return admitted, slots, self.prompt_state[places]

    def has_room(self, prompt: CachedPrompt) -> bool:
        """Whether there is a slot, and a place for this prompt; cached sequences are evicted for them. A
        prompt that goes on from a cached sequence takes that one's."""
        while True:
            before = self.continued(prompt)
            placed = prompt.place is not None or self.free_places or (before and before.prompt.users == 1)
            if placed and (self.free_slots or before):
                return True
            if not self.cached:
                return False
            self.release([self.cached.pop(next(iter(self.cached)))])

    def continued(self, prompt: CachedPrompt) -> S | None:
        """The sequence that a prompt goes on from, while it is cached."""
        before = prompt.after
        cached = self.cached.get(before.slot) if before and before.slot is not None else None
        return cached if cached is before else None

    def prefill_waiting(self) -> None:
        """Prefills the first waiting prompts, as many as have places and a pass holds. A prompt that would
        find half of what is to be computed in one of the pass waits for the next pass."""
        prompts: list[CachedPrompt] = []
        places: list[int] = []
        tokens, fresh, reuses = 0, Prefixes(), self.saves_enough()
        for sequence in self.waiting:
            prompt = sequence.prompt
            if prompts and prompt is prompts[-1]:
                continue
            before = self.continued(prompt)
            if tokens >= PREFILL_TOKENS or not (self.free_places or before and before.prompt.users == 1):
                break
            if prompt.exact is not None and reuses:
                _, shared = fresh.find(prompt.tokens, prompt.hashes, exact=True) or (None, 0)
                if shared:
                    _, known = self.find_prefix(prompt)
                    if 2 * (shared - known) >= len(prompt.tokens) - known:
                        break
                fresh.put(len(prompts), prompt.tokens, len(prompt.tokens), prompt.hashes)
            if before and reuses:
                self.take_over(prompt, before)
            else:
                if before and before.slot is not None:
                    self.release([self.cached.pop(before.slot)])
                self.take_place(prompt, reuses)
            assert prompt.place is not None
            prompt.after = None
            places.append(prompt.place)
            prompts.append(prompt)
            tokens += len(prompt.tokens) - prompt.begun
        read, into, begun = [p.tokens for p in prompts], [*places], [p.begun for p in prompts]
        if tokens < MIN_ROWS:
            read, into, begun = [*read, [0] * MIN_ROWS], [*into, self.engine.prompts], [*begun, 0]
        lengths = torch.tensor([len(p) for p in read])
        self.engine.ops.nudge(self.prompt_state)
        states = self.engine.prefill(pad_rows(read), lengths, into, begun)
        self.prompt_state[int_tensor(places, self.engine.device)] = states[: len(places)]
        self.prefilled_tokens += tokens
        for prompt, place in zip(prompts, places, strict=True):
            if prompt.exact is not None:
                self.prefixes.put(place, prompt.tokens, prompt.prefilled, prompt.hashes)

    def saves_enough(self) -> bool:
        """Whether prefixes save the next pass as many tokens as they have to."""
        left, tokens, last = self.engine.least_saved, 0, None
        for sequence in self.waiting if left else ():
            if sequence.prompt is not last:
                last, (_, count) = sequence.prompt, self.find_prefix(sequence.prompt)
                left, tokens = left - count, tokens + len(last.tokens) - count
            if left <= 0 or tokens >= PREFILL_TOKENS:
                break
        return left <= 0

    def find_prefix(self, prompt: CachedPrompt) -> tuple[int | None, int]:
        """Where the longest prefix of a prompt stands, and of how many tokens: its last one is computed."""
        if before := self.continued(prompt):
            return before.prompt.place, len(before.prompt.tokens) + len(before.tokens)
        if prompt.exact is None:
            return None, 0
        return self.prefixes.find(prompt.tokens[:-1], prompt.hashes, prompt.exact) or (None, 0)

    def take_over(self, prompt: CachedPrompt, before: S) -> None:
        """A place for a prompt that goes on from a cached sequence, which gives up its slot."""
        earlier, slot, begun = before.prompt, before.slot, len(before.prompt.tokens)
        assert earlier.place is not None and slot is not None
        del self.cached[slot]
        if earlier.users == 1:
            place, earlier.place = earlier.place, None
        else:
            place = self.free_places.popleft()
            self.engine.copy_prefix(earlier.place, place, begun)
        self.engine.append_row(slot, place, begun, len(before.tokens))  # each went through the layers
        self.release([before])
        prompt.place, prompt.begun = place, begun + len(before.tokens)

    def take_place(self, prompt: CachedPrompt, reuses: bool) -> None:
        """A place for a prompt, which its prefix stands in."""
        source, count = self.find_prefix(prompt) if reuses else (None, 0)
        stored, known = self.prefixes.stored.get(source) if source is not None else None, len(prompt.tokens)
        if source is not None and stored and source in self.free_places and (
                len(stored.tokens) - count < BLOCK):  # nothing else in it would be lost
            place = source
            self.free_places.remove(place)
        else:
            place = self.free_places.popleft()
            if source is not None and place != source:
                self.engine.copy_prefix(source, place, count)
                if source in self.free_places:  # used just now
                    self.free_places.remove(source)
                    self.free_places.append(source)
        self.prefixes.drop(place)
        prompt.place, prompt.begun = place, count
        prompt.prefilled = stored.prefilled if stored and stored.prefilled < count else known

    def leave(self, sequences: Iterable[S]) -> None:
        """Before they are released: these sequences stay in their prompts' places, for prompts that go on
        after them. Of several samples of a prompt it is the last one."""
        ended = list(sequences)
        last, many = {sequence.prompt: sequence for sequence in ended}, Counter(s.prompt for s in ended)
        for prompt, sequence in last.items():
            begun, place, slot, tokens = len(prompt.tokens), prompt.place, sequence.slot, sequence.tokens
            if (prompt.exact is not False or prompt.users > many[prompt] or slot is None or place is None
                    or place not in self.prefixes.stored):  # prefilled with other weights
                continue
            count = min(len(tokens) - 1, self.engine.read - begun)  # the last one went through no layer
            if count > 0:
                self.engine.append_row(slot, place, begun, count)
                self.prefixes.put(place, prompt.tokens + tokens[:count], prompt.prefilled, prompt.hashes)

    def release(self, sequences: Iterable[S]) -> None:
        """These give up their slots, and their prompts' places where nobody else needs them."""
        for sequence in sequences:
            if sequence.slot is not None:
                self.free_slots.append(sequence.slot)
                sequence.slot = None
            sequence.prompt.users -= 1
            if not sequence.prompt.users:
                self.forget_prompt(sequence.prompt)

    def forget_prompt(self, prompt: CachedPrompt) -> None:
        """Frees the place of a prompt; a request that still waits for it prefills it again."""
        if prompt.place is not None:
            self.free_places.append(prompt.place)
            prompt.place = None

    def forget_prefilled(self) -> None:
        """After a weight update: prompts prefilled ahead, without a sequence in a slot, are prefilled
        again, and no prefix is found."""
        self.prefixes.clear()
        for prompt, count in Counter(sequence.prompt for sequence in self.waiting).items():
            if count == prompt.users:
                self.forget_prompt(prompt)


def int_tensor(numbers: Sequence[object], device: torch.device) -> Tensor:
    """int64 on the device, without waiting for it."""
    ints = torch.from_numpy(np.array(numbers, np.int64))
    return ints.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else ints

"""Continuous batching: which sequences hold a slot of the KV cache, which wait for one, and which prompts are
prefilled; for the decode loop in request_batch.py.

A prompt is prefilled once, into a place of the prompt cache, for all its sequences. Waiting sequences take
free slots first come, first served; waiting prompts are prefilled together. A finished sequence may stay in
its slot to be continued, and is evicted, the oldest first, where a slot or a place is needed. Left out on
purpose: preemption and paging, as a slot has room for the longest reply.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

from postgrad.models.engine import PREFILL_TOKENS, Engine
from postgrad.records import pad_rows

# Rows of a step and tokens of a prefill, padded with dummies: smaller matrix products may round differently,
# and a row would depend on its neighbours. Not needed where an engine is independent.
MIN_ROWS = 16


@dataclass(eq=False)
class CachedPrompt:
    """A prompt. users: sequences that still need its keys and values. place: where they are in the prompt
    cache; None before the prefill."""

    tokens: list[int]
    users: int
    place: int | None = None


@dataclass(eq=False, slots=True)
class SlotSequence:
    """A sequence after a prompt. slot: of the KV cache; None while it waits and after it has left."""

    prompt: CachedPrompt
    slot: int | None = None


S = TypeVar("S", bound=SlotSequence)


class Scheduler(Generic[S]):
    """`rows` slots and as many prompt places as the engine has.

    cached: finished sequences that stay in their slots, by slot. prefilled_tokens: of prompts, so far.
    """

    def __init__(self, engine: Engine, rows: int, hidden_size: int):
        self.engine, self.rows = engine, rows
        # [places + 1, D]: the state after each prompt, from which its first token is sampled
        self.prompt_state = torch.zeros(engine.prompts + 1, hidden_size, dtype=engine.dtype,
                                        device=engine.device)
        self.prefilled_tokens = 0
        self.reset()

    def reset(self, held: Iterable[S] = ()) -> None:
        """Nothing waits or is cached, and every slot is free but those of the sequences `held`."""
        held = list(held)
        for sequence in held:
            sequence.prompt.users = 0
        for sequence in held:
            sequence.prompt.users += 1
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
        """Whether there is a slot, and a place for this prompt; cached sequences are evicted for them."""
        while not self.free_slots or (prompt.place is None and not self.free_places):
            if not self.cached:
                return False
            self.release([self.cached.pop(next(iter(self.cached)))])
        return True

    def prefill_waiting(self) -> None:
        """Prefills the first waiting prompts, as many as have places and a pass holds."""
        prompts: list[CachedPrompt] = []
        tokens = 0
        for sequence in self.waiting:
            if prompts and sequence.prompt is prompts[-1]:
                continue
            if len(prompts) == len(self.free_places) or tokens >= PREFILL_TOKENS:
                break
            prompts.append(sequence.prompt)
            tokens += len(sequence.prompt.tokens)
        places = [self.free_places.popleft() for _ in prompts]
        for prompt, place in zip(prompts, places, strict=True):
            prompt.place = place
        read, into = [prompt.tokens for prompt in prompts], [*places]
        if tokens < MIN_ROWS:
            read, into = [*read, [0] * MIN_ROWS], [*into, self.engine.prompts]
        lengths = torch.tensor([len(p) for p in read])
        self.engine.ops.nudge(self.prompt_state)
        states = self.engine.prefill(pad_rows(read), lengths, into)
        self.prompt_state[int_tensor(places, self.engine.device)] = states[: len(places)]
        self.prefilled_tokens += tokens

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
        """Frees the place of a prompt; whoever still waits for it prefills it again."""
        if prompt.place is not None:
            self.free_places.append(prompt.place)
            prompt.place = None

    def forget_prefilled(self) -> None:
        """After a weight update: prompts prefilled ahead, without a sequence in a slot, are prefilled
        again."""
        for prompt, count in Counter(sequence.prompt for sequence in self.waiting).items():
            if count == prompt.users:
                self.forget_prompt(prompt)


def int_tensor(numbers: Sequence[object], device: torch.device) -> Tensor:
    """int64 on the device, without waiting for it."""
    ints = torch.from_numpy(np.array(numbers, np.int64))
    return ints.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else ints

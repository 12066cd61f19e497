"""Samples from the weights that clients have saved, beside the served model and on its thread.

A place holds the weights of one save and decodes from them; it takes others when it is idle, in the order in
which they were asked for. Places of the same shape keep their KV cache.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from postgrad.models import Adapted
from postgrad.models.checkpoint import read_state
from postgrad.models.lora import Network
from postgrad.sampling import Request, RequestBatch, RequestSequence, SampledToken
from postgrad.serving.decode_worker import DecodeWorker, LoopChannel, PendingRequest, ServedModel
from postgrad.serving.tinker.tuned_model import Tuning, new_policy, put_weights

PLACES = 4  # saves that are sampled from at once


@dataclass(frozen=True, kw_only=True)
class SavedWeights:
    """folder: where `TunedModel.save` put them."""

    folder: Path
    tuning: Tuning


@dataclass
class Place:
    weights: SavedWeights
    policy: Network | Adapted
    batch: RequestBatch


@dataclass(frozen=True)
class Waiting:
    """weights: None for the served model's own."""

    weights: SavedWeights | None
    begin: Callable[[RequestBatch], None]
    fail: Callable[[Exception], None]


class SamplerPool:
    def __init__(self, served: ServedModel, worker: DecodeWorker, base: Network, places: int = PLACES):
        self.served, self.worker, self.base, self.most = served, worker, base, places
        self.places: list[Place] = []
        self.waiting: list[Waiting] = []

    # in the event loop

    async def sample(self, weights: SavedWeights | None, prompt: Sequence[int],
                     requests: Sequence[Request]) -> list[RequestSequence]:
        self.worker.reserve(len(requests))
        loop = asyncio.get_running_loop()
        pending = PendingRequest(loop, len(requests), False, LoopChannel(self.worker, loop))
        begin = partial(self.worker.add, pending, list(prompt), requests)
        fail = partial(self.worker.send_failure, pending)
        self.enter(Waiting(weights, begin, fail))
        try:
            return await pending.finished()
        finally:
            self.worker.drop(pending)
            self.worker.inbox.put(self.begin_waiting)

    async def score(self, weights: SavedWeights | None, tokens: Sequence[int],
                    top: int) -> list[SampledToken]:
        """The log-probs of these tokens but the first."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[SampledToken]] = loop.create_future()

        def settle(result: list[SampledToken] | Exception) -> None:
            if future.done():
                return
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

        def begin(batch: RequestBatch) -> None:
            try:
                scored: list[SampledToken] | Exception = batch.score(tokens, top)
            except Exception as error:  # raised to whoever waits
                scored = error
            loop.call_soon_threadsafe(settle, scored)

        def fail(error: Exception) -> None:
            loop.call_soon_threadsafe(settle, error)

        self.enter(Waiting(weights, begin, fail))
        return await future

    def enter(self, waiting: Waiting) -> None:
        def append() -> None:
            self.waiting.append(waiting)
            self.begin_waiting()

        self.worker.inbox.put(append)

    # on the thread

    def begin_waiting(self) -> None:
        """Begins all that have a place now."""
        left = []
        for waiting in self.waiting:
            try:
                batch = self.batch_of(waiting.weights)
            except Exception as error:  # weights that cannot be read
                waiting.fail(error)
                continue
            if batch is None:
                left.append(waiting)
            else:
                waiting.begin(batch)
        self.waiting = left

    def batch_of(self, weights: SavedWeights | None) -> RequestBatch | None:
        """The batch that decodes from these weights; None while all places are busy with others."""
        if weights is None:
            return self.worker.batch
        for place in self.places:
            if place.weights == weights:
                return place.batch
        idle = [place for place in self.places if not place.batch.busy]
        alike = [place for place in idle if place.weights.tuning.shape == weights.tuning.shape]
        if alike:
            return self.refill(alike[0], weights)
        if len(self.places) >= self.most:
            if not idle:
                return None
            self.places.remove(idle[0])
            self.worker.batches.remove(idle[0].batch)
        return self.open(weights)

    def refill(self, place: Place, weights: SavedWeights) -> RequestBatch:
        put_weights(place.policy, read_state(weights.folder))
        place.weights = weights
        place.batch.update_weights(place.batch.version + 1)
        self.places.remove(place)  # the one that was used last stands last
        self.places.append(place)
        return place.batch

    def open(self, weights: SavedWeights) -> RequestBatch:
        policy = new_policy(self.base, weights.tuning).requires_grad_(False)
        put_weights(policy, read_state(weights.folder))
        context = self.served.context
        batch = RequestBatch(policy, self.served.chat, rows=self.worker.batch.rows, max_prompt_tokens=context,
                             max_new_tokens=context, positions=context)
        self.places.append(Place(weights, policy, batch))
        self.worker.batches.append(batch)
        return batch

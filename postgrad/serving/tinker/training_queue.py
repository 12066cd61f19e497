"""The operations on one model: numbered by its client, journaled when they come, done in their order.

A result stays for those who ask twice: a connection may break while it is sent. After a restart the newest
checkpoint is opened and what the journal holds beyond it is done again.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from postgrad.serving.decode_worker import DecodeWorker
from postgrad.serving.request_body import Refusal
from postgrad.serving.tinker.journal import Journal, Operation
from postgrad.serving.tinker.operations import Action, ModelPlace, Result, prepare_operation
from postgrad.serving.tinker.tuned_model import TunedModel

MOST_WAITING = 512      # operations
MOST_BYTES = 2**29      # of their bodies
STAYING = 64            # results that stay after they were sent
EVERY, JOURNAL_BYTES = 50, 2**26  # steps, and bytes of the journal, between two checkpoints


class Promise:
    """A result to come. sent: whether it was sent to its client."""

    def __init__(self) -> None:
        self.result: Result | None = None
        self.sent = False
        self.settled = asyncio.Event()

    def settle(self, result: Result) -> None:
        self.result = result
        self.settled.set()

    async def wait(self, seconds: float) -> Result | None:
        try:
            async with asyncio.timeout(seconds):
                await self.settled.wait()
        except TimeoutError:
            return None
        return self.result


@dataclass(frozen=True)
class Prepared:
    operation: Operation
    action: Action | Refusal


class TrainingQueue:
    """The model of a client. All methods but those that say so are called by the event loop."""

    def __init__(self, worker: DecodeWorker, place: ModelPlace, journal: Journal, path: str | None):
        self.worker, self.place, self.journal = worker, place, journal
        self.path = path  # of the weights that it began with
        self.model: TunedModel | None = None  # set on the thread
        self.promises: dict[int, Promise] = {}
        self.seals: dict[int, str] = {}  # of the operations that came
        self.waiting: dict[int, Prepared] = {}  # those whose turn has not come
        self.next = 1     # the number whose turn it is
        self.opening = Promise()  # the model itself
        # kept by the thread: the last operation that is done, steps since the last checkpoint, the last
        # operation in that, and newest results
        self.finished = self.since = self.saved = 0
        self.recent: deque[tuple[int, Result]] = deque(maxlen=32)
        self.closed = False  # another queue may have the journal by now

    @property
    def idle(self) -> bool:
        return self.opening.settled.is_set() and not self.waiting and self.finished == self.next - 1

    @property
    def failed(self) -> bool:
        """Whether the model could not be opened."""
        return self.opening.result is not None and bool(self.opening.result.error)

    # opening

    def open(self, make: Callable[[], tuple[TunedModel, dict[str, Any] | None]]) -> None:
        """Makes the model on the thread, then does again what the journal holds. make -> the model, and the
        facts of the checkpoint that it was opened from."""
        loop = asyncio.get_running_loop()

        def order() -> None:
            try:
                self.model, facts = make()
                self.finished = self.saved = int(facts["seq"]) if facts else 0
                loop.call_soon_threadsafe(self.opened, facts)
            except Exception as error:  # told to everybody who asks for the model
                loop.call_soon_threadsafe(self.opening.settle, failure(error))

        self.worker.inbox.put(order)

    def opened(self, facts: dict[str, Any] | None) -> None:
        if facts:
            self.next = int(facts["seq"]) + 1
            for number, stored in facts["results"].items():
                self.promise(int(number)).settle(stored_result(stored))
            self.seals |= {int(number): seal for number, seal in facts["seals"].items()}
        again, self.journal.operations = self.journal.operations, []
        for operation in again:
            self.journal.operations.append(operation)
            if operation.seq >= self.next:
                self.take(operation)
        kind = {"type": "load_weights", "path": self.path} if self.path else {"type": "create_model"}
        self.opening.settle(Result(fields={"model_id": self.place.model_id, **kind}))
        self.pump()

    # operations

    def promise(self, seq: int) -> Promise:
        return self.promises.setdefault(seq, Promise())

    def submit(self, kind: str, seq: int, body: bytes) -> None:
        """Takes an operation, once it is in the journal. One that is sent again has been taken."""
        operation = Operation(kind=kind, seq=seq, body=body)
        if seq in self.seals:
            if self.seals[seq] != operation.seal:
                raise Refusal(f"operation {seq} of {self.place.model_id} came already, and was another one: "
                              "an operation has a number of its own.", param="seq_id")
            return
        if seq < self.next:
            raise Refusal(f"operation {seq} of {self.place.model_id} is done, and {self.next} is next.",
                          param="seq_id")
        if seq >= self.next + MOST_WAITING:
            raise Refusal(f"operation {seq} is far ahead of {self.next}, which is next: ask again later.",
                          429)
        if len(body) + sum(len(x.operation.body) for x in self.waiting.values()) > MOST_BYTES:
            raise Refusal(f"over {MOST_BYTES:,} bytes wait for this model: ask again in a moment.", 429)
        prepared = self.prepared(operation)
        refused = prepared.action if isinstance(prepared.action, Refusal) else None
        if refused:  # its number is used up, so that later ones are not kept waiting
            operation = Operation(kind=kind, seq=seq, body=body, refusal=refused.sentence)
        self.journal.append(operation)
        self.take(operation, prepared)
        self.pump()

    def prepared(self, operation: Operation) -> Prepared:
        if operation.refusal:
            return Prepared(operation, Refusal(operation.refusal))
        try:
            action = prepare_operation(operation.kind, operation.seq, operation.body, self.place)
        except Exception as error:  # told to the client; the number is used up
            return Prepared(operation, Refusal(failure(error).error))
        return Prepared(operation, action)

    def take(self, operation: Operation, prepared: Prepared | None = None) -> None:
        self.seals[operation.seq] = operation.seal
        self.promise(operation.seq)
        self.waiting[operation.seq] = prepared or self.prepared(operation)

    def pump(self) -> None:
        """Hands the operations whose turn has come to the thread."""
        loop = asyncio.get_running_loop()
        while self.next in self.waiting and self.opening.settled.is_set():
            prepared = self.waiting.pop(self.next)
            self.next += 1
            self.worker.inbox.put(partial(self.do, loop, prepared))

    def do(self, loop: asyncio.AbstractEventLoop, prepared: Prepared) -> None:
        """On the thread."""
        operation, facts = prepared.operation, None
        try:
            if isinstance(prepared.action, Refusal):
                raise prepared.action
            if self.model is None:
                opening = self.opening.result
                raise Refusal((opening and opening.error) or "the model was let go: ask again.")
            result = prepared.action(self.model)
        except Exception as error:  # told to the client, whose model is as it was
            result = failure(error)
        self.finished = operation.seq
        self.recent.append((operation.seq, result))
        try:
            facts = self.checkpoint(operation, result)
        except Exception:  # the journal still holds what a checkpoint would have
            traceback.print_exc(file=sys.stderr)
        loop.call_soon_threadsafe(self.done, operation, result, facts)

    def done(self, operation: Operation, result: Result, saved: int | None) -> None:
        self.promise(operation.seq).settle(result)
        if saved is not None and not self.closed:
            self.journal.drop_until(saved)
            for seq in [seq for seq in self.seals if seq <= saved - MOST_WAITING]:
                del self.seals[seq]
        settled = [seq for seq, promise in self.promises.items() if promise.sent]
        for seq in settled[:-STAYING]:
            del self.promises[seq]

    # checkpoints, on the thread

    def checkpoint(self, operation: Operation, result: Result) -> int | None:
        """Saves a checkpoint where it is time -> the last operation in it."""
        model = self.model
        if model is None or operation.kind not in ("optim_step", "load_weights") or result.error:
            return None
        self.since += 1
        due = operation.kind == "load_weights" or self.since >= EVERY or self.journal.size > JOURNAL_BYTES
        if not due or model.pending:
            return None
        return self.save()

    def save(self) -> int:
        """A checkpoint of all that is done -> the last operation in it."""
        assert self.model and not self.model.pending, "a gradient is in the journal alone"
        seq = self.finished
        results = {n: p.result for n, p in list(self.promises.items()) if p.result and n <= seq}
        results |= dict(self.recent)
        seals = {str(n): seal for n, seal in list(self.seals.items()) if seq - MOST_WAITING < n <= seq}
        self.model.checkpoint({"seq": seq, "seals": seals,
                               "results": {str(n): stored_form(r) for n, r in results.items()}})
        self.since, self.saved = 0, seq
        return seq


def failure(error: Exception) -> Result:
    if isinstance(error, Refusal):
        return Result(error=error.sentence)
    traceback.print_exception(error, file=sys.stderr)
    what = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
    return Result(error=f"the server failed: {what}", category="server")


def stored_form(result: Result) -> dict[str, Any]:
    """A result as a checkpoint holds it: bytes as a tensor."""
    proto = torch.frombuffer(bytearray(result.proto), dtype=torch.uint8) if result.proto else None
    return {"proto": proto, "fields": None if result.fields is None else dict(result.fields),
            "error": result.error, "category": result.category}


def stored_result(stored: dict[str, Any]) -> Result:
    proto = None if stored["proto"] is None else stored["proto"].numpy().tobytes()
    return Result(**{**stored, "proto": proto})

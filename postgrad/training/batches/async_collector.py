"""Asynchronous collection: up to K collections are sampled while earlier ones are trained on.

Collection c starts when c - K - 1 has been trained on, by the weights of that moment, and c - 1 has been
sampled. So one policy samples all rows of a collection, with a staleness of K collections; none is dropped,
the order is fixed, and no clock decides which weights sample which row. Pending collections are saved in the
checkpoint: a resumed run has the same bits. With several ranks the threads that sample have a process group
of their own, beside the one that trains. Left out on purpose: weights that change while a row is sampled.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from postgrad.records import Prompt, Scored
from postgrad.system import processes
from postgrad.system.processes import timeout
from postgrad.training.batches.checkpointing import dump_scored, load_scored
from postgrad.training.stats import Deferred, resolve_deferred


class WeightSource(Protocol):
    """The weights that sample the rollouts."""

    def keep(self, step: int) -> Callable[[], None]:
        """Snapshots the weights after `step` optimizer steps; the returned call hands them to the sampler."""
        ...

    def check(self, step: int, behind: int) -> None:
        """Checks that the last samples are by the weights of that step. behind: optimizer steps since."""
        ...


class LiveWeights:
    """The weights in training, in this process."""

    def keep(self, step: int) -> Callable[[], None]:
        return lambda: None

    def check(self, step: int, behind: int) -> None:
        return None


class Collection(NamedTuple):
    """Groups of scored rollouts, dropped groups, and the metrics of all of them. step: optimizer steps behind
    the weights that sampled it."""

    groups: list[list[Scored]]
    dropped: list[list[Scored]]
    facts: dict[str, float | Deferred]
    step: int = 0


@dataclass(eq=False)
class PendingCollection:
    """A collection that has started. use: hands its weights to the sampler."""

    number: int
    step: int
    use: Callable[[], None]
    done: threading.Event = field(default_factory=threading.Event)
    made: Collection | None = None
    fault: BaseException | None = None


class AsyncCollector:
    """collect(number, step): collection `number`, by weights of so many optimizer steps. depth: K."""

    def __init__(self, depth: int, collect: Callable[[int, int], Collection], source: WeightSource):
        self.depth, self.collect, self.source = depth, collect, source
        self.number = 0  # collections begun
        self.begun: deque[PendingCollection] = deque()
        self.inbox: queue.SimpleQueue[PendingCollection] = queue.SimpleQueue()
        self.thread: threading.Thread | None = None

    def take(self, step: int, needed: int) -> Collection:
        """The next collection, after `step` optimizer steps. needed: collections still to be trained on, this
        one included; no more are started."""
        while len(self.begun) < max(1, min(self.depth + 1, needed)):
            self.begin(step)
        began = time.perf_counter()
        made = self.finished(self.begun[0])
        self.begun.popleft()
        made.facts["time/wait"] = time.perf_counter() - began
        self.source.check(made.step, step - made.step)
        return made

    def begin(self, step: int) -> None:
        self.number += 1
        job = PendingCollection(self.number, step, self.source.keep(step))
        self.begun.append(job)
        self.inbox.put(job)
        if self.thread is None:
            self.thread = threading.Thread(target=self.work, args=(processes.new_group("ahead"),),
                                           name="postgrad-ahead", daemon=True)
            self.thread.start()

    def work(self, group: processes.Group | None) -> None:
        processes.use_group(group)
        fault: BaseException | None = None
        while True:
            job = self.inbox.get()
            try:
                if fault is None:
                    job.use()
                    job.made = self.collect(job.number, job.step)
            except BaseException as error:  # raised in the training, which waits for the collection
                fault = error
            job.fault = fault
            job.done.set()

    def finished(self, job: PendingCollection) -> Collection:
        if not job.done.wait(2 * timeout()):  # what a sampler is waited for ends before
            raise ValueError(f"collection {job.number} did not come within {2 * timeout():g} s: the sampler "
                             "of this process or its verifier hangs; look at it, then `postgrad resume`, or "
                             "allow more with POSTGRAD_TIMEOUT=SECONDS.")
        if job.fault is not None:
            raise job.fault
        assert job.made is not None
        return job.made

    def state(self) -> dict[str, Any]:
        """Waits for all pending collections."""
        begun = [dump_collection(job.number, self.finished(job)) for job in self.begun]
        return {"number": self.number, "begun": begun}

    def restore(self, state: dict[str, Any], prompts: dict[str, Prompt]) -> None:
        self.number = state["number"]
        self.begun.clear()
        for saved in state["begun"]:
            job = PendingCollection(saved["number"], saved["step"], lambda: None,
                                    made=load_collection(saved, prompts))
            job.done.set()
            self.begun.append(job)


def dump_collection(number: int, made: Collection) -> dict[str, Any]:
    return {"number": number, "step": made.step, "facts": resolve_deferred(made.facts),
            "groups": [[dump_scored(s) for s in group] for group in made.groups],
            "dropped": [[dump_scored(s) for s in group] for group in made.dropped]}


def load_collection(saved: dict[str, Any], prompts: dict[str, Prompt]) -> Collection:
    groups, dropped = ([[load_scored(s, prompts) for s in group] for group in saved[name]]
                       for name in ("groups", "dropped"))
    return Collection(groups, dropped, dict(saved["facts"]), saved["step"])

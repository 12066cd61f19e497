"""In-flight weight updates: the newest checkpoint of a run, or weights that a training pushes through a
folder."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol

from torch import Tensor

from postgrad.models.graph_capture import outside_capture
from postgrad.resolve.handles import take_weights
from postgrad.resolve.models import newest_checkpoint, open_writer
from postgrad.resolve.weights import current_weights
from postgrad.sampling import RequestBatch, WeightVersion
from postgrad.sampling.sampler import DecodableModel
from postgrad.serving.decode_worker import DecodeWorker, ServedModel


class NewWeights(NamedTuple):
    """step: optimizer steps behind the weights. name: what a training calls them, "" for a checkpoint."""

    step: int
    weights: Mapping[str, Tensor]
    name: str = ""


class WeightFeed(Protocol):
    """A call returns newer weights, or None where the newest were returned already."""

    run: str | Path

    def __call__(self) -> NewWeights | None: ...

    def report(self, fault: Exception) -> None: ...


class CheckpointWatcher:
    """The checkpoints of a run after `step`."""

    def __init__(self, run: str | Path, device: str, step: int):
        self.run, self.device, self.step = run, device, step
        self.reported = ""

    def __call__(self) -> NewWeights | None:
        folder = newest_checkpoint(self.run, self.step)
        if folder is None:
            return None
        model, _ = open_writer(folder, self.device)
        self.step = int(folder.name)
        return NewWeights(self.step, model.state_dict())

    def report(self, fault: Exception) -> None:
        """Prints a fault once: loading is retried, and weights may be removed before they are read."""
        if str(fault) != self.reported:
            print(f"postgrad: newer weights of {self.run} can't be opened yet: {fault}", file=sys.stderr)
        self.reported = str(fault)


class PushedWeights(CheckpointWatcher):
    """The weights that a training pushes through a folder. name: of those in use."""

    def __init__(self, folder: str | Path, device: str, name: str):
        super().__init__(folder, device, 0)
        self.name = name

    def __call__(self) -> NewWeights | None:
        place, version = current_weights(self.run)
        if version.name == self.name:
            return None
        weights = (open_writer(place, self.device)[0].state_dict() if place.is_dir()
                   else take_weights(place, self.device))
        self.name = version.name
        return NewWeights(version.step, weights, version.name)

    def load_first(self, model: DecodableModel) -> WeightVersion:
        """Loads the newest weights into a model -> its version; a failed load is retried later."""
        step = int(self.name.split("-")[0])
        try:
            if new := self():
                model.load_state_dict(new.weights)
                step = new.step
        except (ValueError, OSError) as fault:
            self.report(fault)
        return WeightVersion(step, self.name)


async def take_new_weights(served: ServedModel, worker: DecodeWorker, source: WeightFeed) -> bool:
    """Loads newer weights between two steps -> whether there were any."""
    def look() -> NewWeights | None:
        with outside_capture():  # never while a graph is captured
            return source()

    try:
        new = await asyncio.to_thread(look)
        if new is None:
            return False
        await worker.call(partial(swap_weights, served, worker.batch, new))
    except Exception as fault:  # whatever it is: the next weights may load
        source.report(fault)
        return False
    if not new.name:  # a training pushes at every step
        print(f"postgrad: serving step {new.step} of {source.run}", file=sys.stderr)
    return True


def swap_weights(served: ServedModel, batch: RequestBatch, new: NewWeights) -> None:
    batch.model.load_state_dict(new.weights)
    batch.update_weights(new.step)
    served.weights = new.name


async def follow_weights(served: ServedModel, worker: DecodeWorker, source: WeightFeed,
                         every: float) -> None:
    """Looks for newer weights every so many seconds."""
    while True:
        await asyncio.sleep(every)
        await take_new_weights(served, worker, source)

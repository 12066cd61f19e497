"""Newer weights, looked for while older ones are in use: the newest checkpoint of a run, or what a training
leaves in a folder for its samplers."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

from postgrad.models.graph_capture import outside_capture
from postgrad.resolve.handles import take
from postgrad.resolve.models import open_writer
from postgrad.resolve.weights import shown_in
from postgrad.runs import Run
from postgrad.sampling import Weights
from postgrad.serving.served import Served


class Found(NamedTuple):
    """Weights, the optimizer steps behind them, and the name that a training gave them."""

    step: int
    weights: Mapping
    name: str = ""


class Newer(Protocol):
    """Where newer weights are looked for: a call gives them, None where it has given the newest."""

    run: str | Path

    def __call__(self) -> Found | None: ...

    def tell(self, fault: Exception) -> None: ...


class Checkpoints:
    """A run's checkpoints after `step`."""

    def __init__(self, run: str | Path, device: str, step: int):
        self.run, self.device, self.step = run, device, step
        self.told = ""

    def __call__(self) -> Found | None:
        steps = Run.open(self.run).checkpoints()
        if not steps or max(steps) == self.step:
            return None
        folder = Run.open(self.run).latest()
        if folder is None or int(folder.name) == self.step:
            return None
        model, _ = open_writer(folder, self.device)
        self.step = int(folder.name)
        return Found(self.step, model.state_dict())

    def tell(self, fault: Exception) -> None:
        """Once: it is tried again, and weights may be gone before they were read."""
        if str(fault) != self.told:
            print(f"postgrad: newer weights of {self.run} can't be opened yet: {fault}", file=sys.stderr)
        self.told = str(fault)


class Pushed(Checkpoints):
    """The weights that a training shows in a folder; name: of those in use."""

    def __init__(self, folder: str | Path, device: str, name: str):
        super().__init__(folder, device, 0)
        self.name = name

    def __call__(self) -> Found | None:
        place, weights = shown_in(self.run)
        if weights.name == self.name:
            return None
        found = (open_writer(place, self.device)[0].state_dict() if place.is_dir()
                 else take(place, self.device))
        self.name = weights.name
        return Found(weights.step, found, weights.name)

    def begin(self, model) -> Weights:
        """What a model has that was just opened, after it took what is shown; what can't be taken yet is
        looked for later."""
        step = int(self.name.split("-")[0])
        try:
            if found := self():
                model.load_state_dict(found.weights)
                step = found.step
        except (ValueError, OSError) as fault:
            self.tell(fault)
        return Weights(step, self.name)


async def take_newer(served: Served, newer: Newer) -> bool:
    """The newest weights are taken, between two tokens, where there are newer ones."""
    def look() -> Found | None:
        with outside_capture():  # never while a graph is captured
            return newer()

    try:
        found = await asyncio.to_thread(look)
    except (ValueError, OSError) as fault:
        newer.tell(fault)
        return False
    if found is None:
        return False
    slots = served.worker.slots

    def swap() -> None:
        slots.model.load_state_dict(found.weights)
        slots.refresh(found.step)
        served.weights = found.name

    await served.worker.call(swap)
    if not found.name:  # a training pushes at every step
        print(f"postgrad: serving step {found.step} of {newer.run}", file=sys.stderr)
    return True


async def follow(served: Served, newer: Newer, every: float) -> None:
    while True:
        await asyncio.sleep(every)
        await take_newer(served, newer)

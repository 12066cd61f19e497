"""The newest checkpoint of a run, looked for while older ones are in use."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

from postgrad.opening.models import open_writer
from postgrad.run import Run
from postgrad.serve.served import Served


class Checkpoints:
    """A run's checkpoints after `step`: a call gives (step, weights) of the newest, None where it is the one
    that was given last."""

    def __init__(self, run: str | Path, device: str, step: int):
        self.run, self.device, self.step = run, device, step
        self.told = ""

    def __call__(self) -> tuple[int, Mapping] | None:
        steps = Run.open(self.run).checkpoints()
        if not steps or max(steps) == self.step:
            return None
        folder = Run.open(self.run).latest()
        if folder is None or int(folder.name) == self.step:
            return None
        model, _ = open_writer(folder, self.device)
        self.step = int(folder.name)
        return self.step, model.state_dict()

    def tell(self, fault: Exception) -> None:
        """Once: it is tried again, and a checkpoint may be gone before it was read."""
        if str(fault) != self.told:
            print(f"postgrad: a newer checkpoint of {self.run} can't be opened yet: {fault}", file=sys.stderr)
        self.told = str(fault)


async def take_newer(served: Served, newer: Checkpoints) -> bool:
    """The newest weights are taken, between two tokens, where there are newer ones."""
    try:
        found = await asyncio.to_thread(newer)
    except (ValueError, OSError) as fault:
        newer.tell(fault)
        return False
    if found is None:
        return False
    step, weights = found
    slots = served.worker.slots

    def swap() -> None:
        slots.model.load_state_dict(weights)
        slots.refresh(step)

    await served.worker.call(swap)
    print(f"postgrad: serving step {step} of {newer.run}", file=sys.stderr)
    return True


async def follow(served: Served, newer: Checkpoints, every: float) -> None:
    while True:
        await asyncio.sleep(every)
        await take_newer(served, newer)

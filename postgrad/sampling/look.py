"""What the host asks of rows that a GPU is writing: it learns how they stood when they have long gone on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from postgrad.sampling.waiting import Row


class Look:
    """Which of these rows were done, and how much of each was written, at one moment: asked for now, known
    later. written: what was written of them, where that is asked for too."""

    def __init__(self, rows: list[Row], done: Tensor, count: Tensor, written: Sequence[Tensor] = ()):
        self.rows: list[Any] = list(rows)  # None in the place of one that has ended since
        self.columns = [x[: len(rows)].to("cpu", non_blocking=True, copy=True) for x in (done, count)]
        self.written = [x.to("cpu", non_blocking=True, copy=True) for x in written]
        self.event = torch.cuda.Event() if done.is_cuda else None
        if self.event:
            self.event.record()

    def seen(self) -> tuple[list[bool], list[int]]:
        if self.event:
            self.event.synchronize()
        done, count = self.columns
        return done.tolist(), count.tolist()

"""Rows that are all chosen for alike, side by side as columns on the device.

Nothing of them is told to it anew for as long as they are the same rows. On a GPU a step is two captured
graphs, the choice and the layers: the host looks at what was chosen while the layers are computed. So rows
that have just ended go through the layers once more, for no one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from postgrad.maths.noise import uniform
from postgrad.maths.packing import fetched, to_device
from postgrad.models.graph_capture import capturing
from postgrad.sampling.active import bucket
from postgrad.sampling.base import Sampling
from postgrad.sampling.choose import choose
from postgrad.sampling.request import Row
from postgrad.sampling.waiting import LEAST

OFTEN = 8     # steps of the same kind after which a graph of them is captured
GRAPHS = 64   # that are kept at most


class Together:
    """The columns of up to `size` rows: of each the number of its next token (at), its slot, its prompt's
    place and length, its seed. hidden: by slot, the state from which a row's next token is chosen."""

    def __init__(self, engine, hidden: Tensor, size: int, prompts: int):
        self.engine, self.hidden, self.device = engine, hidden, engine.device
        self.nobody = (0, size, prompts, 1, 0)
        self.columns = to_device(torch.tensor([self.nobody] * max(size, LEAST)).T.contiguous(), self.device)
        self.token = torch.zeros(self.columns.shape[1], dtype=torch.int64, device=self.device)
        self.logp = torch.zeros(self.columns.shape[1], device=self.device)
        self.rows: Sequence[Row] = ()  # that the columns are true of
        self.filled = 0  # columns that are, or were, somebody's
        self.how: Sampling | None = None
        self.left = self.longest = 0  # tokens that a row has still to write, and that one has, at most
        self.graphs: dict[tuple, torch.cuda.CUDAGraph] = {}
        self.used: Counter[tuple] = Counter()

    def takes(self, rows: Sequence[Row]) -> bool:
        """Whether all of these rows can be chosen for together; if so, they have the columns."""
        if rows is self.rows:
            return True
        requests = [row.request for row in rows]
        first = requests[0]
        if any(r.own or r.top or (r.how is not first.how and r.how != first.how) for r in requests) or \
                any(row.given for row in rows):
            return False
        numbers = [(len(row.tokens), row.slot, row.place.number, len(row.place.tokens), row.request.seed)
                   for row in rows]
        numbers += [self.nobody] * (self.filled - len(rows))  # in columns that others had
        self.columns[:, : len(numbers)] = to_device(torch.tensor(numbers, dtype=torch.int64), self.device).T
        self.rows, self.how, self.filled = rows, first.how, len(rows)
        self.left = max(r.settings.max_new_tokens + row.turn - len(row.sampled) for r, row in
                        zip(requests, rows, strict=True)) if not any(r.keep for r in requests) else 1 << 62
        self.longest = max(at + read for at, _, _, read, _ in numbers)
        return True

    def step(self) -> tuple[list[int], list[float]]:
        """One more token for every row: the tokens and their log-probs."""
        n = len(self.rows)
        size = min(len(self.token), bucket(n)) if self.device.type != "cpu" else \
            n if self.engine.independent else max(n, LEAST)
        self.left, self.longest = self.left - 1, self.longest + 1
        self.run(self.choose, size)
        token, logp = fetched(self.token[:n]), fetched(self.logp[:n])
        if self.left:
            self.run(self.advance, size)
        return token().tolist(), logp().tolist()

    def choose(self, size: int) -> None:
        at, slot, _, _, seed = self.columns[:, :size]
        assert self.how is not None
        self.token[:size], self.logp[:size] = choose(self.engine.logits(self.hidden[slot]), uniform(seed, at),
                                                     self.how, self.engine.ops)

    def advance(self, size: int) -> None:
        """What was chosen through all layers, to the state from which the next one is chosen."""
        at, slot, prompt, length, _ = self.columns[:, :size]
        self.hidden[slot] = self.engine.step(self.token[:size], at, slot, prompt, length,
                                             longest=None if self.engine.graphs else self.longest)
        at += (at < self.engine.new - 1).to(at.dtype)  # those of no one stay inside

    def run(self, part: Callable[[int], None], size: int) -> None:
        """A part of a step for the first columns; on a GPU as a graph, where it was done a few times."""
        key = (part.__name__, self.how, size)
        if key in self.graphs:
            return self.graphs[key].replay()
        part(size)
        if self.device.type == "cuda" and self.engine.graphs:
            self.used[key] += 1
            if self.used[key] == OFTEN:
                self.capture(part, size, key)

    def capture(self, part: Callable[[int], None], size: int, key: tuple) -> None:
        """The graph of a part, which nothing is computed of meanwhile."""
        if len(self.graphs) == GRAPHS:
            self.graphs.clear()
            self.used.clear()
        graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
        pool = next((g.pool() for g in self.graphs.values()), None)
        try:
            with capturing(), torch.cuda.graph(graph, pool=pool):
                part(size)
        except RuntimeError as error:
            torch.cuda.set_stream(stream)  # that of a capture which failed is left current
            return self.engine.uncaptured(error)
        self.graphs[key] = graph


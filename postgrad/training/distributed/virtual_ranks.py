"""Work dealt to lanes, and sums over them whose bits do not depend on the number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from postgrad.system import processes

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
R = TypeVar("R")

BUCKET = 1 << 24  # numbers that are exchanged at once


@dataclass(frozen=True)
class VirtualRanks:
    """The lanes of a run and this rank's among them: VirtualRanks(4, rank=1, world=2) has lanes 1 and 3,
    VirtualRanks(2) both, one after the other. even: models are sharded, so every rank runs as many items, in
    step; FSDP sums over the ranks in the backward pass."""

    count: int = 1
    rank: int = 0
    world: int = 1
    even: bool = False

    @property
    def apart(self) -> bool:
        """Whether each lane has a sum of its own."""
        return self.count > 1 and not self.even

    def map(self, work: Callable[[T], R], items: Iterable[T], what: str,
            after: Callable[[], None] = lambda: None,
            blank: Callable[[T], T] = lambda item: item) -> list[R]:
        """work(item) of every item, in their order, each computed in its lane. what: names the collective.
        after: called after each turn, a turn being one lane of every rank (even: all its items). blank: makes
        the dummy item that keeps collectives aligned where a rank has none."""
        if self.count == 1 and self.world == 1:
            results = [work(item) for item in items]
            after()
            return results
        return self.map_own(work, list(items), what, after, blank)

    def map_own(self, work: Callable[[T], R], every: Sequence[T], what: str, after: Callable[[], None],
                blank: Callable[[T], T]) -> list[R]:
        """`map` of several lanes or ranks: this rank's items, gathered with those of the others."""
        own: dict[int, R] = {}
        if self.even:
            for i in range(self.rank, -(-len(every) // self.world) * self.world, self.world):
                result = work(every[i] if i < len(every) else blank(every[0]))
                own |= {i: result} if i < len(every) else {}
            after()
            return gather_in_order(own, what)
        for first in range(0, min(self.count, len(every)), self.world):
            lane = first + self.rank
            if lane < self.count:
                own |= {i: work(every[i]) for i in range(lane, len(every), self.count)}
            after()
        return gather_in_order(own, what)

    def add(self, total: Sequence[Tensor | None], own: Sequence[Tensor | None], like: Sequence[Tensor],
            what: str) -> list[Tensor | None]:
        """total + every rank's tensors of this turn, rank after rank. None: nothing to add. like: tensors of
        the same shapes."""
        out = list(total)
        if self.world == 1:
            for i, part in enumerate(own):
                add_in_place(out, i, part)
            return out
        present = processes.gather([part is not None for part in own], what)
        for bucket in exchange_buckets(like, [any(ranks) for ranks in zip(*present, strict=True)]):
            parts = exchange_tensors([own[i] for i in bucket], [like[i] for i in bucket], what)
            for mask, tensors in zip(present, parts, strict=True):
                for i, part in zip(bucket, tensors, strict=True):
                    if mask[i]:
                        add_in_place(out, i, part.clone() if out[i] is None else part)
        return out

    def deal(self, names: Sequence[object]) -> list[list[int]]:
        """The numbers of the items of each lane, dealt in turn; items of one name stay together."""
        lane_of: dict[object, int] = {}
        lanes: list[list[int]] = [[] for _ in range(self.count)]
        for i, name in enumerate(names):
            lanes[lane_of.setdefault(name, len(lane_of) % self.count)].append(i)
        return lanes


SINGLE_RANK = VirtualRanks()


def current_virtual_ranks(count: int | None, even: bool = False) -> VirtualRanks:
    """The lanes of a run, with this process's rank. count None: one lane."""
    return VirtualRanks(count or 1, processes.rank(), processes.world(), even)


def gather_in_order(own: dict[int, R], what: str) -> list[R]:
    """The results of all ranks, by number."""
    every = {i: result for part in processes.gather(own, what) for i, result in part.items()}
    return [every[i] for i in range(len(every))]


def add_in_place(out: list[Tensor | None], i: int, part: Tensor | None) -> None:
    """out[i] += part, in place; None is 0."""
    if part is not None:
        before = out[i]
        out[i] = part if before is None else before.add_(part)


def exchange_buckets(like: Sequence[Tensor], wanted: Sequence[bool]) -> Iterator[list[int]]:
    """The numbers of the wanted tensors, in groups of one type and about BUCKET numbers."""
    buckets: dict[Any, list[int]] = {}
    for i, x in enumerate(like):
        if wanted[i]:
            bucket = buckets.setdefault((x.dtype, x.device), [])
            if bucket and sum(like[j].numel() for j in bucket) + x.numel() > BUCKET:
                yield bucket
                bucket = buckets[x.dtype, x.device] = []
            bucket.append(i)
    yield from filter(None, buckets.values())


def exchange_tensors(own: Sequence[Tensor | None], like: Sequence[Tensor], what: str) -> list[list[Tensor]]:
    """The tensors of every rank, by rank; zeros in place of None."""
    import torch
    import torch.distributed as dist
    flat = torch.cat([(torch.zeros_like(x) if g is None else g).detach().flatten()
                      for g, x in zip(own, like, strict=True)])
    sent = flat if processes.carries(flat) else flat.cpu()
    every = sent.new_empty(processes.world(), len(sent))
    with processes.waiting(what):
        dist.all_gather(list(every.unbind()), sent)
    return [[part.view(x.shape) for part, x in zip(row.split([x.numel() for x in like]), like, strict=True)]
            for row in every.to(flat.device)]

"""Work dealt to lanes, and sums over them whose bits do not depend on the number of ranks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from postgrad.system.processes import group

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
R = TypeVar("R")

BUCKET = 1 << 24  # numbers that are exchanged at once


@dataclass(frozen=True)
class VirtualRanks:
    """The lanes of a run and this rank's among them.

    VirtualRanks(4, rank=1,
                 world=2): lanes 1 and 3 are ours. VirtualRanks(2) alone: both, one after the other.
    even: models are divided among the ranks, so all of them do as many items, each at the same time; the sum
    over the ranks is made in the backward pass.
    """

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
        """work(item) of every item, in their order, each done in its lane. what: the name of the wait for
        the others. after: called after each turn, in which every rank goes through one lane of its own (even:
        through all its items).
        blank: what a rank does, and forgets, where it has no item and the others have."""
        if self.count == 1 and self.world == 1:
            done = [work(item) for item in items]
            after()
            return done
        own: dict[int, R] = {}
        every = list(items)
        if self.even:
            for i in range(self.rank, -(-len(every) // self.world) * self.world, self.world):
                made = work(every[i] if i < len(every) else blank(every[0]))
                own |= {i: made} if i < len(every) else {}
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
        """total + the tensors that the ranks give in this turn, rank after rank. None: nothing to add.
        like: of each a tensor of its shape."""
        out = list(total)
        if self.world == 1:
            for i, part in enumerate(own):
                add_in_place(out, i, part)
            return out
        given = group.gather([part is not None for part in own], what)
        for bucket in exchange_buckets(like, [any(said) for said in zip(*given, strict=True)]):
            parts = exchange_tensors([own[i] for i in bucket], [like[i] for i in bucket], what)
            for said, tensors in zip(given, parts, strict=True):
                for i, part in zip(bucket, tensors, strict=True):
                    add_in_place(out, i,
                                 part.clone() if said[i] and out[i] is None else part if said[i] else None)
        return out

    def deal(self, names: Sequence[object]) -> list[list[int]]:
        """The numbers of the items of each lane, dealt round by round; items of one name stay together."""
        places: dict[object, int] = {}
        current_virtual_ranks: list[list[int]] = [[] for _ in range(self.count)]
        for i, name in enumerate(names):
            current_virtual_ranks[places.setdefault(name, len(places) % self.count)].append(i)
        return current_virtual_ranks


SINGLE_RANK = VirtualRanks()


def current_virtual_ranks(count: int | None, even: bool = False) -> VirtualRanks:
    """The lanes of a run that was started with so many; None: one. even: as in VirtualRanks."""
    return VirtualRanks(count or 1, group.rank(), group.world(), even)


def gather_in_order(own: dict[int, R], what: str) -> list[R]:
    """What all ranks made, by number."""
    every = {i: made for part in group.gather(own, what) for i, made in part.items()}
    return [every[i] for i in range(len(every))]


def add_in_place(out: list[Tensor | None], i: int, part: Tensor | None) -> None:
    """out[i] += part, in place."""
    if part is not None:
        before = out[i]
        out[i] = part if before is None else before.add_(part)


def exchange_buckets(like: Sequence[Tensor], wanted: Sequence[bool]) -> Iterator[list[int]]:
    """The numbers of the wanted tensors, in groups of one type and about BUCKET numbers."""
    held: dict[Any, list[int]] = {}
    for i, x in enumerate(like):
        if wanted[i]:
            group = held.setdefault((x.dtype, x.device), [])
            if group and sum(like[j].numel() for j in group) + x.numel() > BUCKET:
                yield group
                group = held[x.dtype, x.device] = []
            group.append(i)
    yield from (group for group in held.values() if group)


def exchange_tensors(own: Sequence[Tensor | None], like: Sequence[Tensor], what: str) -> list[list[Tensor]]:
    """The tensors of every rank, by rank; zeros in the place of None."""
    import torch
    import torch.distributed as dist
    flat = torch.cat([(torch.zeros_like(x) if g is None else g).detach().flatten()
                      for g, x in zip(own, like, strict=True)])
    sent = flat if group.carries(flat) else flat.cpu()
    every = sent.new_empty(group.world(), len(sent))
    with group.waiting(what):
        dist.all_gather(list(every.unbind()), sent)
    return [[part.view(x.shape) for part, x in zip(row.split([x.numel() for x in like]), like, strict=True)]
            for row in every.to(flat.device)]

"""Statistics that are exact under any batching: sums and counts, merged over micro-batches, divided last."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import islice
from typing import Any, Self

import torch
from torch import Tensor

from postgrad.maths.noise import widest


@dataclass(frozen=True)
class Sums:
    """A statistic of sums: two of them are merged field by field."""

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True)
class Mean(Sums):
    """A mean as sum and count: Mean(3.0, 2) + Mean(1.0, 2) = Mean(4.0, 4), 1.0."""

    total: Tensor | float
    count: Tensor | float

    def result(self) -> float:
        count = float(self.count)
        return float(self.total) / count if count else 0.0


@dataclass(frozen=True)
class Max:
    """A maximum, mergeable like Mean."""

    value: Tensor | float

    def __add__(self, other: Max) -> Max:
        # torch.maximum propagates NaN
        return Max(torch.maximum(torch.as_tensor(self.value), torch.as_tensor(other.value)))

    def result(self) -> float:
        return float(self.value)


@dataclass(frozen=True)
class ExplainedVariance(Sums):
    """Explained variance 1 - Var(error) / Var(target), as sums: 1 for a perfect critic, 0 for a constant."""

    count: Tensor | float
    target: Tensor | float
    target_sq: Tensor | float
    error: Tensor | float
    error_sq: Tensor | float

    def result(self) -> float:
        if not self.count:
            return 0.0
        of, ofs, err, errs = (float(x) / float(self.count)
                              for x in (self.target, self.target_sq, self.error, self.error_sq))
        spread = ofs - of**2
        return 1.0 - (errs - err**2) / spread if spread > 1e-12 else 0.0


@dataclass(frozen=True)
class EffectiveShare(Sums):
    """Kish's effective sample size over n, (sum w)^2 / (n sum w^2), as sums. 1 for equal weights."""

    count: Tensor | float
    total: Tensor | float
    squares: Tensor | float

    def result(self) -> float:
        spread = float(self.count) * float(self.squares)
        return float(self.total) ** 2 / spread if spread else 0.0


Statistic = Mean | Max | ExplainedVariance | EffectiveShare


class Stats(dict[str, Any]):
    """Statistics of a step by name, summed over its micro-batches.

    columns: per-token tensors for the sample log. units: per-unit tensors for an evaluation.
    """

    def __init__(self, entries: Mapping[str, Statistic] | None = None,
                 columns: Mapping[str, Tensor] | None = None, units: Mapping[str, Tensor] | None = None):
        super().__init__(entries or {})
        # name -> tensors [U], one a micro-batch
        self.units = {name: [x.detach()] for name, x in (units or {}).items()}
        # name -> a tensor [T] per row
        self.columns = {name: list(x.detach()) for name, x in (columns or {}).items()}

    def add(self, seen: Stats) -> None:
        for name, entry in seen.items():
            self[name] = self[name] + entry if name in self else entry
        for name, rows in seen.columns.items():
            self.columns.setdefault(name, []).extend(rows)
        for name, parts in seen.units.items():
            self.units.setdefault(name, []).extend(parts)

    def __reduce__(self) -> tuple[Callable[..., Stats], tuple[Any, ...]]:
        """Pickles host copies of the rows, not views that hold a whole batch."""
        entries = {name: type(entry)(*(to_host(getattr(entry, f.name)) for f in fields(entry)))
                   for name, entry in self.items()}
        lists = [{name: [to_host(x) for x in rows] for name, rows in kept.items()}
                 for kept in (self.columns, self.units)]
        return rebuild_stats, (entries, *lists)

    def of_units(self, name: str) -> list[float]:
        return torch.cat(self.units[name]).tolist()

    def results(self) -> dict[str, float]:
        return self.read()[0]

    def read(self, *more: Tensor | float) -> tuple[dict[str, float], list[float]]:
        """The results and further scalars of the step, with one device synchronization."""
        parts = [(name, type(entry), len(fields(entry))) for name, entry in self.items()]
        known = iter(read_scalars([getattr(entry, f.name) for entry in self.values() for f in fields(entry)]
                             + list(more)))
        results = {name: kind(*islice(known, count)).result() for name, kind, count in parts}
        return results, list(known)


class Deferred:
    """A metric that is computed when the log reads it, while a GPU is busy."""

    def __init__(self, compute: Callable[[], Any]):
        self.compute = compute

    @cached_property
    def result(self) -> Any:
        return self.compute()


def resolve_deferred(facts: Mapping[str, float | Deferred]) -> dict[str, float]:
    return {name: fact.result if isinstance(fact, Deferred) else fact for name, fact in facts.items()}


def read_scalars(values: Sequence[Tensor | float]) -> list[float]:
    """Scalars as Python floats, with one synchronization per device."""
    floats = [0.0 if isinstance(x, Tensor) else float(x) for x in values]
    for device in {x.device for x in values if isinstance(x, Tensor)}:
        mine = {i: x for i, x in enumerate(values) if isinstance(x, Tensor) and x.device == device}
        read = torch.stack([widest(x.detach()) for x in mine.values()]).tolist()
        for i, number in zip(mine, read, strict=True):
            floats[i] = number
    return floats


def to_host(x: Tensor | float) -> Tensor | float:
    return x.detach().cpu().clone() if isinstance(x, Tensor) else x


def rebuild_stats(entries: Mapping[str, Statistic], columns: dict[str, list[Tensor]],
             units: dict[str, list[Tensor]]) -> Stats:
    """Unpickles `Stats`."""
    stats = Stats(entries)
    stats.columns, stats.units = columns, units
    return stats

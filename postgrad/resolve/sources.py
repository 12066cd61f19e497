"""Whatever stands for conversations to imitate becomes sources, each with its share.

    "chats.jsonl"                        one file
    "a.jsonl,b.jsonl"                    several, as if they were one
    "a.jsonl:0.7,words:0.3"              by weight: seven rows of ten from the file, three of the task's
                                         demonstrations
    rows, [rows, "a.jsonl"], [(rows, 0.7), ("a.jsonl", 0.3)]      in Python
What is a file as it stands is that file, whatever signs are in its name.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from postgrad.data.rows import source_name
from postgrad.data.tasks import is_task_name


@dataclass(frozen=True, kw_only=True)
class DataSource:
    """A file, a task's name or rows; weight: None where the sources have none.

    task: its demonstrations are meant.
    """

    rows: Any
    weight: float | None = None

    @property
    def task(self) -> bool:
        return isinstance(self.rows, str) and not Path(self.rows).is_file() and is_task_name(self.rows)

    @property
    def name(self) -> str:
        return source_name(self.rows)


def is_source(value: object) -> bool:
    """A file or a task by name, or rows; a pair of one and its weight."""
    pair = isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], int | float)
    return pair or isinstance(value, str | Path) or isinstance(value, list)


def sources_of(data: object) -> list[DataSource]:
    """The sources that data names or is; their weights are all there, or none."""
    if isinstance(data, str | Path):
        whole = Path(data).is_file()
        pieces = [str(data)] if whole else [piece.strip() for piece in str(data).split(",") if piece.strip()]
        found = [DataSource(rows=piece) if whole else _weighed(piece) for piece in pieces]
    elif isinstance(data, Sequence) and data and all(map(is_source, data)):
        pairs = [x if isinstance(x, tuple) else (x, None) for x in data]
        found = [DataSource(rows=rows, weight=weight) for rows, weight in pairs]
    else:
        found = [DataSource(rows=data)]
    weights = [source.weight for source in found]
    if not found or (None in weights and weights.count(None) < len(weights)):
        raise ValueError(f"data is {data!s:.100}: give each source a weight, or none of them, e.g. "
                         "a.jsonl:0.7,b.jsonl:0.3.")
    for source in found:
        if source.weight is not None and not 0 < source.weight < math.inf:
            raise ValueError(f"data gives {source.name} the weight {source.weight:g}: it must be a number "
                             "above 0.")
    return found


def _weighed(piece: str) -> DataSource:
    """One source as it is written: "a.jsonl:0.7", "a.jsonl", "gsm8k:data/gsm8k:0.5"."""
    name, _, weight = piece.rpartition(":")
    if not name or Path(piece).is_file():
        return DataSource(rows=piece)
    try:
        return DataSource(rows=name, weight=float(weight))
    except ValueError:
        return DataSource(rows=piece)


def source_shares(sources: Sequence[DataSource], sizes: Sequence[int]) -> list[float]:
    """The share of the rows that each source gives: by weight, or by its size."""
    parts = [size if source.weight is None else source.weight
             for source, size in zip(sources, sizes, strict=True)]
    return [part / sum(parts) for part in parts]

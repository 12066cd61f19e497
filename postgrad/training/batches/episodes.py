"""Episodes of several rows, for functions of whole episodes: credit, weights, choices.

An episode is one row unless its chat template rewrites earlier turns, so that a turn begins a new row. Its K
rows of T columns are then joined to one row of K * T columns, and results are split again. Where every row is
an episode, both are the identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor

from postgrad.records import Batch


def _row_places(episode: Tensor) -> tuple[int, int, Tensor]:
    """The number of episodes, the most rows of one, and each row's index among episodes * most."""
    _, number, counts = torch.unique_consecutive(episode, return_inverse=True, return_counts=True)
    first = counts.cumsum(0) - counts
    most = int(counts.max())
    return len(counts), most, number * most + torch.arange(len(number), device=number.device) - first[number]


def join_episodes(x: Tensor, episode: Tensor | None) -> Tensor:  # [B, T], [B] -> [E, K * T]
    """The rows of each episode end to end, padded with 0."""
    if episode is None:
        return x
    count, most, place = _row_places(episode)
    out = x.new_zeros(count * most, x.shape[1])
    out[place] = x
    return out.view(count, most * x.shape[1])


def split_episodes(x: Tensor, episode: Tensor | None) -> Tensor:  # [E, K * T], [B] -> [B, T]
    """The inverse of `join_episodes`."""
    if episode is None:
        return x
    count, most, place = _row_places(episode)
    return x.view(count * most, -1)[place]


def episode_batch(batch: Batch) -> Batch:
    """The batch with one row per episode, not for a model to read; ids and origins are those of last rows."""
    if batch.episode is None:
        return batch
    shape, cut = batch.tokens.shape, dict[str, Any]()
    for f in fields(batch):
        if isinstance(x := getattr(batch, f.name), Tensor) and x.shape == shape:
            cut[f.name] = join_episodes(x, batch.episode)
    last = last_rows(batch.episode)
    return replace(batch, ids=tuple(batch.ids[i] for i in last), episode=None, **cut,
                   lengths=cut["mask"].sum(1), scored=tuple(batch.scored[i] for i in last if batch.scored))


def last_rows(episode: Tensor) -> list[int]:
    """The last row of each episode."""
    _, counts = torch.unique_consecutive(episode, return_counts=True)
    return [int(end) for end in counts.cumsum(0) - 1]


def episode_rows(batch: Batch, chosen: Sequence[int]) -> list[int]:
    """The rows of the chosen episodes, in this order."""
    if batch.episode is None:
        return list(chosen)
    ends = last_rows(batch.episode)
    begins = [0, *(end + 1 for end in ends)]
    return [row for i in chosen for row in range(begins[i], ends[i] + 1)]


def group_rows(batch: Batch, group_size: int) -> list[list[int]]:
    """The rows of each group of so many episodes."""
    count = len(batch) if batch.episode is None else len(last_rows(batch.episode))
    return [episode_rows(batch, range(at, at + group_size)) for at in range(0, count, group_size)]

"""Labelled steps -> Batch."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from postgrad.maths.weights import token_mean
from postgrad.records import Batch, Rollout, Step, pad_rows
from postgrad.training.batches.shuffled import ShuffledBatches, padded_columns


@dataclass(frozen=True, kw_only=True)
class Marked:
    """A reply with labels on some of its tokens: (column, right), counted from the first token of the prompt.

    Marked(id="words/5+8", tokens=(1, 5, 7, 2), marks=((2, True), (3, False)))
    """

    id: str
    tokens: tuple[int, ...]
    marks: tuple[tuple[int, bool], ...]


def mark(rollout: Rollout, steps: Sequence[Step], chat) -> Marked:
    """A reply with its steps' labels on their last tokens.

    Two steps that end in one token are one mark: the later label.
    """
    at = len(rollout.prompt_tokens) + rollout.reply.start
    places = chat.places(rollout.tokens[rollout.reply], [step.end for step in steps])
    marks = {at + place: step.right for place, step in zip(places, steps, strict=True)}
    return Marked(id=rollout.prompt.id, tokens=(*rollout.prompt_tokens, *rollout.tokens),
                  marks=tuple(marks.items()))


class StepBatches(ShuffledBatches):
    """Marked replies -> Batch: the marked tokens are trained, each counts the same in its step."""

    def __init__(self, rows: Sequence[Marked], *, per_step: int, steps: int, seed: int, max_tokens: int,
                 device="cpu"):
        super().__init__(rows, per_step=per_step, steps=steps, seed=seed, device=device)
        for row in rows:
            if len(row.tokens) > max_tokens:
                raise ValueError(f"reply {row.id} has {len(row.tokens)} tokens with its prompt, over the "
                                 f"model's {max_tokens}: shorten it or leave it out.")
            if not row.marks:
                raise ValueError(f"reply {row.id} has no labelled step, so nothing would be learned from "
                                 "it: leave it out.")
        self.sum = zlib.crc32(repr([(row.tokens, row.marks) for row in rows]).encode())

    def batch(self, rows: Sequence[Marked]) -> Batch:
        """These replies, shortest first; label is +1 or -1 on the marked tokens, 0 elsewhere."""
        rows = sorted(rows, key=lambda row: len(row.tokens))
        marks = [dict(row.marks) for row in rows]
        columns = [range(len(row.tokens)) for row in rows]
        masks = [[c in marked for c in places] for marked, places in zip(marks, columns, strict=True)]
        labels = [[{None: 0.0, True: 1.0, False: -1.0}[marked.get(c)] for c in places]
                  for marked, places in zip(marks, columns, strict=True)]
        base = padded_columns([row.id for row in rows], [list(row.tokens) for row in rows], masks)
        label = pad_rows(labels, fill=0.0, dtype=torch.float32)
        facts = {"tokens": float(base["lengths"].sum()),
                 "right_steps": float((label > 0).sum() / base["mask"].sum())}
        return Batch(**base, weight=token_mean(base["mask"], base["mask"].shape[1]), label=label,
                     facts=facts).to(self.device)

    def state(self) -> dict:
        return super().state() | {"sum": self.sum}

    def restore(self, state: dict) -> None:
        if state["sum"] != self.sum:
            raise ValueError("the labelled replies are not those that this run began with, so it cannot go "
                             "on to the same result: put the old generator back, or start a new run.")
        super().restore(state)

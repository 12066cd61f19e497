"""Rows of a training: what happens to unreadable and to long ones, and how many are held out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from postgrad.data.rows import BadRows, Source, source_name
from postgrad.models import Models
from postgrad.models.chat import Chat
from postgrad.records import Batch, Conversation, Pair
from postgrad.system.disk_list import select
from postgrad.system.settings import COUNT, SHARE, Settings, setting
from postgrad.training.batches.offline import (
    TokenLimit,
    encode_completion,
    encode_conversation,
    encode_pair,
    encode_single,
)
from postgrad.training.loop import Objective
from postgrad.training.stats import Stats

MAX_HELD_OUT = 500  # rows of an evaluation, which should cost little beside the steps

RowT = TypeVar("RowT", bound=Pair | Conversation)


@dataclass(frozen=True, kw_only=True)
class RowSettings(Settings):
    """How the rows of `data` are read and split."""

    skip_bad: bool = setting(False, "rows of `data`, or of the task's file, that cannot be read are left out "
                             "and counted, instead of refused",
                             "where a few rows of a large file are broken and can be spared")
    max_tokens: int | None = setting(None, "the most tokens of a row; none: as many as the model takes",
                                     "where few rows are very long: what truncate says is done with them",
                                     within=COUNT)
    truncate: str = setting("refuse", "rows of more tokens than that: refuse, drop (leave out), "
                            "left (cut their start) or right (cut their end)",
                            "left for long conversations, whose end matters; right for long texts",
                            choices=("refuse", "drop", "left", "right"))
    holdout: float | None = setting(
        None, "the share of the prompts in `data` that is held out for evaluations, by a hash of their text, "
        "where there are 20 or more; none: 0.1, and 0 with eval_data",
        "0 to train on every row; more for a narrower interval", within=SHARE)

    def limit(self, positions: int) -> int:
        """The most tokens of a row, of a model with so many positions."""
        return min(self.max_tokens or positions, positions)

    @property
    def cut(self) -> str:
        """What a batch source does about long rows; with `drop` none reaches it."""
        return "refuse" if self.truncate == "drop" else self.truncate


class RowReader:
    """Reads the rows of a run, and counts those that are unreadable or too long. data None: a task's.

    evaluated: the reader of eval_data; itself, where rows of `data` are held out instead.
    """

    def __init__(self, settings: RowSettings, data: Source | None, eval_data: Source | None = None):
        self.settings, self.name = settings, "the rows" if data is None else source_name(data)
        self.bad, self.evaluated = BadRows.of_run(settings.skip_bad), self
        if eval_data is not None:
            self.evaluated = RowReader(settings, eval_data)
            self.evaluated.bad = BadRows.of_run(settings.skip_bad, "what is bad in eval_data")
            self.evaluated.name = f"eval_data {source_name(eval_data)}".removesuffix(" data")
        self.rows = self.long = 0
        self.judged: dict[str, int] = {}  # pairs of a task that its own verifier has judged

    def fitting(self, rows: Sequence[RowT], chat: Chat, max_tokens: int) -> Sequence[RowT]:
        """With truncate=drop, the rows of at most max_tokens tokens; else all of them. With skip_bad without
        those that the chat template has no place for or refuses."""
        if self.settings.skip_bad:
            rows = self.rendered(rows, chat)
        if self.settings.truncate != "drop":
            return rows
        fitting = select(rows, [i for i, row in enumerate(rows) if row_tokens(row, chat) <= max_tokens])
        self.rows, self.long = self.rows + len(rows), self.long + len(rows) - len(fitting)
        return fitting

    def rendered(self, rows: Sequence[RowT], chat: Chat) -> Sequence[RowT]:
        """The rows that the chat template renders; the others are bad."""
        kept = []
        for i, row in enumerate(rows):
            with self.bad.row(counted=True):
                encode_row(row, chat)
                kept.append(i)
        self.bad.settle(self.name)
        return rows if len(kept) == len(rows) else select(rows, kept)

    def counts(self, *limits: TokenLimit) -> dict[str, int]:
        """Rows that could not be read, were dropped for their length, were cut; saved with the run."""
        return {"bad": self.bad.count, "dropped": self.long, "cut": sum(limit.cut for limit in limits),
                **self.judged}

    def notes(self, *limits: TokenLimit) -> tuple[str, ...]:
        dropped = (f"{self.name}: {self.long:,} of {self.rows:,} rows are left out, for they have too "
                   "many tokens",) if self.long else ()
        cut = (note for limit in limits for note in limit.note(self.name))
        other = self.evaluated.notes() if self.evaluated is not self else ()
        return (*self.bad.notes(self.name), *dropped, *cut, *other)


def encode_row(row: Pair | Conversation, chat: Chat) -> None:
    """Raises where nothing can be trained on the row."""
    if isinstance(row, Pair):
        encode_pair(row, chat, TokenLimit(2**62))
    elif row.label is not None:
        encode_single(row, chat)
    else:
        encode_conversation(row, chat)


def row_tokens(row: Pair | Conversation, chat: Chat) -> int:
    """The tokens of a conversation, or of the longer side of a pair."""
    if isinstance(row, Conversation):
        return len(encode_conversation(row, chat)[0])
    return max(len(encode_completion(row.messages, side, chat, row.tools)[0])
               for side in (row.chosen, row.rejected))


@torch.no_grad()
def evaluate_objective(objective: Objective, models: Models, batch: Batch, tokens_per_pass: int) -> Stats:
    """The statistics of an objective on a batch that is not trained on."""
    stats = Stats()
    for micro in batch.split(tokens_per_pass):
        stats.add(objective(models, micro)[1])
    return stats

"""How well a model still predicts text of the kind that it was pretrained on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import torch
from torch import Tensor

from postgrad.records import Message

LENGTH = 128       # tokens in a row
SEED = 1_000_000   # the first seed of documents that no model here was pretrained on
AT_ONCE = 32       # documents that are made, and rows that are computed, together

Documents = Callable[[int, int, int], Iterable[str | Sequence[Message]]]  # seed, start, count


class DocumentChat(Protocol):
    def document(self, text: str) -> tuple[Sequence[int], object]: ...

    def encode(self, text: str) -> Sequence[int]: ...

    def text_of(self, messages: Sequence[Message], *, reply: bool) -> str: ...


class LogpModel(Protocol):
    def logp(self, tokens: Tensor, mask: Tensor) -> tuple[Tensor, object]: ...


def held_out_text(documents: Documents, chat: DocumentChat, rows: int, seed: int) -> list[list[int]]:
    """[rows][LENGTH] tokens of a pretraining corpus, documents concatenated as in pretraining. No pretraining
    used these seeds, so the documents are new."""
    tokens: list[int] = []
    at = 0
    while len(tokens) < rows * LENGTH:
        for doc in documents(SEED + seed, at, AT_ONCE):
            tokens += (chat.document(doc)[0] if isinstance(doc, str)
                       else chat.encode(chat.text_of(doc, reply=False)))
        at += AT_ONCE
    return [tokens[i * LENGTH: (i + 1) * LENGTH] for i in range(rows)]


@torch.no_grad()
def negative_log_likelihood(model: LogpModel, rows: Sequence[Sequence[int]],
                            device: str = "cpu") -> list[float]:
    """The mean of -log p over the tokens of each row but the first, in nats. The perplexity is the
    exponential of their mean."""
    out: list[float] = []
    for start in range(0, len(rows), AT_ONCE):
        tokens = torch.tensor(rows[start: start + AT_ONCE], device=device)
        mask = torch.ones_like(tokens, dtype=torch.bool)
        mask[:, 0] = False
        logp, _ = model.logp(tokens, mask)
        out += (-logp.float().sum(1) / (tokens.shape[1] - 1)).tolist()
    return out

"""How well a model still predicts text of the kind that it was pretrained on."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from postgrad.data.tasks import corpus
from postgrad.models.chat import Chat

LENGTH = 128       # tokens in a row
SEED = 1_000_000   # the first seed of documents that no model here was pretrained on
AT_ONCE = 32       # documents that are made, and rows that are computed, together


def held_out(chat: Chat, rows: int, seed: int) -> list[list[int]]:
    """Rows of tokens from the pretraining corpus, documents one after another, as in pretraining: of another
    seed, so that the documents are new."""
    tokens: list[int] = []
    at = 0
    while len(tokens) < rows * LENGTH:
        for doc in corpus.documents(SEED + seed, at, AT_ONCE):
            tokens += (chat.document(doc)[0] if isinstance(doc, str)
                       else chat.encode(chat.text_of(doc, reply=False)))
        at += AT_ONCE
    return [tokens[i * LENGTH: (i + 1) * LENGTH] for i in range(rows)]


@torch.no_grad()
def nats(model, rows: Sequence[Sequence[int]], device: str = "cpu") -> list[float]:
    """Of each row the mean of -log p over its tokens but the first; the perplexity of all is the exponential
    of their mean."""
    found: list[float] = []
    for start in range(0, len(rows), AT_ONCE):
        tokens = torch.tensor(rows[start: start + AT_ONCE], device=device)
        mask = torch.ones_like(tokens, dtype=torch.bool)
        mask[:, 0] = False
        logp, _ = model.logp(tokens, mask)
        found += (-logp.float().sum(1) / (tokens.shape[1] - 1)).tolist()
    return found

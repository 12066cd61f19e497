"""Conversations -> Batch."""

from __future__ import annotations

from collections.abc import Sequence

from postgrad.batches.lengths import Row, TokenLimit
from postgrad.batches.shuffled import ShuffledBatches, assemble
from postgrad.records import Batch, Conversation


class ConversationBatches(ShuffledBatches):
    """Conversations -> Batch: the assistant's tokens are trained."""

    def __init__(self, conversations: Sequence[Conversation], chat, method, *, per_step: int, steps: int,
                 seed: int, max_tokens: int, truncate: str = "refuse", device="cpu"):
        self.limit = TokenLimit(max_tokens, truncate)
        coded = [(c.id, *self.limit.fit(c.place, [code_conversation(c, chat)])[0]) for c in conversations]
        self.limit.settle()
        super().__init__(coded, per_step=per_step, steps=steps, seed=seed, device=device)
        self.method = method

    def batch(self, coded: Sequence[tuple]) -> Batch:
        ids, tokens, masks = zip(*sorted(coded, key=lambda row: len(row[1])), strict=True)
        columns = assemble(ids, tokens, masks)
        weight = self.method.weigh(columns["mask"], columns["mask"].shape[1])
        facts = {"tokens": float(columns["lengths"].sum())}
        return Batch(**columns, weight=weight, facts=facts).to(self.device)


def code_conversation(made: Conversation, chat) -> Row:
    tokens, mask = chat.conversation(made.messages)
    if not any(mask):
        raise ValueError(f"{made.place}: the template gives the assistant's turn no tokens, so nothing would "
                         "be learned.")
    return tokens, mask

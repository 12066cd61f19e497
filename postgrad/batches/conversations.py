"""Conversations -> Batch."""

from __future__ import annotations

from collections.abc import Sequence

from postgrad.batches.shuffled import ShuffledBatches, assemble
from postgrad.records import Batch, Conversation


class ConversationBatches(ShuffledBatches):
    """Conversations -> Batch: the assistant's tokens are trained."""

    def __init__(self, conversations: Sequence[Conversation], chat, method, *, per_step: int, steps: int,
                 seed: int, max_tokens: int, device="cpu"):
        coded = [(c.id, *chat.conversation(c.messages)) for c in conversations]
        for name, tokens, mask in coded:
            if len(tokens) > max_tokens:
                raise ValueError(f"conversation {name} has {len(tokens)} tokens, over the model's "
                                 f"{max_tokens}: shorten it or leave it out.")
            if not any(mask):
                raise ValueError(f"conversation {name}: the template gives the assistant's turn no tokens, "
                                 "so nothing would be learned.")
        super().__init__(coded, per_step=per_step, steps=steps, seed=seed, device=device)
        self.method = method

    def batch(self, coded: Sequence[tuple]) -> Batch:
        ids, tokens, masks = zip(*sorted(coded, key=lambda row: len(row[1])), strict=True)
        columns = assemble(ids, tokens, masks)
        weight = self.method.weigh(columns["mask"], columns["mask"].shape[1])
        facts = {"tokens": float(columns["lengths"].sum())}
        return Batch(**columns, weight=weight, facts=facts).to(self.device)

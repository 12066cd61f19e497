"""Conversations -> Batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from postgrad.batches.deck import Deck, assemble
from postgrad.records import Batch, Conversation


class ConversationBatches:
    """Conversations -> Batch: the assistant's tokens are trained."""

    def __init__(self, conversations: Sequence[Conversation], chat, method, *, rows_per_step: int, steps: int, seed: int,
                 room: int, device="cpu"):
        self.rows, self.steps, self.step, self.device, self.method = rows_per_step, steps, 0, device, method
        coded = [(c.id, *chat.conversation(c.messages)) for c in conversations]
        for name, tokens, mask in coded:
            if len(tokens) > room:
                raise ValueError(f"conversation {name} has {len(tokens)} tokens, over the model's {room}: "
                                 "shorten it or leave it out.")
            if not any(mask):
                raise ValueError(f"conversation {name}: the template gives the assistant's turn no tokens, "
                                 "so nothing would be learned.")
        self.deck = Deck(coded, seed)

    def __iter__(self) -> Iterator[Batch]:
        while self.step < self.steps:
            self.step += 1
            ids, tokens, masks = zip(*sorted(self.deck.take(self.rows), key=lambda row: len(row[1])), strict=True)
            columns = assemble(ids, tokens, masks)
            weight = self.method.weigh(columns["mask"], columns["mask"].shape[1])
            facts = {"tokens": float(columns["lengths"].sum())}
            yield Batch(**columns, weight=weight, facts=facts).to(self.device)

    def state(self) -> dict:
        return {"step": self.step, "at": self.deck.at}

    def restore(self, state: dict) -> None:
        self.step, self.deck.at = state["step"], state["at"]

"""Conversations -> Batch."""

from __future__ import annotations

from collections.abc import Sequence

from postgrad.records import Batch, Conversation
from postgrad.training.batches.lengths import TokenLimit, TokenRow
from postgrad.training.batches.shuffled import ShuffledBatches, padded_columns


class ConversationBatches(ShuffledBatches):
    """Conversations -> Batch: the assistant's tokens are trained, of all its turns or of the last.

    shares: of several sources, each a sequence of conversations.
    """

    def __init__(self, conversations: Sequence, chat, method, *, per_step: int, steps: int, seed: int,
                 max_tokens: int, truncate: str = "refuse", device="cpu", last: bool = False,
                 shares: Sequence[float] = ()):
        self.limit = TokenLimit(max_tokens, truncate)

        def coded(rows: Sequence[Conversation]) -> list[tuple]:
            return [(c.id, *self.limit.fit(c.place, [encode_conversation(c, chat, last)])[0]) for c in rows]

        items = [coded(rows) for rows in conversations] if shares else coded(conversations)
        self.limit.settle()
        super().__init__(items, per_step=per_step, steps=steps, seed=seed, device=device, shares=shares)
        self.method = method
        lengths = [len(tokens) for rows in (items if shares else [items]) for _, tokens, _ in rows]
        self.tokens = per_step * sum(lengths) // len(lengths)  # of a step, about

    def batch(self, coded: Sequence[tuple]) -> Batch:
        ids, tokens, masks = zip(*sorted(coded, key=lambda row: len(row[1])), strict=True)
        columns = padded_columns(ids, tokens, masks)
        weight = self.method.weigh(columns["mask"], columns["mask"].shape[1])
        facts = {"tokens": float(columns["lengths"].sum())}
        return Batch(**columns, weight=weight, facts=facts).to(self.device)


def encode_conversation(made: Conversation, chat, last: bool = False) -> TokenRow:
    tokens, mask = chat.conversation(made.messages, last=last, tools=made.tools)
    if not any(mask):
        raise ValueError(f"{made.place}: the template gives the assistant's turn no tokens, so nothing would "
                         "be learned.")
    return tokens, mask

"""A decoder with one number per token: a critic's value, or a reward model's score."""

from __future__ import annotations

from torch import Tensor, nn

from postgrad.maths.logprob import align
from postgrad.models.decoder import Config, Decoder


class ScalarModel(nn.Module):
    """A decoder body and a linear head to one number.

    The head starts at zero: a new critic values every state at 0, a new reward model scores every answer 0.
    head: what the number was trained to be, `reward` and `outcome` (of a whole answer) or `process` (after each step).
    """

    def __init__(self, body: Decoder, head: str = "reward"):
        super().__init__()
        self.body, self.head = body, head
        self.score_head = nn.Linear(body.config.hidden_size, 1, bias=False).to(body.head)
        nn.init.zeros_(self.score_head.weight)

    @property
    def config(self) -> Config:
        return self.body.config

    def value(self, tokens: Tensor) -> Tensor:  # [B, T] -> [B, T]
        """Column t: the value of the state in which token t is chosen, so read at token t-1."""
        return align(self.score_head(self.body.hidden(tokens)).squeeze(-1))

    def token_scores(self, tokens: Tensor) -> Tensor:  # [B, T] -> [B, T]
        """Column t: the score of the answer as far as token t, read at token t. Its last column is `score`."""
        return self.score_head(self.body.hidden(tokens)).squeeze(-1)

    def score(self, tokens: Tensor, lengths: Tensor) -> Tensor:  # [B, T], [B] -> [B]
        """The score of a whole answer, read at its last token."""
        last = self.body.hidden(tokens)[range(len(tokens)), lengths - 1]
        return self.score_head(last).squeeze(-1)

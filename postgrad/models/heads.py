"""A decoder with a scalar head: a critic's values, or a reward model's scores."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from postgrad.maths.logprob import align
from postgrad.maths.packing import Packed, pack, take_rows
from postgrad.models.families import Config


class ScalarModel(nn.Module):
    """A body (a decoder, with an adapter or without) and one linear head, or an ensemble of several.

    One head starts at zero: a new critic values every state at 0. Several start at random, or they would stay
    equal. head: what it is trained for, `reward`, `outcome` (of the answer) or `process` (of each step).
    """

    def __init__(self, body: Any, heads: int = 1, generator: torch.Generator | None = None,
                 head: str = "reward"):
        super().__init__()
        self.body, self.head = body, head
        self.score_head = nn.Linear(body.config.hidden_size, heads, bias=False).to(body.head)
        start = torch.zeros(heads, body.config.hidden_size)
        if heads > 1:
            start.normal_(0.0, body.config.hidden_size**-0.5,
                          generator=generator or torch.Generator().manual_seed(0))
        self.score_head.weight.data.copy_(start)

    @property
    def config(self) -> Config:
        config: Config = self.body.config
        return config

    @property
    def heads(self) -> int:
        return self.score_head.out_features

    def value(self, tokens: Tensor, packed: Packed | None = None) -> Tensor:  # [B, T] -> [B, T]
        """Column t: the value of the state in which token t is chosen, so read at token t-1."""
        return align(self.token_scores(tokens, packed))

    def scores(self, tokens: Tensor, lengths: Tensor,
               packed: Packed | None = None) -> Tensor:  # [B, T], [B] -> [B, K]
        """Each head's score of the answer, at its last token."""
        packed = packed or pack(lengths, tokens).to(tokens.device)
        states, rows = self.body.states(tokens, packed), torch.arange(len(tokens), device=tokens.device)
        return self._read(take_rows(states, packed.home[rows, lengths - 1]))

    def token_scores(self, tokens: Tensor, packed: Packed | None = None) -> Tensor:  # [B, T] -> [B, T]
        """Column t: the score of the answer up to token t, read at token t; the last column is `score`."""
        packed = packed or pack(torch.full((len(tokens),), tokens.shape[1])).to(tokens.device)
        return take_rows(self._read(self.body.states(tokens, packed)).mean(-1), packed.home)

    def _read(self, states: Tensor) -> Tensor:  # [N, D] -> [N, K], in the head's own precision
        scores: Tensor = self.score_head(states.to(self.score_head.weight.dtype))
        return scores

    def score(self, tokens: Tensor, lengths: Tensor,
              packed: Packed | None = None) -> Tensor:  # [B, T], [B] -> [B]
        return self.scores(tokens, lengths, packed).mean(-1)

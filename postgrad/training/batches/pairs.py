"""Pairs -> Batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from postgrad.maths.noise import poisson, seed_of, uniform
from postgrad.records import Batch, Pair
from postgrad.training.batches.lengths import TokenLimit
from postgrad.training.batches.shuffled import ShuffledBatches, model_logp, padded_columns
from postgrad.training.distributed.virtual_ranks import SINGLE_RANK, VirtualRanks

SIDES = ("chosen", "rejected")


class PairBatches(ShuffledBatches):
    """Pairs -> Batch: chosen and rejected in alternate rows, one weight per pair."""

    def __init__(self, pairs: Sequence[Pair], chat, method, models, *, per_step: int, steps: int, seed: int,
                 max_tokens: int, tokens_per_pass: int, truncate: str = "refuse", device="cpu",
                 virtual_ranks: VirtualRanks = SINGLE_RANK):
        self.limit = TokenLimit(max_tokens, truncate)
        coded = [encode_pair(pair, chat, self.limit) for pair in pairs]
        self.limit.settle()
        super().__init__(coded, per_step=per_step, steps=steps, seed=seed, device=device)
        self.method = method
        self.models = models
        self.tokens_per_pass, self.virtual_ranks = tokens_per_pass, virtual_ranks
        self.seed = seed
        self.heads = models.policy.heads if method.score is None else 1
        if method.needs_reference and models.reference is None:
            raise ValueError(f"{method.name} compares with a reference model, and there is none: give "
                             "models.reference.")

    def batch(self, coded: Sequence[tuple]) -> Batch:
        """The rows of these pairs, shortest first, with the reference's log-probs where the
        method has a reference."""
        coded = sorted(coded, key=lambda pair: max(len(tokens) for _, tokens, _ in pair[1]))
        ids, tokens, masks = zip(*(row for _, rows in coded for row in rows), strict=True)
        weight = torch.tensor([pair.weight for pair, _ in coded])
        batch = Batch(**padded_columns(ids, tokens, masks), rows_per_unit=2, weight=weight / weight.sum(),
                      margin=torch.tensor([pair.margin for pair, _ in coded]),
                      votes=self.votes([pair.id for pair, _ in coded])).to(self.device)
        if not self.method.needs_reference:
            return replace(batch, facts={"tokens": float(batch.lengths.sum())})
        ref, _ = model_logp(self.models.reference, batch, self.tokens_per_pass,
                            virtual_ranks=self.virtual_ranks)
        return replace(batch, ref_logp=ref, facts={"tokens": float(batch.lengths.sum())})

    def votes(self, ids: Sequence[str]) -> Tensor | None:  # [U, K]
        """Each head of an ensemble learns from its own bootstrap of the pairs,
        so that the heads differ where data is thin."""
        if self.heads == 1:
            return None
        names = torch.tensor([seed_of(name) for name in ids])[:, None].expand(-1, self.heads)
        return poisson(uniform(names, torch.tensor([seed_of(self.seed, "head", k)
                                                    for k in range(self.heads)]))).float()


def encode_pair(pair: Pair, chat, limit: TokenLimit) -> tuple[Pair, list[tuple[str, list[int], list[bool]]]]:
    """A pair as its two rows of tokens and mask."""
    rows = [chat.answer(pair.messages, getattr(pair, side)) for side in SIDES]
    for side, (_, mask) in zip(SIDES, rows, strict=True):
        if not any(mask):
            raise ValueError(f"{pair.place}: its {side} answer is empty.")
    fitted = limit.fit(pair.place, rows)
    return pair, [(f"{pair.id}/{side}", *row) for side, row in zip(SIDES, fitted, strict=True)]

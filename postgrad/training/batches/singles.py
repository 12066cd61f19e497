"""Labelled singles -> Batch: answers that are wanted or not, and KTO's baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from postgrad.maths.preference import kto_baseline
from postgrad.records import Batch, Conversation
from postgrad.training.batches.columns import further_columns
from postgrad.training.batches.lengths import TokenLimit, TokenRow
from postgrad.training.batches.shuffled import ShuffledBatches, model_logp, padded_columns
from postgrad.training.distributed.virtual_ranks import SINGLE_RANK, VirtualRanks


class SingleBatches(ShuffledBatches):
    """Conversations with a label -> Batch.

    The last message is the answer; what comes before is the prompt.
    """

    def __init__(self, singles: Sequence[Conversation], chat, method, models, *, per_step: int, steps: int,
                 seed: int, max_tokens: int, tokens_per_pass: int, truncate: str = "refuse", device="cpu",
                 virtual_ranks: VirtualRanks = SINGLE_RANK):
        if per_step < 2:
            raise ValueError(f"{method.name} compares with answers to other prompts: pairs.per_step is "
                             f"{per_step}, set it to 2 or more.")
        self.limit = TokenLimit(max_tokens, truncate)
        coded = [(single.id, *self.limit.fit(single.place, [encode_single(single, chat)])[0], single.label)
                 for single in singles]
        self.limit.settle()
        super().__init__(coded, per_step=per_step, steps=steps, seed=seed, device=device)
        self.max_tokens = max_tokens
        self.method = method
        self.models = models
        self.tokens_per_pass, self.virtual_ranks = tokens_per_pass, virtual_ranks

    def batch(self, coded: Sequence[tuple]) -> Batch:
        """The rows, shortest first, with the reference's log-probs and the step's baseline."""
        coded = sorted(coded, key=lambda row: len(row[1]))
        ids, tokens, masks, labels = zip(*coded, strict=True)
        batch = Batch(**padded_columns(ids, tokens, masks), weight=torch.full((len(ids),), 1 / len(ids)),
                      label=torch.tensor([1.0 if label else -1.0 for label in labels])).to(self.device)
        return replace(batch, ref_logp=self.logp(self.models.reference, batch),
                       baseline=self.baseline(tokens, masks).expand(len(ids)),
                       facts={"tokens": float(batch.lengths.sum())})

    def baseline(self, tokens: Sequence[list[int]], masks: Sequence[list[bool]]) -> Tensor:  # []
        """The mean log-ratio of each prompt with the NEXT row's answer: how far the policy is from the
        reference anyway."""
        mixed, sampled = [], []
        for i, row in enumerate(tokens):
            after = (i + 1) % len(tokens)
            at, start = masks[i].index(True), masks[after].index(True)
            mixed.append((row[:at] + tokens[after][start:])[: self.max_tokens])
            sampled.append(([False] * at + masks[after][start:])[: self.max_tokens])
        batch = Batch(**padded_columns([str(i) for i in range(len(mixed))], mixed, sampled),
                      weight=torch.ones(len(mixed)))
        batch = batch.to(self.device)
        logp, ref_logp = (self.logp(m, batch) for m in (self.models.policy, self.models.reference))
        columns = further_columns(replace(batch, ref_logp=ref_logp), self.method.columns_of("score"))
        score = [self.method.score(x, batch.mask, **columns) for x in (logp, ref_logp)]
        return kto_baseline(score[0] - score[1])

    def logp(self, model, batch: Batch) -> Tensor:  # [B, T]
        return model_logp(model, batch, self.tokens_per_pass, virtual_ranks=self.virtual_ranks)[0]


def encode_single(single: Conversation, chat) -> TokenRow:
    *before, last = single.messages
    if last["role"] != "assistant" or single.label is None:
        raise ValueError(f"{single.place}: expected an assistant's message at the end and a label, "
                         "true or false.")
    tokens, mask = chat.answer(before, last["content"])
    if not any(mask):
        raise ValueError(f"{single.place}: the answer is empty.")
    return tokens, mask

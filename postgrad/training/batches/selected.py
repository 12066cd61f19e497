"""Rollouts -> the best against the worst as pairs (online DPO), or the best as texts to imitate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from postgrad.maths.select import best_and_worst
from postgrad.methods import Preference, Supervised
from postgrad.records import Batch, Prompt, Scored
from postgrad.training.batches.checkpointing import pick_rows
from postgrad.training.batches.episodes import episode_rows, join_episodes
from postgrad.training.batches.rollouts import MethodT, RolloutSource, scored_batch
from postgrad.training.batches.shuffled import model_logp
from postgrad.training.stats import Deferred


class SelectedBatches(RolloutSource[MethodT]):
    """One batch from each collection; rows that are not selected are counted, not trained on."""

    def __init__(self, prompts: Sequence[Prompt], **common: Any):
        super().__init__(prompts, **common)
        if self.settings.group_size < 2:
            raise ValueError(f"{self.method.name} chooses among the samples of a group: rollouts.group_size "
                             f"is {self.settings.group_size}, set it to 2 or more.")

    def batches_of(self, groups: list[list[Scored]], facts: dict[str, float | Deferred]) -> list[Batch]:
        rows = [s for group in groups for s in group]
        made = self.choose(scored_batch(rows, self.settings.group_size).to(self.device), rows)
        facts |= {**made.facts, "tokens": float(made.lengths.sum())}
        return [replace(made, facts=facts)]

    def choose(self, batch: Batch, rows: Sequence[Scored]) -> Batch:
        raise NotImplementedError


class SelectedPairs(SelectedBatches[Preference]):
    """The best and the worst of each group as a pair; none of a group with equal scores or a failed
    verdict."""

    def choose(self, batch: Batch, rows: Sequence[Scored]) -> Batch:
        score = torch.tensor([s.verdict.score for s in rows])
        best, worst = best_and_worst(score, self.settings.group_size)
        trained = join_episodes(batch.mask, batch.episode).any(1)  # [E]
        sound = trained.view(-1, self.settings.group_size).all(1).cpu()
        kept = [(b, w) for b, w in zip(best.tolist(), worst.tolist(), strict=True)
                if sound[b // self.settings.group_size]]
        index = [i for pair in kept or [(0, 1)] for i in pair]
        # of an episode of several rows the last is compared
        made = pick_rows(batch, [episode_rows(batch, [i])[-1] for i in index])
        weight = torch.full((len(index) // 2,), 1 / len(kept) if kept else 0.0, device=batch.tokens.device)
        ref = None
        # At temperature 1, as the objective reads the policy, whatever was sampled at.
        if self.method.needs_reference and self.models.reference:
            ref, _ = model_logp(self.models.reference, made, self.tokens_per_pass,
                                virtual_ranks=self.virtual_ranks)
        return replace(made, rows_per_unit=2, weight=weight, ref_logp=ref, margin=torch.zeros_like(weight),
                       facts={"chosen_share": 2 * len(kept) / len(rows)})


class SelectedTexts(SelectedBatches[Supervised]):
    """Imitates the rows that the method's `select` keeps, and logs the KL bound of best-of-n. best: the best
    score there is; None where it is unknown, as of a reward model."""

    def __init__(self, prompts: Sequence[Prompt], *, best: float | None = None, **common: Any):
        super().__init__(prompts, **common)
        if "best" in self.method.wanted and best is None:
            raise ValueError(f"{self.method.name} keeps replies by their share of the best score there is, "
                             "and a reward model's has no best: train best_of_n, which keeps the best of "
                             "each prompt.")
        self.best = best

    def choose(self, batch: Batch, rows: Sequence[Scored]) -> Batch:
        score = torch.tensor([s.verdict.score if s.verdict.given else -math.inf for s in rows])
        assert self.method.select is not None, f"{self.method.name} says which rollouts it keeps"
        lengths = torch.tensor([len(s.rollout.sampled) for s in rows])
        columns = {"best": self.best, "lengths": lengths}
        chosen = self.method.select(score, self.settings.group_size,
                                    **{name: columns[name] for name in self.method.columns_of("select")})
        chosen = chosen & score.isfinite()
        kept = chosen.nonzero().squeeze(1).tolist()
        made = pick_rows(batch, sorted(episode_rows(batch, kept or [0]), key=lambda i: int(batch.lengths[i])))
        weight = self.method.weigh(made.mask, self.settings.max_rollout_tokens)
        facts = {"chosen_share": len(kept) / len(rows)}
        if self.method.kl_bound:
            facts["kl_bound"] = self.method.kl_bound(self.settings.group_size)
        return replace(made, weight=weight if kept else torch.zeros_like(weight), facts=facts)

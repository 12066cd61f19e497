"""Rollouts -> Batch: credit and weigh, for the policy rows of the table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from postgrad.batches.collect import Collector, pick
from postgrad.batches.deck import seen
from postgrad.batches.mix import Mix
from postgrad.maths import credit
from postgrad.maths.kl import adaptive_coefficient
from postgrad.maths.noise import seed_of
from postgrad.records import Batch, Scored


class RolloutBatches(Collector):
    """Prompt -> rollout -> verdict -> credit -> weight. Epochs and minibatches live here, and so does the KL coefficient.

    target: the KL per reply, in nats, to which the coefficient is steered, within about `horizon` rollouts; None: it stands.
    mix: texts that are imitated beside the rollouts (PPO-ptx).
    """

    def __init__(self, prompts, *, target: float | None = None, horizon: int = 10_000, mix: Mix | None = None, **line):
        super().__init__(prompts, **line)
        method, settings = self.method, self.settings
        if settings.group_size < 2 and not method.critic and method.name != "reinforce":
            raise ValueError(f"{method.name} compares the samples of a group: rollouts.group_size is {settings.group_size}, "
                             "set it to 2 or more.")
        if method.critic and self.models.critic is None:
            raise ValueError(f"{method.name} needs a critic model and there is none: give Models(critic=...).")
        if target is not None and not method.kl_in_reward > 0:
            raise ValueError(f"an adaptive KL coefficient needs a method with the KL in its reward and a coefficient to start "
                             f"from; {method.name} has {method.kl_in_reward}: use ppo, reinforce or rloo.")
        self.kl, self.target, self.horizon, self.mix = method.kl_in_reward, target, horizon, mix

    def minibatches(self, groups: list[list[Scored]], facts: dict[str, float]) -> list[Batch]:
        """The rollouts as batches, one for each optimizer step: weights are re-derived for each."""
        began = time.perf_counter()
        batch, more = self.columns([s for group in groups for s in group])
        facts |= more | {"time/score": time.perf_counter() - began, "tokens": float(batch.lengths.sum())}
        size = len(groups) // self.settings.minibatches
        out = []
        for epoch in range(self.settings.epochs):
            order = range(len(groups))
            if self.settings.minibatches > 1:
                shuffler = torch.Generator().manual_seed(seed_of(self.seed, "minibatch", self.step, epoch))
                order = torch.randperm(len(groups), generator=shuffler).tolist()
            for i in range(self.settings.minibatches):
                rows = [g * self.settings.group_size + k for g in order[i * size: (i + 1) * size]
                        for k in range(self.settings.group_size)]
                part = replace(self.weighed(batch, rows), facts=facts)
                out.append(self.mix.into(part) if self.mix else part)
        return out

    def columns(self, rows: Sequence[Scored]) -> tuple[Batch, dict[str, float]]:
        """All rollouts of a collection with their advantages. Credit looks at whole groups, so it comes before any split."""
        batch, facts = self.sampled(rows), {}
        several = self.settings.epochs * self.settings.minibatches > 1
        old = self.logp(self.models.policy, batch) if several or self.method.kl_in_reward > 0 else None
        ref = self.logp(self.models.reference, batch) if self.method.reference else None
        value = self.values(batch) if self.method.critic else None
        reward = self.rewards(rows, batch.mask)
        if self.method.kl_in_reward > 0:
            reward = credit.kl_penalty(reward, old, ref, batch.mask, self.kl)
            facts = self.steered(old, ref, batch)
        adv = self.method.credit(reward, batch.mask, self.settings.group_size, value)
        returns = adv + value if self.method.critic else None
        if self.method.whiten:
            adv = credit.whiten(adv, batch.mask)
        return replace(batch, adv=adv, old_logp=old if several else None, ref_logp=ref, value=value, returns=returns), facts

    def values(self, batch: Batch) -> Tensor:  # [B, T]
        return seen(lambda b: self.models.critic.value(b.tokens, packed=b.packed), batch, self.tokens_per_pass)

    def steered(self, old: Tensor, ref: Tensor, batch: Batch) -> dict[str, float]:
        """The KL of the collection and the coefficient it was priced with; the next collection's is set here."""
        observed = float(torch.where(batch.mask, old - ref, 0.0).sum() / batch.mask.any(1).sum().clamp(min=1))
        facts = {"kl_coefficient": self.kl, "kl_reply": observed}
        if self.target is not None:
            self.kl = adaptive_coefficient(self.kl, observed, self.target, self.horizon, len(batch))
        return facts

    def rewards(self, rows: Sequence[Scored], mask: Tensor) -> Tensor:  # [B, T]
        """The score on the last token; where a verdict has spread it over the tokens, only what was added to it since."""
        score, dense = self.scores(rows), torch.zeros(mask.shape)
        for i, s in enumerate(rows):
            if s.verdict.per_token is not None:
                assert len(s.verdict.per_token) == len(s.rollout.tokens), "a reward for each sampled token"
                at = len(s.rollout.prompt_tokens)
                dense[i, at: at + len(s.rollout.tokens)] = torch.tensor(s.verdict.per_token, dtype=torch.float32)
                score[i] -= s.verdict.score
        return credit.place_reward(score.to(self.device), mask) + torch.where(mask, dense.to(self.device), 0.0)

    def scores(self, rows: Sequence[Scored]) -> Tensor:  # [B]
        """One score a row, DAPO's length penalty included. Rows whose verdict failed are masked, so credit passes over them."""
        score = torch.tensor([s.verdict.score for s in rows], dtype=torch.float32)
        if self.method.overlong:
            lengths = torch.tensor([len(s.rollout.tokens) for s in rows])
            score = score + credit.overlong(lengths, self.settings.max_new_tokens, max(1, self.settings.max_new_tokens // 5))
        return score

    def weighed(self, batch: Batch, rows: list[int]) -> Batch:
        """These rows, group by group (so that a prompt is computed once), with the weights of their own step."""
        part = pick(batch, rows)
        return replace(part, weight=self.method.weigh(part.mask, self.settings.max_new_tokens))

    def state(self) -> dict:
        return super().state() | {"kl": self.kl, "mix": self.mix.deck.at if self.mix else 0}

    def restore(self, state: dict) -> None:
        super().restore(state)
        self.kl = state["kl"]
        if self.mix:
            self.mix.deck.at = state["mix"]

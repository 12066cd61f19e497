"""Rollouts -> Batch: credit and weigh, for the policy rows of the table."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from postgrad.maths.kl import adaptive_coefficient
from postgrad.maths.packing import to_cpu
from postgrad.methods import Policy
from postgrad.records import Batch, Prompt, Scored
from postgrad.system.throughput import repeatable
from postgrad.training.batches.collect import RolloutSource, scored_batch
from postgrad.training.batches.columns import Show, credit_columns, minibatches, token_rewards
from postgrad.training.batches.mix import PtxMix
from postgrad.training.stats import Deferred


class RolloutBatches(RolloutSource[Policy]):
    """Prompt -> rollout -> verdict -> credit -> weight.

    The row's epochs and minibatches are made here, and the KL coefficient is kept.

    target: the KL per reply, in nats, to which the coefficient is steered, by at most a fifth of `gain` a
    collection; None: it stands. mix: texts that are imitated beside the rollouts (PPO-ptx).
    show: the tokens that the teacher reads in place of a prompt's, for rows whose teacher is shown more.
    """

    def __init__(self, prompts: Sequence[Prompt], *, target: float | None = None, gain: float = 0.1,
                 mix: PtxMix | None = None, show: Show | None = None, **line):
        super().__init__(prompts, **line)
        method, group_size = self.method, self.settings.group_size
        if group_size < 2 and method.compares:
            raise ValueError(f"{method.name} compares the samples of a group: rollouts.group_size is "
                             f"{group_size}, set it to 2 or more.")
        if method.critic and self.models.critic is None:
            raise ValueError(f"{method.name} needs a critic model and there is none: give "
                             "Models(critic=...).")
        if method.teacher and self.models.teacher is None:
            raise ValueError(f"{method.name} needs a teacher and there is none: give Models(teacher=...).")
        if method.shown and show is None:
            raise ValueError(f"the teacher of {method.name} is shown a demonstration, and nobody says which: "
                             "give show=...")
        if target is not None and not method.kl_in_reward > 0:
            raise ValueError("an adaptive KL coefficient needs a method with the KL in its reward and a "
                             f"coefficient to start from; {method.name} has {method.kl_in_reward}: use ppo, "
                             "reinforce or rloo.")
        self.kl = method.kl_in_reward
        self.target = target
        self.gain = gain
        self.mix = mix
        self.show = show if method.shown else None

    def batches_of(self, groups: list[list[Scored]], facts: dict[str, float | Deferred]) -> list[Batch]:
        """The rollouts as batches, one for each optimizer step: weights are re-derived for each. What it took
        to draw them is told with the first."""
        began = time.perf_counter()
        s = self.settings
        rows = [scored for group in groups for scored in group]
        batch = scored_batch(rows, s.group_size).to(self.device)
        reward = token_rewards(rows, batch.mask, self.method, s.max_rollout_tokens, batch.episode)
        batch = credit_columns(batch, reward, self.method, self.models, group_size=s.group_size, kl=self.kl,
                        tokens_per_pass=self.tokens_per_pass, temperature=s.temperature,
                        several=self.method.updates(len(groups)) > 1, show=self.show,
                        virtual_ranks=self.virtual_ranks)
        facts |= self.steered(batch.facts["kl_reply"]) if self.method.kl_in_reward > 0 else {}
        parts = minibatches(batch, self.method, group_size=s.group_size, budget=s.max_rollout_tokens,
                            seed=self.seed, step=self.step)
        later = {name: fact for name, fact in repeatable(facts).items() if name != "sampled"}
        facts |= {"time/score": time.perf_counter() - began}
        parts = [replace(part, facts=(later if i else facts) | {"tokens": float(to_cpu(part.lengths).sum())})
                 for i, part in enumerate(parts)]
        return [self.mix.into(part) for part in parts] if self.mix else parts

    def after(self, row: Mapping[str, float]) -> None:
        """Told what an update did: past the row's kl_stop the rest of the collection is left."""
        if self.method.kl_stop and row["approx_kl"] > self.method.kl_stop:
            self.waiting.clear()

    def steered(self, observed: float) -> dict[str, float]:
        """The KL of the collection and the coefficient it was priced with;
        the next collection's is set here."""
        facts = {"kl_coefficient": self.kl, "kl_reply": observed}
        if self.target is not None:
            self.kl = adaptive_coefficient(self.kl, observed, self.target, self.gain)
        return facts

    def state(self) -> dict:
        return super().state() | {"kl": self.kl, "mix": self.mix.texts.at if self.mix else 0}

    def restore(self, state: dict) -> None:
        super().restore(state)
        self.kl = state["kl"]
        if self.mix:
            self.mix.texts.at = state["mix"]

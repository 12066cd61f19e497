"""Rollouts -> Batch: credit and weigh, for the policy rows of the table."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from postgrad.batches.collect import RolloutLine, sampled
from postgrad.batches.columns import columns, minibatches, rewards
from postgrad.batches.mix import Mix
from postgrad.maths.kl import adaptive_coefficient
from postgrad.methods import Policy
from postgrad.records import Batch, Prompt, Scored


class RolloutBatches(RolloutLine[Policy]):
    """Prompt -> rollout -> verdict -> credit -> weight.

    Epochs and minibatches live here, and so does the KL coefficient.

    target: the KL per reply, in nats, to which the coefficient is steered,
        within about `horizon` rollouts; None: it
    stands. mix: texts that are imitated beside the rollouts (PPO-ptx).
    """

    def __init__(self, prompts: Sequence[Prompt], *, target: float | None = None, horizon: int = 10_000,
                 mix: Mix | None = None, **line):
        super().__init__(prompts, **line)
        method, group_size = self.method, self.settings.group_size
        if group_size < 2 and method.compares:
            raise ValueError(f"{method.name} compares the samples of a group: rollouts.group_size is "
                             f"{group_size}, set it to 2 or more.")
        if method.critic and self.models.critic is None:
            raise ValueError(f"{method.name} needs a critic model and there is none: give "
                             "Models(critic=...).")
        if target is not None and not method.kl_in_reward > 0:
            raise ValueError("an adaptive KL coefficient needs a method with the KL in its reward and a "
                             f"coefficient to start from; {method.name} has {method.kl_in_reward}: use ppo, "
                             "reinforce or rloo.")
        self.kl = method.kl_in_reward
        self.target = target
        self.horizon = horizon
        self.mix = mix

    def batches_of(self, groups: list[list[Scored]], facts: dict[str, float]) -> list[Batch]:
        """The rollouts as batches, one for each optimizer step: weights are re-derived for each."""
        began = time.perf_counter()
        s = self.settings
        rows = [scored for group in groups for scored in group]
        batch = sampled(rows, s.group_size).to(self.device)
        batch = columns(batch, rewards(rows, batch.mask, self.method, s.budget), self.method, self.models,
                        group_size=s.group_size, kl=self.kl, tokens_per_pass=self.tokens_per_pass,
                        temperature=s.temperature, several=s.updates > 1)
        facts |= self.steered(batch.facts["kl_reply"], len(batch)) if self.method.kl_in_reward > 0 else {}
        facts |= {"time/score": time.perf_counter() - began, "tokens": float(batch.lengths.sum())}
        parts = minibatches(batch, self.method, group_size=s.group_size, epochs=s.epochs, count=s.minibatches,
                            budget=s.budget, seed=self.seed, step=self.step)
        parts = [replace(part, facts=facts) for part in parts]
        return [self.mix.into(part) for part in parts] if self.mix else parts

    def steered(self, observed: float, rollouts: int) -> dict[str, float]:
        """The KL of the collection and the coefficient it was priced with;
        the next collection's is set here."""
        facts = {"kl_coefficient": self.kl, "kl_reply": observed}
        if self.target is not None:
            self.kl = adaptive_coefficient(self.kl, observed, self.target, self.horizon, rollouts)
        return facts

    def state(self) -> dict:
        return super().state() | {"kl": self.kl, "mix": self.mix.texts.at if self.mix else 0}

    def restore(self, state: dict) -> None:
        super().restore(state)
        self.kl = state["kl"]
        if self.mix:
            self.mix.texts.at = state["mix"]

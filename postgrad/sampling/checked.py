"""Checks the rollouts of a user's sampler before they are trained on."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from postgrad.models.chat import Chat
from postgrad.records import Prompt, Rollout, Sampler, Sampling
from postgrad.sampling.remote import SamplerFault, SpotCheck, check_reply, choose_spot_checks
from postgrad.sampling.sequences import FinishedSequence
from postgrad.sampling.token_sampler import TokenSampler


class CheckedSampler(TokenSampler):
    """policy_logp: the trainer's log-probs of rows, used where the sampler gives none (logp=()). spot_checks:
    rows to be compared with the trainer's log-probs, by the optimizer step of the weights. secret: the run's
    seed."""

    def __init__(self, sampler: Sampler, chat: Chat, *, positions: int, vocabulary: int,
                 policy_logp: Callable[[Sequence[SpotCheck]], list[list[float]]] | None = None,
                 secret: int = 0):
        super().__init__(chat)
        self.sampler, self.name = sampler, type(sampler).__name__
        self.model_positions, self.vocabulary, self.policy_logp = positions, vocabulary, policy_logp
        self.spot_checks: dict[int, list[SpotCheck]] = {}
        self.reported, self.weights_step, self.secret = False, 0, secret

    @property
    def positions(self) -> int:
        return self.model_positions

    def sample(self, prompts: Sequence[Prompt], n: int, sampling: Sampling, seed: int) -> list[list[Rollout]]:
        groups = self.sampler.sample(prompts, n, sampling, seed)
        try:
            if len(groups) != len(prompts) or any(len(group) != n for group in groups):
                raise ValueError(f"it returned groups of {sorted({len(group) for group in groups})}, "
                                 f"{len(groups)} of them, and {len(prompts)} groups of {n} were asked for")
            for prompt, group in zip(prompts, groups, strict=True):
                for rollout in group:
                    self.check_rollout(rollout, prompt, sampling)
        except (AttributeError, TypeError, ValueError) as error:
            raise SamplerFault(f"sampler {self.name}: {error}. Nothing of it is trained on.") from error
        with_logp = [rollout for group in groups for rollout in group if rollout.logp]
        if sampling.unfiltered and sampling.temperature:
            chosen = choose_spot_checks(with_logp, f"{self.secret} {self.weights_step}")
            self.spot_checks.setdefault(self.weights_step, []).extend(map(self.as_check, chosen))
        groups = [self.with_logp(group) for group in groups]
        if self.ended:
            for rollout in (rollout for group in groups for rollout in group):
                self.ended(rollout)
        return groups

    def generate(self, contexts: list[list[int]], n: int, seeds: Sequence[int], sampling: Sampling,
                 after: Sequence[FinishedSequence | None] | None = None) -> Iterable[list[FinishedSequence]]:
        raise ValueError(f"sampler {self.name} samples one reply to a prompt, and this task plays over "
                         "several turns: leave the sampler out.")

    def check_rollout(self, rollout: Rollout, prompt: Prompt, sampling: Sampling) -> None:
        if rollout.prompt.id != prompt.id:
            raise ValueError(f"a rollout is of prompt {rollout.prompt.id!r} in the group of {prompt.id!r}")
        tokens = [*rollout.prompt_tokens, *rollout.tokens]
        if not rollout.prompt_tokens or len(tokens) > self.positions:
            raise ValueError(f"a rollout has {len(rollout.prompt_tokens)} prompt tokens and {len(tokens)} in "
                             f"all, and 1 to {self.positions} have room")
        check_reply(list(rollout.tokens), list(rollout.logp) or [0.0] * len(rollout.tokens), self.chat.stop,
                    self.vocabulary, sampling, "stop" if rollout.finished else "length")

    def with_logp(self, group: list[Rollout]) -> list[Rollout]:
        """The rollouts with the policy's step, and with the trainer's log-probs where they have none."""
        without = [rollout for rollout in group if not rollout.logp]
        if without and self.policy_logp and not self.reported:
            self.reported = True
            print(f"postgrad: sampler {self.name} gives no log-probs: the trainer's own are taken, as if its "
                  "rows were on-policy", file=sys.stderr)
        wanted = [self.as_check(rollout) for rollout in without]
        logp = iter(self.policy_logp(wanted) if wanted and self.policy_logp else ())
        return [replace(r, policy_step=self.policy_step, logp=r.logp or tuple(next(logp, ()))) for r in group]

    def as_check(self, rollout: Rollout) -> SpotCheck:
        return SpotCheck(self.name, "", list(rollout.prompt_tokens), rollout.tokens, rollout.logp)

"""A judge for each prompt: those of some tasks by judges of their own, all others by one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from postgrad.records import Prompt, Rollout, Verdict
from postgrad.rewards.base import Judge

TASK = "task"  # where the prompt of a mixture names the task that it comes from


class PerTask:
    """judges: by the name of the task; otherwise: of all other prompts. task: the name of the task of prompts
    that name none.

    PerTask({"questions": reward_model}, otherwise=verifier, task="words")
    """

    def __init__(self, judges: Mapping[str, Judge], otherwise: Judge, task: str):
        self.judges, self.otherwise, self.task = judges, otherwise, task

    def of(self, prompt: Prompt) -> Judge:
        return self.judges.get(str(prompt.meta.get(TASK, self.task)), self.otherwise)

    def ahead(self, rollout: Rollout) -> None:
        """Told of a rollout that has ended while others are being sampled."""
        if begin := getattr(self.of(rollout.prompt), "ahead", None):
            begin(rollout)

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Verdict]:
        """Each judge is asked once, for all its rollouts; the verdicts come in the order of the rollouts."""
        found: dict[int, Verdict] = {}
        for judge in (*self.judges.values(), self.otherwise):
            mine = [i for i, rollout in enumerate(rollouts) if self.of(rollout.prompt) is judge]
            said = judge([rollouts[i] for i in mine]) if mine else ()
            found |= dict(zip(mine, said, strict=True))
        return [found[i] for i in range(len(rollouts))]

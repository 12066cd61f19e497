"""Reward models as the judge of rollouts: the proxy that stands in for what people want."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from postgrad.maths import ensemble
from postgrad.records import Rollout, Verdict, pad_rows


class ModelJudge:
    """Scores of models with `scores(tokens [B, T], lengths [B]) -> [B, K]`, on the tokens
    as they were sampled.

    Several models, or several heads, are one ensemble; `rule` says how their scores become one.
    """

    def __init__(self, models: Sequence, *, rule: str = "mean", device="cpu", rows_at_once: int = 128):
        self.models = models
        self.rule = ensemble.RULES[rule]
        self.device = device
        self.rows_at_once = rows_at_once

    @torch.no_grad()
    def __call__(self, rollouts: Sequence[Rollout]) -> list[Verdict]:
        out: list[Verdict] = []
        for at in range(0, len(rollouts), self.rows_at_once):
            rows = [[*r.prompt_tokens, *r.tokens] for r in rollouts[at: at + self.rows_at_once]]
            members = self.members(rows)
            spread = members.std(1, unbiased=False).tolist()
            for score, doubt in zip(self.rule(members).tolist(), spread, strict=True):
                parts = {"disagreement": doubt} if members.shape[1] > 1 else {}
                out.append(Verdict(score=score, reason=f"reward model: {score:+.3f}", parts=parts))
        return out

    def members(self, rows: list[list[int]]) -> Tensor:  # [B, K]
        lengths = torch.tensor([len(row) for row in rows], device=self.device)
        tokens = pad_rows(rows).to(self.device)
        return torch.cat([model.scores(tokens, lengths).float() for model in self.models], dim=1)

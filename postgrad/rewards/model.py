"""A reward model as the judge of rollouts: the proxy that stands in for what people want."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from postgrad.records import Rollout, Verdict, pad_rows


class ModelJudge:
    """Scores of a model with `score(tokens [B, T], lengths [B]) -> [B]`, on the tokens as they were sampled."""

    def __init__(self, model, *, device="cpu", rows_at_once: int = 128):
        self.model, self.device, self.rows_at_once = model, device, rows_at_once

    @torch.no_grad()
    def __call__(self, rollouts: Sequence[Rollout]) -> list[Verdict]:
        scores: list[float] = []
        for at in range(0, len(rollouts), self.rows_at_once):
            rows = [[*r.prompt_tokens, *r.tokens] for r in rollouts[at: at + self.rows_at_once]]
            lengths = torch.tensor([len(row) for row in rows], device=self.device)
            scores += self.model.score(pad_rows(rows).to(self.device), lengths).tolist()
        return [Verdict(score=score, reason=f"reward model: {score:+.3f}") for score in scores]

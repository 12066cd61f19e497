"""Reward models: learned scores of whole replies, and process models with a score after every step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from operator import mul
from typing import Protocol

import torch
from torch import Tensor

from postgrad.maths import ensemble
from postgrad.records import Reward, Rollout, Verdict, pad_rows

# (score so far, chance that all is right at this step) -> score so far
SO_FAR: dict[str, Callable[[float, float], float]] = {
    "min": min,                             # Wang et al. 2023, Math-Shepherd, 2312.08935
    "product": mul,                         # Lightman et al. 2023, 2305.20050
    # the last step alone: an outcome model that has learned from steps
    "last": lambda before, chance: chance,
}


class SequenceScorer(Protocol):
    def scores(self, tokens: Tensor, lengths: Tensor) -> Tensor: ...  # [B, T], [B] -> [B, K]


class TokenScorer(Protocol):
    def token_scores(self, tokens: Tensor) -> Tensor: ...  # [B, T] -> [B, T]


class TokenPlaces(Protocol):
    def places(self, tokens: Sequence[int], ends: Sequence[int]) -> Sequence[int]: ...


def in_blocks(rollouts: Sequence[Rollout], rows: int) -> Iterator[tuple[Sequence[Rollout], list[list[int]]]]:
    """Rollouts and their tokens, prompt and reply, in blocks of so many rows."""
    for at in range(0, len(rollouts), rows):
        block = rollouts[at: at + rows]
        yield block, [[*r.prompt_tokens, *r.tokens] for r in block]


class ModelReward(Reward):
    """Reward models on the sampled tokens. Several models or heads are an ensemble, combined by `rule`."""

    def __init__(self, models: Sequence[SequenceScorer], *, rule: str = "mean", device: str = "cpu",
                 max_concurrent: int = 128):
        self.models, self.rule = models, ensemble.RULES[rule]
        self.device, self.max_concurrent = device, max_concurrent

    @torch.no_grad()
    def score(self, rollouts: Sequence[Rollout]) -> list[Verdict]:
        out: list[Verdict] = []
        for _, rows in in_blocks(rollouts, self.max_concurrent):
            members = self.members(rows)
            spread = members.std(1, unbiased=False).tolist()
            for score, doubt in zip(self.rule(members).tolist(), spread, strict=True):
                parts = {"disagreement": doubt} if members.shape[1] > 1 else {}
                out.append(Verdict(score=score, reason=f"reward model: {score:+.3f}", parts=parts))
        return out

    def members(self, rows: list[list[int]]) -> Tensor:
        """[B, K]: the score of each row by each member of the ensemble."""
        lengths = torch.tensor([len(row) for row in rows], device=self.device)
        tokens = pad_rows(rows).to(self.device)
        return torch.cat([model.scores(tokens, lengths).float() for model in self.models], dim=1)


class ProcessReward(Reward):
    """A process reward model on the sampled tokens: a score per step, one of the reply, a reward per token.

    ends(rollout) -> where its steps end in the text, by the form of the reply alone, never by its labels.
    how: the reply's score from the probabilities p_1 .. p_K at its steps: min, product, or last.

    With s_k the score of the first k steps and s_0 = 1, the first token gets s_0 and the last token of step k
    gets s_k - s_{k-1}; they sum to the score s_K. For min and product a step only costs, at the mistake, so
    more steps never pay. Potential differences keep the optimal policy (Ng, Harada & Russell 1999); p_k
    itself as a reward would pay per step.
    """

    def __init__(self, model: TokenScorer, chat: TokenPlaces, ends: Callable[[Rollout], Sequence[int]], *,
                 how: str = "min", device: str = "cpu", max_concurrent: int = 128):
        if how not in SO_FAR:
            raise ValueError(f"how is {how!r}: a score is made of its steps by {', '.join(SO_FAR)}.")
        self.model, self.chat, self.ends, self.how = model, chat, ends, how
        self.device, self.max_concurrent = device, max_concurrent

    def score(self, rollouts: Sequence[Rollout]) -> list[Verdict]:
        return [self.verdict(r, *steps) for r, steps in zip(rollouts, self.chances(rollouts), strict=True)]

    @torch.no_grad()
    def chances(self, rollouts: Sequence[Rollout]) -> list[tuple[list[int], list[float]]]:
        """For each reply the last token of each step, and the probability there that all is right."""
        out = []
        for block, rows in in_blocks(rollouts, self.max_concurrent):
            scores = self.model.token_scores(pad_rows(rows).to(self.device)).float().sigmoid().tolist()
            for r, row in zip(block, scores, strict=True):
                places, at = sorted(set(self.chat.places(r.tokens[r.reply], self.ends(r)))), r.reply.start
                out.append((places, [row[len(r.prompt_tokens) + at + place] for place in places]))
        return out

    def verdict(self, rollout: Rollout, places: Sequence[int], chances: Sequence[float]) -> Verdict:
        """One reply's score, spread over its tokens. A reply without steps scores 0."""
        sampled = len(rollout.sampled)
        if not places:
            return Verdict(score=0.0, reason="no steps", per_token=(0.0,) * sampled)
        so_far = list(accumulate([1.0, *chances], SO_FAR[self.how]))
        paid, at = [1.0] + [0.0] * (sampled - 1), sampled - len(rollout.tokens[rollout.reply])
        for place, before, after in zip(places, so_far, so_far[1:], strict=False):
            paid[at + place] += after - before
        return Verdict(score=so_far[-1], reason="steps " + " ".join(f"{p:.2f}" for p in chances),
                       per_token=tuple(paid), parts={"steps": float(len(places)), "last": chances[-1]})

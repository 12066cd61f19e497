"""A process reward model as the judge of rollouts: a score after every step, one for the whole,
a reward for each token."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from operator import mul

import torch

from postgrad.records import Rollout, Verdict, pad_rows

# (score so far, chance that all is right at this step) -> score so far
SO_FAR: dict[str, Callable[[float, float], float]] = {
    "min": min,                             # Wang et al. 2023, Math-Shepherd, 2312.08935
    "product": mul,                         # Lightman et al. 2023, 2305.20050
    # the last step alone: an outcome model that has learned from steps
    "last": lambda before, chance: chance,
}


class ProcessJudge:
    """Verdicts of a model with `token_scores(tokens [B, T]) -> [B, T]`, on the tokens as they were sampled.

    ends(rollout) -> where its steps end in the text: the form of the reply alone,
    for a judge must not see the labels.
    how: the score of a reply from the chances p_1 .. p_K at its steps: their min, their product, or the last.

    The score is paid as it falls. Let s_k be the score of the first k steps, s_0 = 1 (nothing is wrong yet).
    The first token gets s_0, the last token of step k gets s_k - s_{k-1}, and they sum to the score, s_K,
    whatever the number of steps. For min and product no step earns anything, it can only cost: at the place
    of the mistake, which is what makes the reward dense, and writing more steps never pays. Differences of a
    potential leave the best policy the same (Ng, Harada & Russell 1999); p_k itself at every step, as a
    reward, would pay for steps by the piece.
    """

    def __init__(self, model, chat, ends: Callable[[Rollout], Sequence[int]], *, how: str = "min",
                 device="cpu", rows_at_once: int = 128):
        if how not in SO_FAR:
            raise ValueError(f"how is {how!r}: a score is made of its steps by {', '.join(SO_FAR)}.")
        self.model, self.chat, self.ends, self.how = model, chat, ends, how
        self.device, self.rows_at_once = device, rows_at_once

    def __call__(self, rollouts: Sequence[Rollout]) -> list[Verdict]:
        return [self.verdict(r, *found) for r, found in zip(rollouts, self.chances(rollouts), strict=True)]

    @torch.no_grad()
    def chances(self, rollouts: Sequence[Rollout]) -> list[tuple[list[int], list[float]]]:
        """For each reply the last tokens of its steps, and the model's chance there that
        all is right so far."""
        found = []
        for at in range(0, len(rollouts), self.rows_at_once):
            block = rollouts[at: at + self.rows_at_once]
            rows = pad_rows([[*r.prompt_tokens, *r.tokens] for r in block]).to(self.device)
            for r, row in zip(block, self.model.token_scores(rows).float().sigmoid().tolist(), strict=True):
                places, at = sorted(set(self.chat.places(r.tokens[r.reply], self.ends(r)))), r.reply.start
                found.append((places, [row[len(r.prompt_tokens) + at + place] for place in places]))
        return found

    def verdict(self, rollout: Rollout, places: Sequence[int], chances: Sequence[float]) -> Verdict:
        """One reply's score, and how it is paid.

        A reply without steps has nothing wrong and nothing right: it scores 0.
        """
        written = len(rollout.sampled)
        if not places:
            return Verdict(score=0.0, reason="no steps", per_token=(0.0,) * written)
        so_far = list(accumulate([1.0, *chances], SO_FAR[self.how]))
        paid, at = [1.0] + [0.0] * (written - 1), written - len(rollout.tokens[rollout.reply])
        for place, before, after in zip(places, so_far, so_far[1:], strict=False):
            paid[at + place] += after - before
        return Verdict(score=so_far[-1], reason="steps " + " ".join(f"{p:.2f}" for p in chances),
                       per_token=tuple(paid), parts={"steps": float(len(places)), "last": chances[-1]})

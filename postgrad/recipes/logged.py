"""What a run keeps of a step's samples: the first groups, with what is known of each token."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

import torch

from postgrad.batches.keep import pick
from postgrad.loop import Now
from postgrad.recipes.base import Parts
from postgrad.records import Batch
from postgrad.stats import Stats


def sample_rows(now: Now, parts: Parts) -> Iterator[dict]:
    """The rollouts of a step's first groups, with what is known of each token."""
    rows = first_groups(now.batch)
    columns = {name: [values[i] for i in rows] for name, values in now.stats.columns.items()}
    columns["mask"] = [now.batch.mask[i] for i in rows]
    after = logp_after(now, parts, rows) if "logp" in columns else []
    for k, i in enumerate(rows):
        s = now.batch.scored[i]
        reply = slice(at := len(s.rollout.prompt_tokens), at + len(s.rollout.tokens))
        known = {name: values[k][reply] for name, values in columns.items()}
        known |= {"moved": after[k][reply] - known["logp"]} if after else {}
        yield {"id": now.batch.ids[i], "prompt": s.rollout.prompt.question, "text": s.rollout.text,
               "tokens": parts.chat.pieces(s.rollout.tokens), "token_ids": list(s.rollout.tokens),
               "columns": {name: [round(x, 5) for x in values.float().tolist()]
                           for name, values in known.items()},
               "prompt_tokens": parts.chat.pieces(s.rollout.prompt_tokens),
               "score": s.verdict.score, "reason": s.verdict.error or s.verdict.reason,
               "parts": dict(s.verdict.parts), "finished": s.rollout.finished,
               "adv": mean_advantage(now.batch, i),
               **({"turns": turns_of(now.batch, i), "episode": s.rollout.episode}
                  if s.rollout.turns else {})}


def turns_of(batch: Batch, row: int) -> list[dict]:
    """The turns of a row, each reply with what it was paid: its turn reward, or on the last of the episode
    the score; None of what was shown and where there is no verdict."""
    s = batch.scored[row]
    rows = [i for i, other in enumerate(batch.scored) if other.rollout.episode == s.rollout.episode]
    at = sum(len(batch.scored[i].rollout.sampled) for i in rows if i < row)
    last = max(turn.end for turn in s.rollout.turns) if row == rows[-1] else None
    made = []
    for turn in s.rollout.turns:
        wrote, paid = turn.policy_step is not None, None
        if wrote and s.verdict.given:
            paid = (sum(s.verdict.per_token[at: at + turn.end - turn.start]) if s.verdict.per_token
                    else s.verdict.score * (turn.end == last))
        at += turn.end - turn.start if wrote else 0
        made.append(asdict(turn) | {"reward": paid})
    return made


def first_groups(batch: Batch, groups: int = 2) -> list[int]:
    """The rows of a batch's first prompts."""
    names = list(dict.fromkeys(s.rollout.prompt.id for s in batch.scored))[:groups]
    return [i for i, s in enumerate(batch.scored) if s.rollout.prompt.id in names]


@torch.no_grad()
def logp_after(now: Now, parts: Parts, rows: list[int]) -> list[torch.Tensor]:  # [T] each
    """What the policy says of the tokens of these rows after the update."""
    stats = Stats()
    for micro in pick(now.batch, rows).split(parts.optim.tokens_per_pass):
        stats.add(parts.objective(now.models, micro)[1])
    return stats.columns["logp"]


def mean_advantage(batch: Batch, row: int) -> float | None:
    """Over the trained tokens of a row; None where the method has no advantages (pairs, texts to imitate)."""
    if batch.adv is None:
        return None
    return float(batch.adv[row][batch.mask[row]].mean()) if batch.mask[row].any() else 0.0

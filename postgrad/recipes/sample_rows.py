"""What a run keeps of a step's samples: the first groups, with what is known of each token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict

import torch
from torch import Tensor

from postgrad.maths.packing import fetch_async
from postgrad.models.chat import Chat
from postgrad.recipes.base import TrainingSetup
from postgrad.records import Batch
from postgrad.training.batches.checkpointing import pick_rows
from postgrad.training.loop import StepInfo
from postgrad.training.stats import Stats


def sample_rows(now: StepInfo, setup: TrainingSetup) -> Callable[[], Iterator[dict]]:
    """The rollouts of a step's first groups, with what is known of each token: asked of the models here, and
    made into rows by the call, which another thread may make while the next step is computed."""
    rows, device = first_groups(now.batch), now.batch.mask.device
    # what came from several ranks is in main memory
    columns = {name: [values[i].to(device) for i in rows] for name, values in now.stats.columns.items()}
    columns["mask"] = [now.batch.mask[i] for i in rows]
    after = logp_after(now, setup, rows) if "logp" in columns else []
    known = []
    for k, i in enumerate(rows):
        rollout = now.batch.scored[i].rollout
        reply = slice(at := len(rollout.prompt_tokens), at + len(rollout.tokens))
        known.append({name: values[k][reply] for name, values in columns.items()})
        known[k] |= {"moved": after[k][reply] - known[k]["logp"]} if after else {}
    arrived = fetch_columns(known)
    return lambda: (sample_row(now.batch, i, found, setup.chat)
                    for i, found in zip(rows, arrived(), strict=True))


def fetch_columns(known: list[dict[str, Tensor]]) -> Callable[[], Iterator[dict[str, Tensor]]]:
    """The columns of some rows, on their way to main memory in one piece."""
    flat = [x.float() for columns in known for x in columns.values()]
    sizes = [len(x) for x in flat]
    arrived = fetch_async(torch.cat(flat))

    def apart() -> Iterator[dict[str, Tensor]]:
        parts = iter(arrived().split(sizes))
        for columns in known:
            yield {name: next(parts) for name in columns}

    return apart


def sample_row(batch: Batch, i: int, known: dict[str, Tensor], chat: Chat) -> dict:
    s = batch.scored[i]
    return {"id": batch.ids[i], "prompt": s.rollout.prompt.question, "text": s.rollout.text,
            "tokens": chat.pieces(s.rollout.tokens), "token_ids": list(s.rollout.tokens),
            "columns": {name: round_column(values) for name, values in known.items()},
            "prompt_tokens": chat.pieces(s.rollout.prompt_tokens),
            "score": s.verdict.score, "reason": s.verdict.error or s.verdict.reason,
            "parts": dict(s.verdict.parts), "finished": s.rollout.finished, "adv": mean_advantage(known),
            **({"turns": turn_rows(batch, i), "episode": s.rollout.episode} if s.rollout.turns else {})}


def round_column(x: Tensor) -> list[float]:
    """float32 to five places, each as Python's `round` has it: 10^5 times such a number is exact in
    float64."""
    return (torch.round(x.double() * 1e5) / 1e5).tolist()


def turn_rows(batch: Batch, row: int) -> list[dict]:
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
def logp_after(now: StepInfo, setup: TrainingSetup, rows: list[int]) -> list[torch.Tensor]:  # [T] each
    """What the policy says of the tokens of these rows after the update."""
    stats = Stats()
    for micro in pick_rows(now.batch, rows).split(setup.optim.tokens_per_pass):
        stats.add(setup.objective(now.models, micro)[1])
    return stats.columns["logp"]


def mean_advantage(known: dict[str, Tensor]) -> float | None:
    """Over the trained tokens of a row; None where the method has no advantages (pairs, texts to imitate)."""
    if "adv" not in known:
        return None
    trained = known["adv"][known["mask"] > 0]
    return float(trained.mean()) if len(trained) else 0.0

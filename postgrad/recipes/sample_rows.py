"""The samples of a step that a run logs: its first groups, with the columns of each token."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict

import torch
from torch import Tensor

from postgrad.maths.packing import fetch_async
from postgrad.models.chat import Chat
from postgrad.recipes.base import TrainingSetup
from postgrad.recipes.row_reader import evaluate_objective
from postgrad.records import Batch
from postgrad.training.batches.checkpointing import pick_rows
from postgrad.training.loop import StepInfo

SampleRow = dict[str, object]


def sample_rows(now: StepInfo, setup: TrainingSetup) -> Callable[[], Iterator[SampleRow]]:
    """The rollouts of a step's first groups, with the columns of each token. The models compute them here;
    the call makes the rows, in another thread while the next step is computed."""
    rows, device = first_groups(now.batch), now.batch.mask.device
    # columns of several ranks are in main memory
    columns = {name: [values[i].to(device) for i in rows] for name, values in now.stats.columns.items()}
    columns["mask"] = [now.batch.mask[i] for i in rows]
    after = []  # log-probs after the update, [T] each
    if "logp" in columns:
        after = evaluate_objective(setup.objective, now.models, pick_rows(now.batch, rows),
                                   setup.optim.tokens_per_pass).columns["logp"]
    known = []
    for k, i in enumerate(rows):
        rollout = now.batch.scored[i].rollout
        reply = slice(at := len(rollout.prompt_tokens), at + len(rollout.tokens))
        known.append({name: values[k][reply] for name, values in columns.items()})
        known[k] |= {"moved": after[k][reply] - known[k]["logp"]} if after else {}
    fetched = fetch_columns(known)
    return lambda: (sample_row(now.batch, i, columns, setup.chat)
                    for i, columns in zip(rows, fetched(), strict=True))


def fetch_columns(known: list[dict[str, Tensor]]) -> Callable[[], Iterator[dict[str, Tensor]]]:
    """Starts one asynchronous copy of all columns to main memory; the call waits for it and splits it."""
    flat = [x.float() for columns in known for x in columns.values()]
    sizes = [len(x) for x in flat]
    arrived = fetch_async(torch.cat(flat))

    def split() -> Iterator[dict[str, Tensor]]:
        parts = iter(arrived().split(sizes))
        for columns in known:
            yield {name: next(parts) for name in columns}

    return split


def sample_row(batch: Batch, i: int, known: dict[str, Tensor], chat: Chat) -> SampleRow:
    s = batch.scored[i]
    return {"id": batch.ids[i], "prompt": s.rollout.prompt.question, "text": s.rollout.text,
            "tokens": chat.pieces(s.rollout.tokens), "token_ids": list(s.rollout.tokens),
            "columns": {name: round_column(values) for name, values in known.items()},
            "prompt_tokens": chat.pieces(s.rollout.prompt_tokens),
            "score": s.verdict.score, "reason": s.verdict.error or s.verdict.reason,
            "parts": dict(s.verdict.parts), "finished": s.rollout.finished, "adv": mean_advantage(known),
            **({"turns": turn_rows(batch, i), "episode": s.rollout.episode} if s.rollout.turns else {})}


def round_column(x: Tensor) -> list[float]:
    """Rounds float32 to five places as Python's `round` does: 10^5 times a float32 is exact in float64."""
    return (torch.round(x.double() * 1e5) / 1e5).tolist()


def turn_rows(batch: Batch, row: int) -> list[SampleRow]:
    """The turns of a row, each reply with its reward: the turn's, or on the last of the episode the score;
    None for messages of the environment and without a verdict."""
    s = batch.scored[row]
    rows = [i for i, other in enumerate(batch.scored) if other.rollout.episode == s.rollout.episode]
    at = sum(len(batch.scored[i].rollout.sampled) for i in rows if i < row)
    last = max(turn.end for turn in s.rollout.turns) if row == rows[-1] else None
    turns = []
    for turn in s.rollout.turns:
        sampled, reward = turn.policy_step is not None, None
        if sampled and s.verdict.given:
            reward = (sum(s.verdict.per_token[at: at + turn.end - turn.start]) if s.verdict.per_token
                      else s.verdict.score * (turn.end == last))
        at += turn.end - turn.start if sampled else 0
        turns.append(asdict(turn) | {"reward": reward})
    return turns


def first_groups(batch: Batch, groups: int = 2) -> list[int]:
    """The rows of a batch's first prompts."""
    names = list(dict.fromkeys(s.rollout.prompt.id for s in batch.scored))[:groups]
    return [i for i, s in enumerate(batch.scored) if s.rollout.prompt.id in names]


def mean_advantage(known: dict[str, Tensor]) -> float | None:
    """Over the trained tokens of a row; None where the method has no advantages (pairs, texts)."""
    if "adv" not in known:
        return None
    trained = known["adv"][known["mask"] > 0]
    return float(trained.mean()) if len(trained) else 0.0

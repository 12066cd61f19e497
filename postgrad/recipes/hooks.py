"""Hooks after each step of a run: samples are logged, the policy is evaluated and saved.

The logged samples are those of a step's first groups, with the columns of each token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial

import torch
from torch import Tensor

from postgrad.evaluation.evaluate import Figures
from postgrad.maths.packing import fetch_async
from postgrad.models import is_adapted
from postgrad.models.chat import Chat
from postgrad.models.checkpoint import checkpoint_bytes, copy_state, send_shards, state_writer
from postgrad.recipes.base import RunConfig, TrainConfig, TrainingSetup
from postgrad.recipes.metric_alerts import HalveRate, TroubleAlerts
from postgrad.recipes.row_reader import evaluate_objective
from postgrad.records import Batch, Scored
from postgrad.resolve.models import base_name
from postgrad.runs import Follower, Run, SampleLog, Saves
from postgrad.runs.tracker import RunTrackers
from postgrad.system import processes
from postgrad.system.signals import Stopped
from postgrad.training.batches.checkpointing import pick_rows
from postgrad.training.distributed.sharding import unshard
from postgrad.training.loop import State, StepInfo, state_of
from postgrad.training.oom import oom_phase

SampleRow = dict[str, object]


def evaluate_policy(run: RunTrackers, setup: TrainingSetup, config: TrainConfig, step: int) -> None:
    """Evaluates the policy. The rank that writes logs the figures, and adds an entry to the ledger."""
    assert setup.evaluate is not None
    with oom_phase("sampling"), unshard(setup.models):
        figures = setup.evaluate(step)
        if isinstance(run.run, Run):
            check_metric(config, figures)
            run.log_eval(step, figures)
            if setup.panel:
                setup.panel(run.run.folder, step)


def check_metric(config: TrainConfig, figures: Figures) -> None:
    """Whether an evaluation has the figure that evaluation.metric names."""
    name = config.evaluation.metric if isinstance(config, RunConfig) else None
    if name and not isinstance(figures.get(name), int | float):
        numbers = ", ".join(key for key, value in figures.items() if isinstance(value, int | float))
        raise ValueError(f"evaluation.metric is {name!r}: an evaluation of this run has {numbers}; choose "
                         "one of them.")


def found_by(run: Run | Follower, config: TrainConfig, step: int) -> tuple[bool, str]:
    """What the evaluation of a step says: whether it is the best one so far, and is to be saved; and a
    sentence where the run is to end, for they no longer get better."""
    patience = config.evaluation.patience if isinstance(config, RunConfig) else 0
    if not isinstance(run, Run) or not (config.keep == "best" or patience):
        return False, ""
    best = run.best(*range(1, step + 1))
    return best is not None and best[0] == step, run.worn_out() if patience and step != config.steps else ""


def step_hooks(run: RunTrackers, setup: TrainingSetup, config: TrainConfig, stop: Callable[[], int | None],
               saves: Saves, log: SampleLog,
               trouble: TroubleAlerts | None = None) -> list[Callable[[StepInfo], None]]:
    """The hooks of a rank. One that does not write takes part in the collectives of sharded models.
    trouble: of the rank that writes."""
    writes, sharded = isinstance(run.run, Run), config.optim.divides

    def samples(now: StepInfo) -> None:
        if now.batch.scored and writes:
            run.log_samples(now.step, lambda: [tracked_sample(s) for s in now.batch.scored])
            log.later(now.step, partial(sample_rows, now, setup))
            if sharded:  # the other ranks compute theirs now
                log.ask()
        elif now.batch.scored and sharded:
            sample_rows(now, setup)

    def is_due(step: int) -> bool:
        every = setup.evaluate_every if setup.evaluate else 0
        return bool(every) and (step % every == 0 or step == config.steps)

    def evaluation(now: StepInfo) -> None:
        if is_due(now.step) and (writes or sharded):
            evaluate_policy(run, setup, config, now.step)

    def save(now: StepInfo) -> None:
        better, worn_out = found_by(run.run, config, now.step) if is_due(now.step) else (False, "")
        acts, last = trouble.acts if trouble else None, now.step == config.steps
        halves = acts if config.on_trouble == "halve_rate" else None
        asked = run.stop and f"stopped by {run.stop} after step {now.step}" or acts and not halves and acts[1]
        why = stop() or (not last and asked) or worn_out
        votes = processes.gather((why, worn_out, better, halves), "agreed to go on")
        by, final, best, halved = (next(filter(None, column), None) for column in zip(*votes, strict=True))
        back = HalveRate(*halved) if halved and not isinstance(by, int) else None
        end = back or (Stopped(by, bool(final)) if by else None)
        assert config.save_every is not None
        due = not back and (by or best or now.step % config.save_every == 0 or last)
        if writes and (due or end):
            log.wait()
        if due and writes:
            save_checkpoint(setup, config, saves, now.step)
        elif due and sharded:
            send_shards(saved_state(setup, config), setup.models.policy)
        if end:
            setup.batches.state()  # what is sampled ahead by all ranks ends before one of them leaves
            saves.wait()
        saves.check()
        if isinstance(by, int):
            processes.tell_left()
        if end:
            raise end

    return [samples, *setup.hooks, evaluation, save]


def saved_state(setup: TrainingSetup, config: TrainConfig) -> State:
    """What a checkpoint holds besides the policy's weights."""
    return state_of(setup.models, setup.optim, setup.batches) if config.save_optimizer else {}


def save_checkpoint(setup: TrainingSetup, config: TrainConfig, saves: Saves, step: int) -> None:
    """Writes a checkpoint: of sharded models at once, else from a copy while the run goes on."""
    state, policy, sharded = saved_state(setup, config), setup.models.policy, config.optim.divides
    base = base_name(setup.source) if setup.source and is_adapted(policy) else ""
    write, save = (state_writer, saves.now) if sharded else (copy_state, saves.start)
    save(step, write(state, policy=policy, chat=setup.chat, base=base), checkpoint_bytes(state, policy))


def tracked_sample(s: Scored) -> dict[str, object]:
    """A sample as `Tracker.on_samples` takes it."""
    rollout, verdict = s.rollout, s.verdict
    return {"id": rollout.prompt.id, "prompt": rollout.prompt.question, "text": rollout.text,
            "score": verdict.score, "reason": verdict.error or verdict.reason, "parts": dict(verdict.parts),
            "finished": rollout.finished, "token_ids": rollout.tokens,
            "prompt_token_ids": rollout.prompt_tokens, **extra_fields(s)}


def extra_fields(s: Scored) -> dict[str, object]:
    """What the reward adds to a sample's row."""
    return {"extra": dict(s.verdict.extra)} if s.verdict.extra else {}


# logged samples

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
            **({"turns": turn_rows(batch, i), "episode": s.rollout.episode} if s.rollout.turns else {}),
            **extra_fields(s)}


def round_column(x: Tensor) -> list[float]:
    """Rounds float32 to five places as Python's `round` does: 10^5 times a float32 is exact in float64."""
    return (torch.round(x.cpu().double() * 1e5) / 1e5).tolist()


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

"""Hooks after each step of a run: samples are logged, the policy is evaluated and saved."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from postgrad.models import is_adapted
from postgrad.models.checkpoint import checkpoint_bytes, copy_state, send_shards, state_writer
from postgrad.recipes.base import TrainConfig, TrainingSetup
from postgrad.recipes.sample_rows import sample_rows
from postgrad.records import Scored
from postgrad.resolve.models import base_name
from postgrad.runs import Run, SampleLog, Saves
from postgrad.runs.tracker import RunTrackers
from postgrad.system import processes
from postgrad.system.signals import Stopped
from postgrad.training.distributed.sharding import unshard
from postgrad.training.loop import StepInfo, state_of
from postgrad.training.oom import oom_phase


def evaluate_policy(run: RunTrackers, setup: TrainingSetup, step: int) -> None:
    """Evaluates the policy. The rank that writes logs the figures, and adds an entry to the ledger."""
    assert setup.evaluate is not None
    with oom_phase("sampling"), unshard(setup.models):
        figures = setup.evaluate(step)
        if isinstance(run.run, Run):
            run.log_eval(step, figures)
            if setup.panel:
                setup.panel(run.run.folder, step)


def step_hooks(run: RunTrackers, setup: TrainingSetup, config: TrainConfig, stop: Callable[[], int | None],
               saves: Saves, log: SampleLog) -> list[Callable[[StepInfo], None]]:
    """The hooks of a rank. One that does not write takes part in the collectives of sharded models."""
    writes, sharded = isinstance(run.run, Run), config.optim.divides

    def samples(now: StepInfo) -> None:
        if now.batch.scored and writes:
            run.log_samples(now.step, lambda: [tracked_sample(s) for s in now.batch.scored])
            log.later(now.step, partial(sample_rows, now, setup))
            if sharded:  # the other ranks compute theirs now
                log.ask()
        elif now.batch.scored and sharded:
            sample_rows(now, setup)

    def evaluation(now: StepInfo) -> None:
        every = setup.evaluate_every
        due = setup.evaluate and every and (now.step % every == 0 or now.step == config.steps)
        if due and (writes or sharded):
            evaluate_policy(run, setup, now.step)

    def save(now: StepInfo) -> None:
        signals = processes.gather(stop(), "agreed to go on")  # all ranks stop after the same step
        signal = next(filter(None, signals), None)
        assert config.save_every is not None
        if signal or now.step % config.save_every == 0 or now.step == config.steps:
            if writes:
                log.wait()
                save_checkpoint(setup, saves, now.step, sharded)
            elif sharded:
                send_shards(state_of(setup.models, setup.optim, setup.batches), setup.models.policy)
        if signal:
            saves.wait()
        saves.check()
        if signal:
            processes.tell_left()
            raise Stopped(signal)

    return [samples, *setup.hooks, evaluation, save]


def save_checkpoint(setup: TrainingSetup, saves: Saves, step: int, sharded: bool) -> None:
    """Writes a checkpoint: of sharded models at once, else from a copy while the run goes on."""
    state, policy = state_of(setup.models, setup.optim, setup.batches), setup.models.policy
    base = base_name(setup.source) if setup.source and is_adapted(policy) else ""
    write, save = (state_writer, saves.now) if sharded else (copy_state, saves.start)
    save(step, write(state, policy=policy, chat=setup.chat, base=base), checkpoint_bytes(state, policy))


def tracked_sample(s: Scored) -> dict[str, object]:
    """A sample as `Tracker.on_samples` takes it."""
    rollout, verdict = s.rollout, s.verdict
    return {"id": rollout.prompt.id, "prompt": rollout.prompt.question, "text": rollout.text,
            "score": verdict.score, "reason": verdict.error or verdict.reason, "parts": dict(verdict.parts),
            "finished": rollout.finished, "token_ids": rollout.tokens,
            "prompt_token_ids": rollout.prompt_tokens}

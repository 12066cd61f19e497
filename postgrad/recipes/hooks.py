"""What is done after each step of a run: samples are logged, the policy is evaluated and saved."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from postgrad.models import is_adapted
from postgrad.models.checkpoint import checkpoint_bytes, copy_state, send_shards, state_writer
from postgrad.recipes.base import TrainingSetup
from postgrad.recipes.sample_rows import sample_rows
from postgrad.records import Scored
from postgrad.resolve.models import base_name
from postgrad.runs import SampleLog, Saves
from postgrad.runs.tracker import RunTrackers
from postgrad.system import processes
from postgrad.system.signals import Stopped
from postgrad.training.distributed.sharding import unshard
from postgrad.training.loop import StepInfo, state_of
from postgrad.training.oom import oom_phase

Hook = Callable[[StepInfo], None]


def evaluate_policy(run: RunTrackers, setup: TrainingSetup, step: int) -> None:
    """Evaluates the policy, logs the figures and adds an entry to the ledger, where there is a panel."""
    assert setup.evaluate is not None
    with oom_phase("sampling"), unshard(setup.models):
        run.log_eval(step, setup.evaluate(step))
        if setup.panel:
            setup.panel(run.run.folder, step)


def writer_hooks(run: RunTrackers, setup: TrainingSetup, config, stop: Callable, saves: Saves,
                 log: SampleLog) -> list[Hook]:
    """Hooks of the rank that writes the run."""

    def samples(now: StepInfo) -> None:
        if now.batch.scored:
            run.log_samples(now.step, lambda: [tracked_sample(s) for s in now.batch.scored])
            log.later(now.step, partial(sample_rows, now, setup))
            if config.optim.divides:  # the other ranks ask now
                log.ask()

    def evaluation(now: StepInfo) -> None:
        if evaluates_after(now.step, setup, config):
            evaluate_policy(run, setup, now.step)

    def save(now: StepInfo) -> None:
        asked = asked_to_stop(stop)
        if saves_after(now.step, config, asked):
            log.wait()
            state = state_of(setup.models, setup.optim, setup.batches)
            policy = setup.models.policy
            under = base_name(setup.source) if setup.source and is_adapted(policy) else ""
            keep, save = (state_writer, saves.now) if config.optim.divides else (copy_state, saves.start)
            save(now.step, keep(state, policy=policy, chat=setup.chat, base=under),
                 checkpoint_bytes(state, policy))
        if asked:
            saves.wait()
        saves.check()
        end_if(asked)

    return [samples, *setup.hooks, evaluation, save]


def tracked_sample(s: Scored) -> dict[str, object]:
    """A sample as trackers are told it."""
    rollout, verdict = s.rollout, s.verdict
    return {"id": rollout.prompt.id, "prompt": rollout.prompt.question, "text": rollout.text,
            "score": verdict.score, "reason": verdict.error or verdict.reason, "parts": dict(verdict.parts),
            "finished": rollout.finished, "token_ids": rollout.tokens,
            "prompt_token_ids": rollout.prompt_tokens}


def saves_after(step: int, config, asked: int | None) -> bool:
    return bool(asked) or step % config.save_every == 0 or step == config.steps


def evaluates_after(step: int, setup: TrainingSetup, config) -> bool:
    every = setup.evaluate_every
    return bool(setup.evaluate and every and (step % every == 0 or step == config.steps))


def evaluate_sharded(setup: TrainingSetup, step: int) -> None:
    """Evaluates on a rank that does not write."""
    assert setup.evaluate is not None
    with unshard(setup.models):
        setup.evaluate(step)


def follower_hooks(setup: TrainingSetup, config, stop: Callable) -> list[Hook]:
    """Hooks of a rank that does not write: its part of the collectives, where models are sharded."""
    def samples(now: StepInfo) -> None:
        if config.optim.divides and now.batch.scored:
            sample_rows(now, setup)

    def evaluation(now: StepInfo) -> None:
        if config.optim.divides and evaluates_after(now.step, setup, config):
            evaluate_sharded(setup, now.step)

    def save(now: StepInfo) -> None:
        asked = asked_to_stop(stop)
        if config.optim.divides and saves_after(now.step, config, asked):
            send_shards(state_of(setup.models, setup.optim, setup.batches), setup.models.policy)
        end_if(asked)

    return [*setup.hooks, samples, evaluation, save]


def asked_to_stop(stop: Callable[[], int | None]) -> int | None:
    """The signal that any rank was sent, so that all of them stop after the same step."""
    return next(filter(None, processes.gather(stop(), "agreed to go on")), None)


def end_if(asked: int | None) -> None:
    if asked:
        processes.tell_left()
        raise Stopped(asked)

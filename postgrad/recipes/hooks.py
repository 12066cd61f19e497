"""What is done after each step of a run: samples are logged, it is shown, examined and saved."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from postgrad.models import is_adapted
from postgrad.models.checkpoint import checkpoint_bytes, copy_state, send_shards, state_writer
from postgrad.recipes.base import Parts
from postgrad.recipes.logged import sample_rows
from postgrad.recipes.worries import Worries, worries_of
from postgrad.records import Scored
from postgrad.resolve.models import base_name
from postgrad.runs import Follower, Run, SampleLog, Saves
from postgrad.system import processes
from postgrad.system.signals import Stopped
from postgrad.training.distributed.sharding import unshard
from postgrad.training.loop import StepInfo, state_of
from postgrad.training.oom import oom_phase


class Watch(Protocol):
    """Whoever looks on while a run is trained."""

    def stepped(self, step: int, row: dict, scored: tuple[Scored, ...]) -> None: ...

    def examined(self, step: int, row: dict) -> None: ...


def examine(run: Run, parts: Parts, step: int, watch: Watch | None) -> dict:
    assert parts.examine is not None
    with oom_phase("sampling"), unshard(parts.models):
        row = parts.examine(step)
        run.log_eval(step, row)
        if parts.panel:
            parts.panel(run, step)
    if watch:
        watch.examined(step, row)
    return row


def hooks(run: Run | Follower, parts: Parts, config, stop: Callable, saves: Saves, log: SampleLog,
          watch: Watch | None, callback: Callable[[int, dict], None] | None) -> list[Callable[[StepInfo],
                                                                                              None]]:
    """What is done after each step: by the rank that writes all of it, by the others what decides how
    training goes on."""
    if isinstance(run, Follower):
        return [*parts.hooks, *taking_part(parts, config, stop)]
    worries = Worries(run, worries_of(config), aloud=watch is not None)

    def samples(now: StepInfo) -> None:
        if now.batch.scored:
            log.later(now.step, partial(sample_rows, now, parts))
            if config.optim.divides:  # the other ranks ask now
                log.ask()

    def show(now: StepInfo) -> None:
        if watch:
            watch.stepped(now.step, now.row, now.batch.scored)
        if callback:
            callback(now.step, dict(now.row))
        worries(now.step, now.row)

    def examination(now: StepInfo) -> None:
        if examined_after(now.step, parts, config):
            worries(now.step, examine(run, parts, now.step, watch))

    def save(now: StepInfo) -> None:
        asked = asked_to_stop(stop)
        if saved_after(now.step, config, asked):
            log.wait()
            state = state_of(parts.models, parts.optim, parts.batches)
            policy = parts.models.policy
            under = base_name(parts.begins) if parts.begins and is_adapted(policy) else ""
            keep, save = (state_writer, saves.now) if config.optim.divides else (copy_state, saves.start)
            save(now.step, keep(state, policy=policy, chat=parts.chat, base=under), checkpoint_bytes(state,
                                                                                                     policy))
        if asked:
            saves.wait()
        saves.check()
        end_if(asked)

    return [samples, show, *parts.hooks, examination, save]


def saved_after(step: int, config, asked: int | None) -> bool:
    return bool(asked) or step % config.save_every == 0 or step == config.steps


def examined_after(step: int, parts: Parts, config) -> bool:
    return bool(parts.examine and parts.every and (step % parts.every == 0 or step == config.steps))


def look_too(parts: Parts, step: int) -> None:
    """An examination whose figures another rank writes down."""
    assert parts.examine is not None
    with unshard(parts.models):
        parts.examine(step)


def taking_part(parts: Parts, config, stop: Callable) -> list[Callable[[StepInfo], None]]:
    """What a rank that does not write does while another examines and saves: of a model that is divided among
    them, its part."""
    def samples(now: StepInfo) -> None:
        if config.optim.divides and now.batch.scored:
            sample_rows(now, parts)

    def examination(now: StepInfo) -> None:
        if config.optim.divides and examined_after(now.step, parts, config):
            look_too(parts, now.step)

    def save(now: StepInfo) -> None:
        asked = asked_to_stop(stop)
        if config.optim.divides and saved_after(now.step, config, asked):
            send_shards(state_of(parts.models, parts.optim, parts.batches), parts.models.policy)
        end_if(asked)

    return [samples, examination, save]


def asked_to_stop(stop: Callable[[], int | None]) -> int | None:
    """The signal that this rank or another was sent, so that all of them stop after the same step."""
    return next(filter(None, processes.gather(stop(), "agreed to go on")), None)


def end_if(asked: int | None) -> None:
    if asked:
        processes.tell_left()
        raise Stopped(asked)

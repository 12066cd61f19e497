"""A run from its start to its end: folder, checks, and going on after a stop."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import torch

from postgrad import __version__, methods
from postgrad.models.checkpoint import read_state, seed_everything
from postgrad.recipes import panel
from postgrad.recipes.base import Parts
from postgrad.recipes.defaults import fitted
from postgrad.recipes.hooks import Watch, examine, hooks, look_too
from postgrad.recipes.inputs import check_inputs, inputs
from postgrad.recipes.short_of_memory import memory_advice
from postgrad.resolve import tasks
from postgrad.resolve.models import ModelSource, fingerprint, open_folder
from postgrad.runs import Follower, Run, RunGone, SampleLog, Saves, check_name
from postgrad.runs.disk import refuse_if_taken, refuse_if_unwritable
from postgrad.system import processes
from postgrad.system.files import error_text
from postgrad.system.gc_tuning import seldom_collected
from postgrad.system.settings import settings_to_json
from postgrad.system.signals import Stopped, stop_on_signal
from postgrad.system.user_code import record
from postgrad.training.loop import restore_state, train

Build = Callable[..., Parts]  # (config, begins) -> Parts


def beginning(config, checkpoint: Path | None = None, origin: Path | None = None) -> ModelSource | None:
    """Where a run's models begin; None for a recipe that makes its own (pretraining)."""
    if not getattr(config, "model", None):
        return ModelSource(origin=checkpoint, name="", checkpoint=checkpoint) if checkpoint else None
    return ModelSource(origin=origin or open_folder(config.model), name=config.model, checkpoint=checkpoint)


def start(recipe: str, config, build: Build, folder: Path | str, *, command: str = "",
          watch: Watch | None = None, callback: Callable[[int, dict], None] | None = None,
          origin: Path | None = None) -> Run | Follower:
    """A new run. The folder has to be free; everything is built, and so checked, before it is made. Of
    several ranks the first makes it, and the others follow.

    origin: the folder of a model that has no name of its own; it is moved into the run, as `start`, and
    config.model names it there. What the config leaves open is chosen here (recipes/defaults.py), and saved.
    """
    processes.join_ranks()
    check_division(config)
    check_place(Path(folder))
    begins = beginning(config, origin=origin)
    config = with_virtual_ranks(fitted(config, begins.origin if begins else None)[0])
    seed_everything(config.seed)
    parts = built(build, config, begins)
    if not processes.leads():
        return carry_on(Follower(folder), parts, config)
    facts = {"command": command, "version": __version__, "python": platform.python_version(),
             "torch": torch.__version__, "seed": config.seed,
             "begins_with": fingerprint(begins.origin) if begins else None, "data": dict(parts.data),
             **inputs(config)}
    names = {"model": getattr(config, "model", None), "task": getattr(config, "task", None)}
    names = {k: tasks.label(v) if v is not None else None for k, v in names.items() if hasattr(config, k)}
    row = {}
    if hasattr(config, "method"):
        row = {"method": config.method.name, "row": methods.describe_row(config.row)}
    run = Run.create(folder, recipe=recipe, config=settings_to_json(config, record), steps=config.steps,
                     **names, **row, **facts, bring={"start": origin} if origin else {})
    if begin := getattr(watch, "begin", None):
        begin()
    for note in parts.notes:
        run.event("data", note)
        say(watch, note)
    return carry_on(run, parts, config, watch, callback)


def built(build: Build, config, begins: ModelSource | None) -> Parts:
    parts = replace(build(config, begins), begins=begins)
    return replace(parts, panel=panel.examined(config, parts))


def with_virtual_ranks(config):
    """As many lanes as there are ranks at the start, where nothing else was said: saved with the run."""
    if config.optim.virtual_ranks is not None or processes.world() == 1:
        return config
    return replace(config, optim=replace(config.optim, virtual_ranks=processes.world()))


def check_place(folder: Path) -> None:
    """Before anything is read or built: a run can be made there. Asked by the rank that makes it."""
    if not processes.leads():
        return
    folder = Path(os.path.abspath(folder))
    check_name(folder.name)
    refuse_if_taken(folder)
    refuse_if_unwritable(folder)


def check_division(config) -> None:
    """Whether models can be divided among the ranks that are there: FSDP2 needs NCCL on a GPU."""
    if config.optim.divides and config.device.startswith("cuda") and (few := processes.too_few_gpus()):
        raise ValueError(f"shard=true wants a GPU for each rank, and there are {few}: start no more ranks "
                         "than GPUs (torchrun --nproc-per-node), or leave shard out.")


def say(watch: Watch | None, text: str) -> None:
    """To whoever looks on, beside the display."""
    if watch:
        print(text, file=sys.stderr)


def finished(run: Run, steps: int | None = None) -> str:
    """Where nothing is left to train, a sentence that says so and how to go on; else "".

    steps: to which the run is to go on, where that was said.
    """
    made, place = run.info["steps"], os.path.relpath(run.folder)
    if run.state()["state"] != "done" or steps not in (None, made):
        return ""
    newest = run.latest()
    if newest is None or int(newest.name) != made:
        return ""
    return (f"{place} is finished: {made} of {made} steps. `postgrad resume {place} steps={2 * made}` would "
            "train it further.")


def resume(run: Run, config, build: Build, *, watch: Watch | None = None,
           callback: Callable[[int, dict], None] | None = None) -> Run | Follower:
    """Goes on from the newest sound checkpoint, or from the beginning where there is none,
    to the same bits, with any number of ranks; to more steps than the run had, where config.steps says so. A
    finished run stays.

    Everything is built, and so checked, before anything in the run is changed.
    """
    processes.join_ranks()
    check_division(config)
    check_inputs(run, config)
    if finished(run, config.steps):
        return run
    seed_everything(config.seed)
    with run.locked() if processes.leads() else nullcontext():
        checkpoint = processes.agreed(run.newest, "looked for the checkpoint")
        check_length(run, config, checkpoint)
        begins = beginning(config, checkpoint)
        parts = built(build, config, begins)
        if checkpoint:
            take_up(checkpoint, parts)
        if not processes.leads():
            return carry_on(Follower(run.folder, int(checkpoint.name) if checkpoint else 0), parts, config)
        for damage in run.passed_over.values():
            say(watch, f"passed over: {damage}")
        run.go_back(checkpoint)
        if {run.info["steps"], run.config["steps"]} != {config.steps}:
            said = lengthened(run, config, parts)
            run.set_steps(config.steps)
            run.event("steps", said)
            say(watch, said)
        return carry_on(run, parts, config, watch, callback)


def check_length(run: Run, config, checkpoint: Path | None) -> None:
    made = int(checkpoint.name) if checkpoint else 0
    if config.steps < made or (config.steps == made != run.config["steps"]):
        raise ValueError(f"{run.folder} has made {made} steps already: steps={config.steps} leaves nothing "
                         f"to do; name more than {made}.")


def lengthened(run: Run, config, parts: Parts) -> str:
    """What another number of steps means for the rate."""
    last = run.next_step - 1
    before = next((row["lr"] for row in reversed(run.rows("metrics")[0]) if "lr" in row), None)
    after = f", after {before:.2g} at step {last}" if before is not None else ""
    return (f"{config.steps} steps instead of {run.info['steps']}: the rate goes on as in a run of "
            f"{config.steps} (optim.schedule={config.optim.schedule}), {parts.optim.lr(last + 1):.2g} at "
            f"step {last + 1}{after}")


def take_up(checkpoint: Path, parts: Parts) -> None:
    """What the checkpoint knows goes into the models, the optimizer and the batches."""
    state = read_state(checkpoint)
    try:
        restore_state(state, parts.models, parts.optim, parts.batches)
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        why = f"{type(error).__name__}: {error_text(error)}"
        raise ValueError(f"the checkpoint {checkpoint} does not fit this run ({why}): go back to another, or "
                         "start a new run.") from error


def carry_on(run: Run | Follower, parts: Parts, config, watch: Watch | None = None,
             callback: Callable[[int, dict], None] | None = None) -> Run | Follower:
    """Trains to the end, or to a signal; says in the run folder how it ended."""
    try:
        with (run.locked(), SampleLog(run) as log, Saves(run) as saves,
              stop_on_signal(getattr(watch, "stopping", None)) as stop,
              memory_advice(config, parts.models), seldom_collected()):
            run.status("running")
            if parts.examine and parts.every and run.next_step == 1:
                if isinstance(run, Run):
                    examine(run, parts, 0, watch)
                elif config.optim.divides:
                    look_too(parts, 0)
            train(parts.models, parts.batches, parts.objective, parts.optim, run,
                  hooks(run, parts, config, stop, saves, log, watch, callback), meanwhile=log.ask)
    except Stopped as end:
        run.status("stopped", error=str(end))
        raise
    except RunGone:
        raise  # there is nowhere to say so
    except KeyboardInterrupt:
        run.status("stopped", error="stopped at once, without a checkpoint")
        raise
    except BaseException as error:
        processes.tell_end(str(error))
        run.status("failed", error=f"{type(error).__name__}: {error}")
        raise
    run.status("done")
    processes.gather(None, "came to the end")
    return run

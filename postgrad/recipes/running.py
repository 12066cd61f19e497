"""One run from its start to its end: folder, checks, and resuming after a stop."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

from postgrad import __version__, methods
from postgrad.models.checkpoint import read_state, seed_everything
from postgrad.recipes.base import RunConfig, TrainConfig, TrainingSetup
from postgrad.recipes.defaults import fill_defaults
from postgrad.recipes.hooks import evaluate_policy, step_hooks
from postgrad.recipes.inputs import check_inputs, input_hashes
from postgrad.recipes.look import SFT, Look, form_sft, is_worth_a_look, offer_text, settings_in, take_look
from postgrad.recipes.metric_alerts import (
    HALVED,
    KIND,
    HalveRate,
    MetricAlerts,
    TroubleAlerts,
    VerifierFailures,
    good_checkpoints,
    metric_limits,
    rate_factor,
)
from postgrad.recipes.oom_advice import memory_advice
from postgrad.recipes.panel import panel_recorder
from postgrad.recipes.registry import RECIPES, config_class, recipe_module
from postgrad.recipes.rollouts import RolloutConfig
from postgrad.resolve.models import ModelSource, fingerprint, open_folder, save_with_template
from postgrad.runs import Follower, Run, RunGone, SampleLog, Saves, check_name
from postgrad.runs.disk import refuse_if_taken, refuse_if_unwritable
from postgrad.runs.display import Display
from postgrad.runs.tracker import RunTrackers, Tracker
from postgrad.sampling import Sampler
from postgrad.system import processes
from postgrad.system.files import error_text
from postgrad.system.gc_tuning import seldom_collected
from postgrad.system.installation import code_commit, machine_facts
from postgrad.system.settings import replace_settings, settings_from_json, settings_to_json
from postgrad.system.signals import Stopped, stop_on_signal
from postgrad.system.user_code import is_record, record
from postgrad.training.loop import restore_state, train


def model_source(config: TrainConfig, checkpoint: Path | None = None,
                 origin: Path | None = None) -> ModelSource | None:
    """Where a run's models come from; None for a recipe that makes its own (pretraining)."""
    if (model := config.source_model) is None:
        return ModelSource(origin=checkpoint, name="", checkpoint=checkpoint) if checkpoint else None
    return ModelSource(origin=origin or open_folder(model), name=model, checkpoint=checkpoint)


def start_run(config: TrainConfig, folder: Path | str, *, command: str = "",
              trackers: Sequence[Tracker] = (), origin: Path | None = None,
              ask: Callable[[str], bool] | None = None,
              notes: Sequence[tuple[str, str]] = ()) -> Run | Follower:
    """Trains a new run. Everything is built and checked before its folder is made, by the first rank.

    origin: the folder of a model that has no name of its own; it moves into the run, as `start`, where
    config.model names it. A model that gets another chat template is copied there too. Model-dependent
    defaults are filled in (recipes/defaults.py) and saved.
    ask: whether a person says yes to the offers of the look before the first step; None: nobody is there.
    notes: events to begin with, (kind, text).
    """
    processes.join_ranks()
    check_sharding(config)
    check_place(Path(folder))
    source = model_source(config, origin=origin)
    config, _ = fill_defaults(config, source.origin if source else None)
    begin = partial(begin_run, config, folder=folder, command=command, trackers=trackers, ask=ask,
                    notes=notes)
    if source and isinstance(config, RunConfig) and config.template:
        with place_beside(Path(folder), "template") as place:
            origin = save_with_template(source.origin, config.template, place, config.optim.adapter)
            return begin(replace(source, origin=origin, name=str(Path(folder) / "start")), origin=origin)
    return begin(source, origin=origin)


@contextmanager
def place_beside(folder: Path, name: str) -> Iterator[Path]:
    """A path beside a run's folder, for a model that the run takes in; deleted afterwards."""
    place, parent = folder.parent / f".{folder.name}.{name}-{os.getpid()}", folder.parent
    existed = parent.exists()
    try:
        yield place
    finally:
        shutil.rmtree(place, ignore_errors=True)
        if not existed and parent.exists() and not any(parent.iterdir()):
            parent.rmdir()


def begin_run(config: TrainConfig, source: ModelSource | None, folder: Path | str, *, command: str,
              trackers: Sequence[Tracker], origin: Path | None, ask: Callable[[str], bool] | None = None,
              notes: Sequence[tuple[str, str]] = ()) -> Run | Follower:
    """`start_run` with what it begins with."""
    if config.optim.virtual_ranks is None and processes.world() > 1:  # saved: resuming keeps the number
        config = replace_settings(config, {"optim.virtual_ranks": processes.world()})
    seed_everything(config.seed)
    setup, look = build_setup(config, source), None
    if isinstance(config, RolloutConfig) and setup.probes and is_worth_a_look(config):
        look = take_look(config, setup)
        if look.offer and accepted(look, config.on_look, ask):
            sft = form_sft(config, setup.probes.task) if SFT in look.offer else None
            del setup  # its memory is free before the next one's is taken
            return take_offer(look, sft, config, source, folder, command, trackers, origin)
    config = replace_settings(config, setup.settings)  # saved: resuming chooses nothing
    if not processes.leads():
        return train_to_end(Follower(folder), setup, config)
    check_room(Path(folder), setup, config)
    facts = {"command": command, "version": __version__, "python": platform.python_version(),
             "torch": torch.__version__, "seed": config.seed, "machine": machine_facts(),
             "commit": code_commit(os.getcwd()),
             "begins_with": fingerprint(source.origin) if source else None, "data": dict(setup.data),
             "trained_parameters": sum(p.numel() for p in setup.optim.params),
             **input_hashes(config), **({"look": look.as_dict()} if look else {})}
    run = Run.create(folder, recipe=config.recipe, config=settings_to_json(config, record),
                     steps=config.last_step, **config.facts(), **facts,
                     bring={"start": origin} if origin else {})
    length = [("length", setup.length)] if setup.length else []
    seen = [("look", text) for text in look.notes()] if look else []
    return train_to_end(run, setup, config, trackers,
                        [*(("data", note) for note in setup.notes), *length, *notes, *seen])


def take_offer(look: Look, sft: TrainConfig | None, config: RolloutConfig, source: ModelSource | None,
               folder: Path | str, command: str, trackers: Sequence[Tracker],
               origin: Path | None) -> Run | Follower:
    """The run with what a look offers. sft: what it trains first."""
    changed = replace_settings(config, {"on_look": "warn", **settings_in(look.offer)})
    taken = [("look", text) for text in (*look.notes(), f"taken: {offer_text(look.offer)}")]
    if sft is None:
        return begin_run(changed, source, folder, command=command, trackers=trackers, origin=origin,
                         notes=taken)
    model = train_form(sft, Path(folder), origin)
    return start_run(replace(changed, model=model), folder, command=command, trackers=trackers, notes=taken)


def accepted(look: Look, on_look: str, ask: Callable[[str], bool] | None) -> bool:
    """Whether the offers of a look are taken: where nobody can be asked, if the run could not learn without
    them."""
    if on_look != "ask":
        return on_look == "fix"
    question = "\n".join([*look.notes(), f"Go on with {offer_text(look.offer)}? [y/N] "])
    return processes.agreed(lambda: ask(question) if ask else look.all_flat, "answered the look")


def train_form(config: TrainConfig, folder: Path, origin: Path | None) -> str:
    """Trains the SFT of a look's offer as a run beside the run that it is for, FOLDER-form; -> its folder."""
    places = (folder.with_name(f"{folder.name}-form{n or ''}") for n in range(10_000))
    place = processes.agreed(lambda: next(p for p in places if not p.exists()), "named the run")
    if origin:
        config = replace_settings(config, {"model": str(place / "start")})
    start_run(config, place, origin=origin, command=f"SFT on gold replies, before {folder}")
    return str(place)


def build_setup(config: TrainConfig, source: ModelSource | None) -> TrainingSetup:
    setup: TrainingSetup = recipe_module(config.recipe).build(config, source)
    if isinstance(config, RunConfig) and config.evaluation.panel is not None:
        setup.panel = panel_recorder(config, setup, config.evaluation.panel)
    setup.source = source
    check_examined(config, setup)
    return setup


def check_examined(config: TrainConfig, setup: TrainingSetup) -> None:
    """Whether there are evaluations, where settings need them."""
    if isinstance(config, RunConfig) and not (setup.evaluate and setup.evaluate_every):
        inputs, how = config.inputs, config.evaluation
        for name, value in {"eval_data": inputs.eval_data, "eval_task": inputs.eval_task,
                            "evaluation.metric": how.metric, "evaluation.patience": how.patience}.items():
            if value is not None and value != 0:
                raise ValueError(f"{name} needs evaluations, and this run has none: set evaluation.every, or "
                                 "give rows to evaluate.")


def check_place(folder: Path) -> None:
    """Whether a run can be made there; before anything is read or built, on the rank that makes it."""
    if not processes.leads():
        return
    folder = Path(os.path.abspath(folder))
    check_name(folder.name)
    refuse_if_taken(folder)
    refuse_if_unwritable(folder)


def check_room(folder: Path, setup: TrainingSetup, config: TrainConfig) -> None:
    """Whether the disk holds a run's checkpoints: weights and the optimizer's moments, of those that stay and
    of the one that is being written."""
    assert config.save_every is not None and config.steps is not None
    one = sum(p.numel() * (p.itemsize + (8 if p.requires_grad and config.save_optimizer else 0))
              for p in setup.models.policy.parameters())
    count = int(min(config.kept_checkpoints + 1, -(-config.steps // config.save_every)))
    place = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.is_dir())
    if (free := shutil.disk_usage(place).free) < one * count:
        checkpoints = "a checkpoint" if count == 1 else f"{count} checkpoints"
        raise ValueError(f"{os.path.relpath(folder)} needs {one * count / 1e6:,.0f} MB for {checkpoints}, "
                         f"and {free / 1e6:,.0f} MB are free: make room, or choose a folder on another disk "
                         "(--run, in Python run=).")


def check_sharding(config: TrainConfig) -> None:
    """Whether models can be sharded over the ranks: FSDP2 on GPUs needs NCCL, and so one GPU a rank."""
    if config.optim.divides and config.device.startswith("cuda") and (few := processes.too_few_gpus()):
        raise ValueError(f"shard=true wants a GPU for each rank, and there are {few}: start no more ranks "
                         "than GPUs (torchrun --nproc-per-node), or leave shard out.")


def finished(run: Run, steps: int | None = None) -> str:
    """Where nothing is left to train, a sentence that says so and how to train further; else "".

    steps: the length to resume to; None: the saved one.
    """
    done, place, newest, state = run.info["steps"], os.path.relpath(run.folder), run.latest(), run.state()
    if state["state"] != "done" or newest is None:
        return ""
    if int(newest.name) == state["step"] < done and (early := run.worn_out()):
        return (f"{place} is finished at step {state['step']} of {done}, {early}: a new run goes on from it "
                f"with model={place}, or from its best with model={place}@best.")
    if steps not in (None, done) or int(newest.name) != done:
        return ""
    return (f"{place} is finished: {done} of {done} steps. `postgrad resume {place} steps={2 * done}` would "
            "train it further.")


def saved_config(run: Run, objects: Mapping[str, object]) -> TrainConfig:
    """The config that a run was saved with. objects: the values that have no name, passed once more."""
    recipe, _ = run.started()
    if recipe not in RECIPES:
        raise ValueError(f"run {run.folder} was made by a recipe {recipe!r}, which this version does not "
                         "have.")
    if edited := run.edited_settings():
        changes = ", ".join(f"{name} {now!r:.60}, {before!r:.60} at the start"
                            for name, (before, now) in edited.items())
        raise ValueError(f"{run.folder / 'config.json'} was edited since the run began ({changes}): a run "
                         "goes on with the settings that it has; put them back, or start a new run from it "
                         f"with model={os.path.relpath(run.folder)}.")
    objects = match_objects(run, objects)
    first = run.folder / "start"  # a model that was passed as an object moves with the run
    model = {"model": str(first)} if first.is_dir() else {}
    remote = {"remote": {**run.config["remote"], "sampler": None}} if given_sampler(run) else {}
    config = settings_from_json(config_class(recipe), run.config | model | remote, objects)
    assert isinstance(config, TrainConfig)
    return config


def match_objects(run: Run, objects: Mapping[str, object]) -> dict[str, object]:
    """The objects that a run was given, each checked against its record in the saved config."""
    records = {name: value for name, value in run.config.items() if is_record(value)}
    if "method" in records and "method" not in objects and records["method"]["name"] in methods.METHODS:
        objects = {**objects, "method": methods.METHODS[records["method"]["name"]]}  # registered again
    for name, saved in records.items():
        if name not in objects:
            raise ValueError(f"this run was given its {name} in Python ({saved['given']} {saved['name']}), "
                             "which has no name to find it by: go on with "
                             f"postgrad.resume({str(run.folder)!r}, {name}=...).")
        if name != "method" and record(objects[name]) != saved:
            raise ValueError(f"the {name} that was handed in is not the one this run began with "
                             f"({saved['given']} {saved['name']}): hand in the same, or start a new run.")
    for name in objects.keys() - records.keys():
        raise ValueError(f"this run found its {name} by name ({run.config.get(name)}): leave {name} out.")
    return {name: objects[name] for name in records}


def given_sampler(run: Run) -> Mapping[str, str] | None:
    """The record of a sampler that was passed as an object."""
    remote = run.config.get("remote")
    sampler = remote.get("sampler") if isinstance(remote, Mapping) else None
    return sampler if isinstance(sampler, Mapping) and is_record(sampler) else None


def resume_saved(run: Run, *, steps: int | None = None, sampler: Sampler | str | None = None,
                 trackers: Sequence[Tracker] = (), **objects: object) -> Run | Follower:
    """Resumes a run by its saved config; a finished run stays as it is.

    steps: another length. sampler: the addresses of its samplers now, any number of them, or the object that
    it was given. objects: the values that have no name, passed once more.
    """
    given = given_sampler(run)
    if given and (sampler is None or record(sampler) != given):
        raise ValueError(f"this run was given its sampler in Python ({given['name']}): go on with "
                         f"postgrad.resume({str(run.folder)!r}, sampler=...), of the same class.")
    config = saved_config(run, objects)
    if steps is not None:
        config = replace_settings(config, {"steps": steps})
    if sampler is not None:
        if not isinstance(config, RolloutConfig) or not (given or config.remote.sampler):
            raise ValueError(f"run {run.folder} samples in its own process: leave sampler out.")
        config = replace(config, remote=replace(config.remote, sampler=sampler))
    return resume_run(run, config, trackers=trackers)


def resume_run(run: Run, config: TrainConfig, *, trackers: Sequence[Tracker] = ()) -> Run | Follower:
    """Resumes from the newest sound checkpoint, or from the start where there is none, to the same bits, with
    any number of ranks; to more steps than the run had, where config.steps says so. A finished run stays.

    Everything is built and checked before anything in the run is changed.
    """
    processes.join_ranks()
    check_sharding(config)
    check_inputs(run, config)
    if finished(run, config.steps):
        return run
    if not config.save_optimizer and run.checkpoints():
        raise ValueError(f"{run.folder} saved its weights alone (save_optimizer=false), so it cannot go on: "
                         f"start a new run from them with model={os.path.relpath(run.folder)}.")
    seed_everything(config.seed)
    with run.locked() if processes.leads() else nullcontext():
        checkpoint = processes.agreed(run.newest, "looked for the checkpoint")
        source, done = model_source(config, checkpoint), int(checkpoint.name) if checkpoint else 0
        config, _ = fill_defaults(config, source.origin if source else None)
        steps = config.last_step
        if steps < done or (steps == done != run.config["steps"]):
            raise ValueError(f"{run.folder} has made {done} steps already: steps={steps} leaves nothing to "
                             f"do; name more than {done}.")
        setup = build_setup(config, source)
        if checkpoint:
            restore_checkpoint(checkpoint, setup)
        setup.optim.factor = processes.agreed(lambda: rate_factor(run, done), "agreed on the rate")
        if not processes.leads():
            return train_to_end(Follower(run.folder, done), setup, config)
        run.go_back(checkpoint)
        notes = [("damaged", f"passed over: {damage}") for damage in run.damaged.values()]
        notes += [("damaged", sentence) for sentence in run.changed_logs]
        if {run.info["steps"], run.config["steps"]} != {steps}:
            notes.append(("steps", length_note(run, config, setup)))
            run.set_steps(steps)
        return train_to_end(run, setup, config, trackers, notes)


def length_note(run: Run, config: TrainConfig, setup: TrainingSetup) -> str:
    """What another number of steps means for the learning rate."""
    last = run.next_step - 1
    before = next((row["lr"] for row in reversed(run.rows("metrics")[0]) if "lr" in row), None)
    after = f", after {before:.2g} at step {last}" if before is not None else ""
    return (f"{config.steps} steps instead of {run.info['steps']}: the rate goes on as in a run of "
            f"{config.steps} (optim.schedule={config.optim.schedule}), {setup.optim.lr(last + 1):.2g} at "
            f"step {last + 1}{after}")


def restore_checkpoint(checkpoint: Path, setup: TrainingSetup) -> None:
    """Restores the models, the optimizer and the batches."""
    state = read_state(checkpoint)
    try:
        restore_state(state, setup.models, setup.optim, setup.batches)
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
        why = f"{type(error).__name__}: {error_text(error)}"
        raise ValueError(f"the checkpoint {checkpoint} does not fit this run ({why}): go back to another, or "
                         "start a new run.") from error


def train_to_end(run: Run | Follower, setup: TrainingSetup, config: TrainConfig,
                 trackers: Sequence[Tracker] = (),
                 notes: Sequence[tuple[str, str]] = ()) -> Run | Follower:
    """Trains to the last step or to a signal, and reports the end to the trackers. notes: events to begin
    with, (kind, text)."""
    tracked, trouble = RunTrackers(run, trackers), None
    display = next((tracker for tracker in trackers if isinstance(tracker, Display)), None)
    try:
        with (run.locked(), SampleLog(run) as log, Saves(run, config.kept_checkpoints) as saves,
              stop_on_signal(display.stopping if display else None) as stop,
              memory_advice(config, setup.models), seldom_collected()):
            if isinstance(run, Run):
                failures, trouble = VerifierFailures(tracked), TroubleAlerts(tracked, config)
                tracked.trackers += [MetricAlerts(tracked, metric_limits(config)), failures, trouble]
            hooks = step_hooks(tracked, setup, config, stop, saves, log, trouble)
            tracked.start()
            for kind, text in notes:
                (tracked.repeat_event if kind in ("damaged", HALVED) else tracked.event)(kind, text)
            if (setup.evaluate and setup.evaluate_every and run.next_step == 1
                    and (isinstance(run, Run) or config.optim.divides)):
                evaluate_policy(tracked, setup, config, 0)
            early: HalveRate | Stopped | None = None
            try:
                train(setup.models, setup.batches, setup.objective, setup.optim, tracked, hooks,
                      meanwhile=log.ask)
            except (HalveRate, Stopped) as end:
                early = end.with_traceback(None)  # which holds the models
                if isinstance(end, Stopped) and not end.exit_code:
                    tracked.event("ended", str(end), run.next_step - 1)
            if isinstance(run, Run) and (text := failures.summary()):
                tracked.event(KIND, text)
    except BaseException as error:
        report_failure(tracked, error)
        raise
    if isinstance(early, HalveRate):
        return train_slower(run, setup, config, trackers, early)
    tracked.end(*(("stopped", str(early)) if early and not early.final else ("done",)))
    if early and early.exit_code:
        raise early
    processes.gather(None, "came to the end")
    return run


def report_failure(tracked: RunTrackers, error: BaseException) -> None:
    """Tells the trackers that a run did not come to its end."""
    if isinstance(error, RunGone):
        with suppress(RunGone):  # its folder is gone too
            tracked.end("failed", str(error))
    elif isinstance(error, KeyboardInterrupt):
        tracked.end("stopped", "stopped at once, without a checkpoint")
    else:
        processes.tell_end(str(error))
        tracked.end("failed", f"{type(error).__name__}: {error}")


def train_slower(run: Run | Follower, setup: TrainingSetup, config: TrainConfig,
                 trackers: Sequence[Tracker], trouble: HalveRate) -> Run | Follower:
    """Trains on from the last checkpoint before the trouble, or from the start, at half the rate."""
    factor = setup.optim.factor / 2
    vars(setup).clear()  # frees the models before others are opened
    if (first := run.folder / "start").is_dir():  # as a resumed run has it
        config = replace_settings(config, {"model": str(first)})
    seed_everything(config.seed)
    with run.locked():
        checkpoint = processes.agreed(lambda: run.newest(good_checkpoints(run, trouble.since))
                                      if isinstance(run, Run) else None, "looked for the checkpoint")
        done = int(checkpoint.name) if checkpoint else 0
        setup = build_setup(config, model_source(config, checkpoint))
        if checkpoint:
            restore_checkpoint(checkpoint, setup)
        setup.optim.factor = factor
        if not isinstance(run, Run):
            return train_to_end(Follower(run.folder, done), setup, config)
        run.go_back(checkpoint)
        text = (f"{trouble}; on_trouble=halve_rate: back to {f'step {done}' if done else 'the start'}, with "
                f"a rate of {setup.optim.lr(done + 1):.2g} at step {done + 1}, {factor:g} of what was set")
        run.event(HALVED, text, after=done, factor=factor)
        return train_to_end(run, setup, config, trackers, [(HALVED, text)])

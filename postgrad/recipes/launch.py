"""Starts and resumes trainings by name: runs and pipelines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from postgrad.recipes.base import TrainConfig
from postgrad.recipes.defaults import fill_defaults
from postgrad.recipes.pipelines.measured import MeasuredConfig
from postgrad.recipes.pipelines.stages import StageTrackers, run_pipeline, saved_plan
from postgrad.recipes.registry import config_class, is_pipeline, recipe_module
from postgrad.recipes.running import resume_saved, start_run
from postgrad.runs import Follower, Run
from postgrad.runs.rows import JsonDict
from postgrad.runs.tracker import Tracker
from postgrad.sampling import Sampler
from postgrad.system import processes
from postgrad.system.settings import Settings, settings_from_json


def start_pipeline(recipe: str, config: Settings, folder: Path, *, command: str = "",
                   stages: StageTrackers | None = None) -> JsonDict:
    """Runs a pipeline in the folder; -> its summary."""
    if processes.started() > 1:
        raise ValueError(f"{recipe} is several trainings and goes on in one process: leave torchrun out, "
                         "or train its stages one by one with `torchrun ... -m postgrad train`.")
    config, _ = fill_defaults(config)
    pipeline = recipe_module(recipe).pipeline(config)
    if isinstance(config, MeasuredConfig) and config.template:
        pipeline = pipeline.from_template(config, config.model)
    return run_pipeline(pipeline, folder, stages=stages, command=command, recipe=recipe, config=config)


def start_training(recipe: str, config: Settings, folder: Path, *, command: str = "",
                   trackers: Sequence[Tracker] = ()) -> Run | Follower | JsonDict:
    """Trains a new run in the folder; of a pipeline, returns the summary."""
    if is_pipeline(recipe):
        return start_pipeline(recipe, config, folder, command=command, stages=StageTrackers(trackers))
    assert isinstance(config, TrainConfig)
    return start_run(config, folder, command=command, trackers=trackers)


def saved_pipeline(folder: Path) -> JsonDict | None:
    """pipeline.json of the folder; None where it holds no pipeline."""
    path = folder / "pipeline.json"
    if not path.exists():
        return None
    started = saved_plan(path)
    if not isinstance(started.get("command"), str) or not isinstance(started.get("config"), dict):
        raise ValueError(f"{path} does not say what was started: restore the file from a copy.")
    if started.get("recipe") == "python":
        raise ValueError(f"the pipeline in {folder} was made in Python and has no name to find it by: go on "
                         f"there, with pipeline.run({str(folder)!r}).")
    if not is_pipeline(str(started.get("recipe"))):
        raise ValueError(f"{folder} was made by a pipeline {started.get('recipe')!r:.60}, which this version "
                         "does not have.")
    return started


def resume_pipeline(folder: Path, stages: StageTrackers | None = None) -> JsonDict:
    """Resumes the pipeline in the folder; -> its summary."""
    started = saved_pipeline(folder)
    assert started is not None, f"{folder} holds no pipeline"
    config = settings_from_json(config_class(started["recipe"]), started["config"])
    return start_pipeline(started["recipe"], config, folder, stages=stages, command=started["command"])


def resume_training(folder: Path, *, steps: int | None = None, sampler: Sampler | str | None = None,
                    trackers: Sequence[Tracker] = (), **objects: object) -> Run | Follower | JsonDict:
    """Resumes the run (as `resume_saved`) or the pipeline in the folder."""
    if saved_pipeline(folder):
        if steps is not None or sampler is not None:
            raise ValueError(f"{folder} is a pipeline, whose stages have settings of their own: resume one "
                             f"of its runs, {folder}/STAGE.")
        return resume_pipeline(folder, StageTrackers(trackers))
    return resume_saved(Run.open(folder), steps=steps, sampler=sampler, trackers=trackers, **objects)

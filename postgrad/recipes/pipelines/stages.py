"""Several runs that build on each other, in one folder.

What is done stays done: going on does only what is left.

FOLDER/pipeline.json    what was started: recipe, config, command
FOLDER/STAGE/           a run each
FOLDER/summary.json     written at the end by the recipe
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from postgrad.files import write_text
from postgrad.recipes import module, resume, running
from postgrad.recipes.base import RunConfig
from postgrad.recipes.defaults import fitted
from postgrad.run import Run
from postgrad.run.rows import read_json
from postgrad.settings import plain

FILE = "pipeline.json"


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One run of a pipeline, by a config of its recipe."""

    name: str
    config: RunConfig

    @property
    def recipe(self) -> str:
        return self.config.recipe

    @property
    def build(self) -> Callable:
        return module(self.recipe).build


def begin(recipe: str, config, folder: Path, command: str) -> None:
    """Writes down what was started, once; another pipeline in the folder is refused."""
    said = {"recipe": recipe, "config": plain(config), "command": command}
    path = folder / FILE
    if path.exists():
        if read_json(path).get("config") != said["config"]:
            raise ValueError(f"{folder} holds a pipeline with other settings: choose another folder with "
                             f"--run, or go on with `postgrad resume {folder}`.")
        return
    if folder.exists() and any(folder.iterdir()):
        raise ValueError(f"{folder} is not empty: choose another folder with --run.")
    folder.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(said, indent=1))


def unfinished(config, folder: Path) -> bool:
    """Whether a pipeline with just these settings was begun in the folder, and has not come to its end."""
    path = folder / FILE
    begun = path.exists() and json.loads(path.read_text())["config"] == plain(config)
    return begun and not (folder / "summary.json").exists()


def carry_out(stage: Stage, folder: Path, *, watch, command: str) -> Run:
    """The stage's run: started, gone on with, or found done."""
    place = folder / stage.name
    if (place / "run.json").exists():
        run = Run.open(place)
        if run.summary()["state"] == "done":
            return run
        with watch.stage(stage.name, run.info["steps"]) as eyes:
            return resume(place, watch=eyes)
    config, _ = fitted(stage.config)
    with watch.stage(stage.name, config.steps) as eyes:
        return running.start(stage.recipe, config, stage.build, place, command=command, watch=eyes)


def minutes(run: Run) -> float:
    """What the steps of a run took, all in all."""
    return sum(run.curve("time/step")[1]) / 60


def conclude(folder: Path, summary: dict) -> dict:
    write_text(folder / "summary.json", json.dumps(summary, indent=1))
    return summary

"""Carrying out a pipeline: the steps in order, those that are done left alone, and the summary at the end."""

from __future__ import annotations

import json
import shutil
import time
from contextlib import nullcontext
from pathlib import Path

from postgrad.recipes.pipelines.stages import MEASURED, Done, Pipeline, minutes
from postgrad.runs.rows import read_json
from postgrad.system.files import write_text
from postgrad.system.renamed import translate_config
from postgrad.system.settings import Settings, settings_to_json

FILE, STATE, SUMMARY = "pipeline.json", "state.json", "summary.json"
HANDED_IN = "python"  # the recipe of a pipeline that has no name to find it by
FIGURES = ("pass@1", "reward", "format", "greedy", "mean_length")


class Quiet:
    """A watcher that shows nothing."""

    def stage(self, name: str, steps: int):
        return nullcontext()

    def track(self, label: str):
        return iter


def carry_out(pipeline: Pipeline, folder: Path, *, watch=None, command: str = "", recipe: str = HANDED_IN,
              config: Settings | None = None) -> dict:
    """Carries out a pipeline in a folder, or what is left of it; -> its summary.

    recipe, config: by which it is found again to go on; without them it was handed in.
    """
    begin(pipeline, folder, recipe, config, command)
    sweep(folder)
    done = Done(folder=folder, command=command, seconds=seconds_in(folder))
    for step in pipeline.steps:
        began, was_done = time.perf_counter(), step.done(folder)
        done.add(step, step.carry_out(folder, watch or Quiet(), command))
        if not was_done:
            done.seconds[f"{step.kind} {step.name}"] = time.perf_counter() - began
            write_text(folder / STATE, json.dumps({"seconds": done.seconds}, indent=1))
    summary = {"recipe": pipeline.name, "command": command, "minutes": done.minutes,
               **(pipeline.summarise or usual_summary)(done)}
    write_text(folder / SUMMARY, json.dumps(summary, indent=1))
    return summary


def begin(pipeline: Pipeline, folder: Path, recipe: str, config: Settings | None, command: str) -> None:
    """Writes down what was started, once; another pipeline in the folder is refused."""
    said = {"recipe": recipe, "name": pipeline.name, "config": settings_to_json(config) if config else {},
            "command": command, "steps": pipeline.described()}
    path = folder / FILE
    if path.exists():
        began, now = read_json(path), json.loads(json.dumps(said))
        if began.get("recipe") != now["recipe"] or todays(began.get("config")) != now["config"]:
            raise ValueError(f"{folder} holds a pipeline with other settings: choose another folder with "
                             f"--run, or go on with `postgrad resume {folder}`.")
        if recipe in (HANDED_IN, "own") and todays(began.get("steps")) != now["steps"]:
            raise ValueError(f"{folder} holds a pipeline with other steps: put back those it began with, or "
                             "choose another folder.")
        return
    if folder.exists() and any(not place.name.startswith(".") for place in folder.iterdir()):
        raise ValueError(f"{folder} is not empty: choose another folder with --run.")
    folder.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(said, indent=1))


def todays(saved: object) -> object:
    """What was saved, by today's names of settings: a config, or steps with theirs."""
    if isinstance(saved, list):
        return [{**step, "settings": todays(step.get("settings"))} if isinstance(step, dict) else step
                for step in saved]
    return translate_config(saved) if isinstance(saved, dict) else saved


def sweep(folder: Path) -> None:
    """Clears away what was half written when a process was killed: hidden, beside what it was to become."""
    for place in (*folder.glob(".*"), *folder.glob(f"{MEASURED}/.*")):
        shutil.rmtree(place) if place.is_dir() else place.unlink()


def unfinished(config: Settings, folder: Path) -> bool:
    """Whether a pipeline with just these settings was begun in the folder, and has not come to its end."""
    path = folder / FILE
    begun = path.exists() and read_json(path).get("config") == settings_to_json(config)
    return begun and not (folder / SUMMARY).exists()


def seconds_in(folder: Path) -> dict[str, float]:
    path = folder / STATE
    return dict(read_json(path)["seconds"]) if path.exists() else {}


def usual_summary(done: Done) -> dict:
    """A row for each measurement: its figures, and what made the model."""
    rows = []
    for name, found in done.measured.items():
        run = done.runs.get(name)
        figures = {key: found[key] for wanted in FIGURES for key in (wanted, f"{wanted}_interval")
                   if found.get(key) is not None}
        rows.append({"model": name, "made by": run.info.get("method") if run else "",
                     **figures, "minutes": minutes(run) if run else 0.0})
    return {"data": done.data, "measured": done.measured, "tables": {"What was measured": rows}}

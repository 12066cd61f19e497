"""The recipes by name, and how a name on the command line becomes a config."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from postgrad.recipes.config import override, suggest, unplain

RECIPES = {"sft": "SFTConfig", "reward": "RewardConfig", "process": "ProcessConfig", "preference": "PreferenceConfig",
           "grpo": "GRPOConfig", "pretrain": "PretrainConfig"}
PIPELINES = {"align": "AlignConfig", "overoptimise": "OveroptimiseConfig"}  # several runs in one folder
ALIASES = {  # a row of the table stands for the recipe that trains it
    "outcome": "process",
    **dict.fromkeys(("dpo", "ipo", "cdpo", "simpo", "orpo", "cpo", "kto"), "preference"),
    **dict.fromkeys(("ppo", "reinforce", "rloo", "dr_grpo", "dapo", "gspo", "cispo", "nano", "online_dpo", "best_of_n",
                     "rejection"), "grpo"),
}


def module(recipe: str):
    return import_module(f"postgrad.recipes.{recipe}")


def resolve(spec: str, changes: Sequence[str] = (), task: str | None = None):
    """resolve("grpo:words", ["optim.lr=1e-4"]) -> ("grpo", config). A method's name stands for its recipe with that method."""
    name, _, setting = spec.partition(":")
    recipe, known = ALIASES.get(name, name), RECIPES | PIPELINES
    if recipe not in known:
        raise ValueError(f"there is no recipe {name!r}.{suggest(name, [*known, *ALIASES])}")
    home = module(recipe)
    if recipe in PIPELINES and not setting and not task and len(home.SETTINGS) == 1:
        setting = next(iter(home.SETTINGS))
    changes = [*([f"method={name}"] if name in ALIASES else []), *([f"task={task}"] if task else []), *changes]
    if setting:
        if setting not in home.SETTINGS:
            raise ValueError(f"recipe {recipe} has no setting {setting!r}.{suggest(setting, home.SETTINGS)}")
        return recipe, override(home.SETTINGS[setting](), changes)
    first = dict(c.split("=", 1) for c in changes if c.startswith(("task=", "data=")))
    if not first:
        options = ", ".join(f"{name}:{s}" for s in home.SETTINGS)
        raise ValueError(f"{name} of what? Name a setting ({options}), or a task of your own with --task FILE.")
    config = getattr(home, known[recipe])(**first)
    return recipe, override(config, [c for c in changes if c.split("=", 1)[0] not in first])


def pipeline_in(folder: Path) -> dict | None:
    """What was started in the folder, if it holds a pipeline."""
    path = folder / "pipeline.json"
    if not path.exists():
        return None
    said = json.loads(path.read_text())
    if said["recipe"] not in PIPELINES:
        raise ValueError(f"{folder} was made by a pipeline {said['recipe']!r}, which this version does not have.")
    return said


def start(recipe: str, config, folder: Path, *, command: str = "", watch=None):
    """Trains a new run in the folder; a pipeline gives its summary."""
    if recipe in PIPELINES:
        return module(recipe).run(config, folder, watch=watch, command=command)
    from postgrad.recipes import base
    return base.start(recipe, config, module(recipe).build, folder, command=command, watch=watch)


def resume(folder: Path, *, watch=None):
    """Goes on with the run or the pipeline in the folder."""
    from postgrad.recipes import base
    from postgrad.run import Run
    if said := pipeline_in(folder):
        home = module(said["recipe"])
        config = unplain(getattr(home, PIPELINES[said["recipe"]]), said["config"])
        return home.run(config, folder, watch=watch, command=said["command"])
    run = Run.open(folder)
    recipe = run.info["recipe"]
    if recipe not in RECIPES:
        raise ValueError(f"run {folder} was made by a recipe {recipe!r}, which this version does not have.")
    home = module(recipe)
    return base.resume(run, unplain(getattr(home, RECIPES[recipe]), run.config), home.build, watch=watch)

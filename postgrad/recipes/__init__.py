"""The recipes by name, and how a name on the command line becomes a config."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from postgrad.recipes.config import override, suggest, unplain

RECIPES = {"sft": "SFTConfig", "preference": "PreferenceConfig", "process": "ProcessConfig", "grpo": "GRPOConfig",
           "pretrain": "PretrainConfig"}
ALIASES = {  # a row of the table stands for the recipe that trains it
    **dict.fromkeys(("dpo", "ipo", "cdpo", "simpo", "orpo", "cpo", "reward"), "preference"),
    "outcome": "process",
    **dict.fromkeys(("ppo", "reinforce", "rloo", "dr_grpo", "dapo", "gspo", "cispo", "nano"), "grpo"),
}


def module(recipe: str):
    return import_module(f"postgrad.recipes.{recipe}")


def resolve(spec: str, changes: Sequence[str] = (), task: str | None = None):
    """resolve("grpo:words", ["optim.lr=1e-4"]) -> ("grpo", config). A method's name stands for its recipe with that method."""
    name, _, setting = spec.partition(":")
    recipe = ALIASES.get(name, name)
    if recipe not in RECIPES:
        from postgrad.methods import METHODS
        if name in METHODS:
            raise ValueError(f"{name} has its row in the table (postgrad methods {name}), but no recipe trains it yet; "
                             f"there is: {', '.join([*RECIPES, *ALIASES])}.")
        raise ValueError(f"there is no recipe {name!r}.{suggest(name, [*RECIPES, *ALIASES])}")
    home = module(recipe)
    changes = [*([f"method={name}"] if name in ALIASES else []), *([f"task={task}"] if task else []), *changes]
    if setting:
        if setting not in home.SETTINGS:
            raise ValueError(f"recipe {recipe} has no setting {setting!r}.{suggest(setting, home.SETTINGS)}")
        return recipe, override(home.SETTINGS[setting](), changes)
    first = dict(c.split("=", 1) for c in changes if c.startswith(("task=", "data=")))
    if not first:
        options = ", ".join(f"{name}:{s}" for s in home.SETTINGS)
        raise ValueError(f"{name} of what? Name a setting ({options}), or a task of your own with --task FILE.")
    config = getattr(home, RECIPES[recipe])(**first)
    return recipe, override(config, [c for c in changes if c.split("=", 1)[0] not in first])


def start(recipe: str, config, folder: Path, *, command: str = "", watch=None):
    """Trains a new run in the folder."""
    from postgrad.recipes import base
    return base.start(recipe, config, module(recipe).build, folder, command=command, watch=watch)


def resume(folder: Path, *, watch=None):
    """Goes on with the run in the folder."""
    from postgrad.recipes import base
    from postgrad.run import Run
    run = Run.open(folder)
    recipe = run.info["recipe"]
    if recipe not in RECIPES:
        raise ValueError(f"run {folder} was made by a recipe {recipe!r}, which this version does not have.")
    home = module(recipe)
    return base.resume(run, unplain(getattr(home, RECIPES[recipe]), run.config), home.build, watch=watch)

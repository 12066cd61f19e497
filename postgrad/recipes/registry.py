"""The recipes by name, and the config that a name and its settings stand for.

The command line, the studio's form and `fit` come through here. A recipe is a config dataclass, a `build`
that makes a TrainingSetup of it, and a few named settings. Which recipe trains a method follows from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from types import ModuleType

from postgrad import methods
from postgrad.data.tasks import is_task_name
from postgrad.recipes.foreign_settings import OTHER_NAMES
from postgrad.system.renamed import renamed_setting
from postgrad.system.settings import Settings, replace_settings, suggest

RECIPES = {"sft": "SFTConfig", "reward": "RewardConfig", "process": "ProcessConfig",
           "preference": "PreferenceConfig", "rollouts": "RolloutConfig", "pretrain": "PretrainConfig"}
PIPELINES = {"r1-zero": "R1ZeroConfig", "r1": "R1Config", "instruct": "InstructConfig",
             "align": "AlignConfig", "overoptimise": "OveroptimiseConfig",
             "oversight": "OversightConfig",
             "expert-iteration": "ExpertIterationConfig"}  # several runs in one folder
OBJECTS = ("task", "data", "reward", "teacher", "method")  # settings that `fit` takes as objects
DATA_HINTS = {"data": "data=FILE.jsonl", "task": "--task FILE"}
STAGED = PIPELINES | {"demo": "DemoConfig", "own": "OwnConfig"}  # and those with a command of their own
CONFIGS = RECIPES | STAGED  # everything that can be resumed


def recipe_module(recipe: str) -> ModuleType:
    inside = "" if recipe in RECIPES else "pipelines."
    return import_module(f"postgrad.recipes.{inside}{recipe.replace('-', '_')}")


def config_class(recipe: str) -> type[Settings]:
    found: type[Settings] = getattr(recipe_module(recipe), CONFIGS[recipe])
    return found


def recipe_names() -> list[str]:
    """Everything that can be trained by name: methods, pretraining, pipelines."""
    return [*methods.METHODS, "pretrain", *PIPELINES]


def recipe_for(method: methods.Method) -> str:
    """The recipe that trains a method: it follows from where its batches come from, and what it trains.

    A method on pairs without a score of its own trains a scalar head: a reward model.
    """
    if method.source == "pairs":
        return "reward" if getattr(method, "score", None) is None else "preference"
    return {"conversations": "sft", "singles": "preference", "steps": "process", "outcomes": "process"}.get(
        method.source, "rollouts")


def recipe_named(name: str) -> tuple[str, methods.Method | None]:
    """The recipe that a name stands for, and the method where it is one: "dapo" -> ("rollouts", DAPO)."""
    if name in PIPELINES or name == "pretrain":
        return name, None
    if name not in methods.METHODS and not name.endswith(".py") and ".py:" not in name:
        raise ValueError(f"there is no recipe {name!r}.{suggest(name, recipe_names())}")
    method = methods.get_method(name)
    return recipe_for(method), method


def split_spec(spec: str) -> tuple[str, str]:
    """What is trained, and the named setting: "grpo:words" -> ("grpo", "words"); "mine.py:soft" is a method
    of a file."""
    if ".py" in spec:
        return spec, ""
    name, _, setting = spec.partition(":")
    return name, setting


def config_for(spec: str, settings: Mapping[str, object] | None = None,
               task: str | None = None) -> tuple[str, Settings]:
    """config_for("grpo:words", {"optim.lr": 1e-4}) -> ("rollouts", config).

    settings: Python values by name, as `replace_settings` takes them; a method in place of the one that the
    spec names.
    """
    settings = {**(settings or {}), **({"task": task} if task else {})}
    name, setting = split_spec(spec)
    if name.endswith(".py") and recipe_module("own").is_pipeline(Path(name)):
        return "own", recipe_module("own").OwnConfig(file=name, changes=settings)
    recipe, method = recipe_named(name)
    if recipe in PIPELINES and not setting and not task:
        setting = next(iter(recipe_module(recipe).SETTINGS))
    return recipe, make_config(name, recipe, setting, {**({"method": method} if method else {}), **settings})


def make_config(name: str, recipe: str, setting: str, settings: Mapping[str, object]) -> Settings:
    """The config of a recipe: a named setting's or the recipe's defaults, with other settings."""
    named, kind = recipe_module(recipe).SETTINGS, config_class(recipe)
    known = {f.name for f in fields(kind)}
    for other in (other for other in OBJECTS if other in settings and other not in known):
        raise ValueError(f"{name} takes no {other}: leave it out.")
    if setting:
        if setting not in named:
            raise ValueError(f"recipe {name} has no setting {setting!r}."
                             f"{task_hint(setting, known) or suggest(setting, named)}")
        return replace_settings(named[setting](), settings, setting_hint)
    if not DATA_HINTS.keys() & settings.keys():
        options = ", ".join(f"{name}:{s}" for s in named)
        own = [f"{what} of your own with {how}" for what, how in DATA_HINTS.items() if what in known]
        raise ValueError(f"{name} of what? Name {', or '.join([*own, f'a setting ({options})'])}.")
    first = {key: value for key, value in settings.items() if key in OBJECTS or isinstance(value, Settings)}
    rest = {key: value for key, value in settings.items() if key not in first}
    return replace_settings(kind(**first), rest, setting_hint)


def task_hint(setting: str, known: Set[str]) -> str:
    """What to write for a task that was taken for a named setting."""
    if "task" not in known or not is_task_name(setting):
        return ""
    return f" It is a task: write --task {setting} (in Python task={setting!r})."


def setting_hint(name: str) -> str:
    """What a setting of another library or of version 0.1 is called here; "" for any other name."""
    if new := renamed_setting(name):
        return f" It is now {new!r}."
    return f" {OTHER_NAMES[name][1]}" if name in OTHER_NAMES else ""

"""Recipes by name, and the config of a name and its settings, for the command line, the studio and `fit`.

A recipe is a config dataclass, a `build` that makes a TrainingSetup of it, and a few named settings. The
recipe that trains a method follows from the method.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import fields
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from types import ModuleType

from postgrad import methods
from postgrad.data.tasks import is_task_name
from postgrad.recipes.foreign_settings import (
    LENGTH,
    OTHER_MEANING,
    OTHER_NAMES,
    STEP_SIZE,
    foreign_answer,
    near_foreign_name,
)
from postgrad.runs import Run
from postgrad.system.files import error_text, load_json, read_text
from postgrad.system.renamed import renamed_pipeline, renamed_setting, translate_config
from postgrad.system.settings import SettingNames, Settings, replace_settings, suggest
from postgrad.system.user_code import GIVEN, is_record, load_file, parse_source

RECIPES = {"sft": "SFTConfig", "reward": "RewardConfig", "process": "ProcessConfig",
           "preference": "PreferenceConfig", "rollouts": "RolloutConfig", "pretrain": "PretrainConfig"}
PIPELINES = {"r1-zero": "R1ZeroConfig", "r1": "R1Config", "instruct": "InstructConfig",
             "align": "AlignConfig",
             "expert-iteration": "ExpertIterationConfig"}  # several runs in one folder
# settings that `fit` takes as objects
OBJECTS = ("task", "data", "eval_task", "eval_data", "reward", "teacher", "method")
DATA_HINTS = {"data": "data=FILE.jsonl", "task": "--task FILE (in Python task=)"}
STAGED = PIPELINES | {"demo": "DemoConfig", "own": "OwnConfig"}  # and those with a command of their own
CONFIGS = RECIPES | STAGED  # everything that can be resumed


def pipeline_recipe(file: str) -> str:
    """The recipe of a Python file that defines `pipeline`, which is not run: the file itself where it defines
    SETTINGS as well, else "own"; "" for any other file."""
    try:
        body = parse_source(read_text(file)).body if file.endswith(".py") else []
    except (SyntaxError, ValueError):
        return ""  # loading the file says what is wrong with it
    names = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    names |= {target.id for node in body if isinstance(node, ast.Assign) for target in node.targets
              if isinstance(target, ast.Name)}
    return "" if "pipeline" not in names else file if "SETTINGS" in names else "own"


def is_pipeline(recipe: str) -> bool:
    """Whether a recipe is several runs: a pipeline of the package, or of a file."""
    return recipe in STAGED or recipe.endswith(".py")


@cache
def load_settings_file(path: str, text: str) -> ModuleType:
    """The module of a file that defines `pipeline(config)` and SETTINGS, named configs.

    text: of the file. It is loaded once as long as it stays the same, so that its config classes do too.
    """
    module = load_file(Path(path), "pipeline")
    named = module.SETTINGS
    if not callable(module.pipeline) or not isinstance(named, Mapping) or not named:
        raise ValueError(f"{path}: SETTINGS names the configs of pipeline(config): write "
                         'SETTINGS = {"full": MyConfig} and def pipeline(config: MyConfig).')
    if not isinstance(config := next(iter(named.values()))(), Settings):
        raise ValueError(f"{path}: SETTINGS makes a {type(config).__name__}: its configs are dataclasses "
                         "that inherit from postgrad.system.settings.Settings.")
    return module


def recipe_module(recipe: str) -> ModuleType:
    if recipe.endswith(".py"):
        return load_settings_file(recipe, read_text(recipe) if Path(recipe).is_file() else "")
    inside = "" if recipe in RECIPES else "pipelines."
    return import_module(f"postgrad.recipes.{inside}{recipe.replace('-', '_')}")


def config_class(recipe: str) -> type[Settings]:
    if recipe.endswith(".py"):
        return type(next(iter(recipe_module(recipe).SETTINGS.values()))())
    config: type[Settings] = getattr(recipe_module(recipe), CONFIGS[recipe])
    return config


def recipe_names() -> list[str]:
    """Everything that can be trained by name: methods, pretraining, pipelines."""
    return [*methods.METHODS, "pretrain", *PIPELINES]


def recipe_for(method: methods.Method) -> str:
    """The recipe that trains a method, by the source of its batches. A method on pairs without a score
    trains a scalar head: a reward model."""
    if method.source == "pairs":
        return "preference" if isinstance(method, methods.Preference) and method.score else "reward"
    return {"conversations": "sft", "singles": "preference", "steps": "process", "outcomes": "process"}.get(
        method.source, "rollouts")


def recipe_named(name: str) -> tuple[str, methods.Method | None]:
    """The recipe of a name, and the method where it is one: "dapo" -> ("rollouts", DAPO)."""
    if name in PIPELINES or name == "pretrain":
        return name, None
    if recipe := pipeline_recipe(name):
        return recipe, None
    if file := renamed_pipeline(name):
        raise ValueError(f"{name} is the lab {file} of the source tree: write `postgrad train {file}` there.")
    if name not in methods.METHODS and not name.endswith(".py") and ".py:" not in name:
        raise ValueError(f"there is no recipe {name!r}.{suggest(name, recipe_names())} `postgrad methods` "
                         "lists them.")
    method = methods.get_method(name)
    return recipe_for(method), method


def split_spec(spec: str) -> tuple[str, str]:
    """The method or pipeline, and the named setting: "grpo:words" -> ("grpo", "words"), "lab.py:quick" ->
    ("lab.py", "quick") for a pipeline with SETTINGS; any other "mine.py:soft" is a method of a file."""
    if ".py" in spec:
        file, _, setting = spec.rpartition(":")
        return (file, setting) if file and pipeline_recipe(file) == file else (spec, "")
    name, _, setting = spec.partition(":")
    return name, setting


def read_config(place: str | Path | Mapping[str, object]) -> tuple[str, dict[str, object]]:
    """(what is trained, its settings by dotted names) of a config: a run's config.json, a run's folder, or a
    file or dict of one's own.

    read_config({"recipe": "grpo:words", "optim": {"lr": 1e-4}}) -> ("grpo:words", {"optim.lr": 1e-4}). A
    method may stand in place of a recipe, as in the files of runs.
    """
    values: object = place
    name, folder = "config", None
    if not isinstance(place, Mapping):
        name = str(place)
        path = Path(place) / "config.json" if Path(place).is_dir() else Path(place)
        try:
            values = load_json(path)
        except (OSError, ValueError) as error:
            raise ValueError(f"{name} is no config ({error_text(error)}): give config.json of a run, or a "
                             "JSON file with settings by their names.") from error
        folder = path.parent if (path.parent / "run.json").is_file() else None
    if not isinstance(values, Mapping):
        raise ValueError(f"{name} holds {values!r:.60}: a config is a dictionary of settings by their names.")
    values = translate_config(values) if folder else dict(values)
    method, recipe = values.get("method"), values.pop("recipe", None)
    if isinstance(method, Mapping) and is_record(method):
        raise ValueError(f"the method of {name} was handed in as an object, which a file cannot hold: write "
                         "it in FILE.py, and name that as the method.")
    if folder and (folder / "start").is_dir():  # a model that was handed in as an object
        values["model"] = str(folder / "start")
    if not recipe and not method and folder:
        recipe = Run.open(folder).info.get("recipe")
    named = recipe or (method.get("name") if isinstance(method, Mapping) else method)
    if not isinstance(named, str):
        raise ValueError(f'{name} does not say what is trained: add "recipe": "grpo:words", or "method".')
    return named, dict(flat_values(values))


def flat_values(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    """{"optim": {"lr": 0.1}} -> ("optim.lr", 0.1); what `fit` takes as objects stays whole."""
    for key, value in values.items():
        if isinstance(value, Mapping) and key not in OBJECTS and not is_record(value):
            yield from flat_values(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def override_config(base: Mapping[str, object], settings: Mapping[str, object]) -> dict[str, object]:
    """The settings of `read_config` with others in their place: another task instead of data, epochs instead
    of steps."""
    instead = {name for pair in ({"task", "data"}, {"steps", "epochs"}) if pair & settings.keys()
               for name in pair}
    merged = {**{name: value for name, value in base.items() if name not in instead}, **settings}
    for name, value in merged.items():
        if isinstance(value, Mapping) and is_record(value):
            raise ValueError(f"{name} of this config was handed in as an object ({value[GIVEN]} "
                             f"{value.get('name')}), which a file cannot hold: give {name}= once more.")
    return merged


def config_for(spec: str, settings: Mapping[str, object] | None = None, task: str | None = None,
               base: Mapping[str, object] | None = None) -> tuple[str, Settings]:
    """config_for("grpo:words", {"optim.lr": 1e-4}) -> ("rollouts", config).

    settings: Python values by name, as in `replace_settings`; a method replaces that of the spec. base: those
    of `read_config`, which `settings` override.
    """
    settings = settings or {}
    if task and settings.get("task"):
        raise ValueError(f"the task is named twice, --task {task} and task={settings['task']}: name one.")
    settings = override_config(base or {}, {**settings, **({"task": task} if task else {})})
    name, setting = split_spec(spec)
    recipe, method = recipe_named(name)
    if recipe == "own":
        return recipe, recipe_module("own").OwnConfig(file=name, changes=settings)
    if is_pipeline(recipe) and not setting and not task:
        setting = next(iter(recipe_module(recipe).SETTINGS))
    return recipe, make_config(name, recipe, setting, {**({"method": method} if method else {}), **settings})


def make_config(name: str, recipe: str, setting: str, settings: Mapping[str, object]) -> Settings:
    """The config of a recipe: a named setting's or the recipe's defaults, with changed settings."""
    check_meaning(settings)
    named: Mapping[str, Callable[[], Settings]] = recipe_module(recipe).SETTINGS
    kind = config_class(recipe)
    known, hint = {f.name for f in fields(kind)}, partial(setting_hint, kind=kind)
    refuse_objects(name, known, settings)
    if setting:
        return replace_settings(*named_config(name, setting, named, known, settings), hint)
    if not DATA_HINTS.keys() & settings.keys():
        raise missing_data(name, named, kind, settings)
    first = {key: value for key, value in settings.items() if key in OBJECTS or isinstance(value, Settings)}
    rest = {key: value for key, value in settings.items() if key not in first}
    return replace_settings(kind(**first), rest, hint)


def named_config(name: str, setting: str, named: Mapping[str, Callable[[], Settings]], known: Set[str],
                 settings: Mapping[str, object]) -> tuple[Settings, Mapping[str, object]]:
    """(a named setting's config, what is to be changed in it)."""
    if setting not in named:
        raise ValueError(f"recipe {name} has no setting {setting!r}."
                         f"{place_hint(setting, known) or suggest(setting, named)}")
    if "epochs" in settings and {"epochs", "data"} <= known:  # instead of the named setting's steps
        settings = {"steps": None, **settings}
    return named[setting](), settings


def missing_data(name: str, named: Iterable[str], kind: type[Settings],
                 settings: Iterable[str]) -> ValueError:
    """The error for settings with neither a task nor data."""
    if foreign := next((key for key in settings if key in OTHER_NAMES and not has_setting(
            setting_names(kind), key)), ""):
        return ValueError(f"there is no setting {foreign!r}.{setting_hint(foreign, kind=kind)}")
    options, known = ", ".join(f"{name}:{s}" for s in named), {f.name for f in fields(kind)}
    own = [f"{what} of your own with {how}" for what, how in DATA_HINTS.items() if what in known]
    return ValueError(f"{name} of what? Name {', or '.join([*own, f'a setting ({options})'])}.")


def refuse_objects(name: str, known: Set[str], given: Mapping[str, object]) -> None:
    """Raises ValueError for a task, data, reward, teacher or method that a recipe does not take. known: its
    settings."""
    for other in (other for other in OBJECTS if other in given and other not in known):
        raise ValueError(f"{name} takes no {other}: {instead_of(other, name, known, given[other])}.")


def instead_of(other: str, name: str, known: Set[str], value: object) -> str:
    """What to give a recipe that does not take an object."""
    row = methods.METHODS.get(name)
    learns = f"it learns from {row.source}; " if row else ""
    file = value if isinstance(value, str) else "FILE"
    if other == "data" and "task" in known:
        return f"{learns}its prompts are a task, --task {file} (in Python task=); leave data out"
    if other == "task" and "data" in known:
        return f"{learns}its rows are data={file}; leave task out"
    return f"{learns}leave {other} out"


def place_hint(setting: str, known: Set[str]) -> str:
    """The hint for a task or a file in place of a named setting."""
    if Path(setting).is_file():
        return (f" It is a file: write data={setting}." if "data" in known else
                f" It is a file: write --task {setting} (in Python task={setting!r})." if "task" in known
                else "")
    if "task" not in known or not is_task_name(setting):
        return ""
    return f" It is a task: write --task {setting} (in Python task={setting!r})."


def check_meaning(names: Iterable[str]) -> None:
    """Refuses names that mean another thing in TRL, unless they are written in full."""
    for name in (name for name in names if name in OTHER_MEANING):
        raise ValueError(f"{name!r} would be method.{name} here. {foreign_answer(name)}")


def setting_hint(name: str, kind: type[Settings] | None = None) -> str:
    """The hint for a setting of another library, misspelt or not, or of version 0.1; "" for any other name.
    kind: the config that has no such setting; of another library's name its own settings are told."""
    if new := renamed_setting(name):
        return f" It is now {new!r}."
    own = setting_names(kind) if kind else ()
    known = name if name in OTHER_NAMES else near_foreign_name(name, [key.split(".")[-1] for key in own])
    if not known:
        return other_recipe_hint(name, kind) if kind else ""
    recipe = getattr(kind, "recipe", "it")
    answer = foreign_answer(known, (lambda ours: has_setting(own, ours)) if kind else lambda ours: True,
                            recipe if kind else "")
    return f" {answer}" if known == name else f" Did you mean {known!r}? {answer}"


def setting_names(kind: type[Settings]) -> tuple[str, ...]:
    """The dotted names of a config, with the constants of all rows that its recipe trains."""
    recipe = getattr(kind, "recipe", "")
    constants = {f"method.{key}": None for row in methods.METHODS.values() if recipe_for(row) == recipe
                 for key in row.settings()}
    return (*SettingNames(kind, {}).annotations, *constants)


def other_recipe_hint(name: str, kind: type[Settings]) -> str:
    """The hint for a setting that other recipes have; "" where none has it."""
    own, last = setting_names(kind), name.split(".")[-1]
    if has_setting(own, name):
        return ""
    for ours, _ in (STEP_SIZE, LENGTH):
        if any(last == other.split(".")[-1] for other in ours.split()):
            for other in ours.split():
                if has_setting(own, other):
                    return f" It is called {other} here."
    for recipe in RECIPES:
        if config_class(recipe) is not kind and has_setting(setting_names(config_class(recipe)), name):
            ours = next((row.name for row in methods.METHODS.values() if recipe_for(row) == recipe), recipe)
            return f" It is a setting of {ours} and its kin, and not of {getattr(kind, 'recipe', 'this')}."
    return ""


def has_setting(names: Iterable[str], name: str) -> bool:
    """Whether a setting is among dotted names, its group left out or not."""
    return any(key == name or key.endswith(f".{name}") for key in names)

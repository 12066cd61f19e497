"""The recipes by name, and the config of a run: the command line, the studio's form and `fit` all come
through `config_for`.

A recipe is a config dataclass, a `build` that takes a run apart into models, batches, objective and
optimizer, and a few named settings. Which recipe trains a row of the table follows from the row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import fields, replace
from importlib import import_module
from pathlib import Path

from postgrad import methods
from postgrad.runs.rows import read_json
from postgrad.system import processes
from postgrad.system.renamed import renamed_setting, translate_config
from postgrad.system.settings import Settings, replace_settings, settings_from_json, suggest
from postgrad.system.user_code import is_record, record

RECIPES = {"sft": "SFTConfig", "reward": "RewardConfig", "process": "ProcessConfig",
           "preference": "PreferenceConfig", "rollouts": "RolloutConfig", "pretrain": "PretrainConfig"}
PIPELINES = {"r1-zero": "R1ZeroConfig", "r1": "R1Config", "instruct": "InstructConfig",
             "align": "AlignConfig", "overoptimise": "OveroptimiseConfig",
             "oversight": "OversightConfig",
             "expert-iteration": "ExpertIterationConfig"}  # several runs in one folder
OBJECTS = ("task", "data", "reward", "teacher", "method")  # what `fit` takes as objects
OWN = {"data": "data=FILE.jsonl", "task": "--task FILE"}  # how a recipe is given something of the user's
STAGED = PIPELINES | {"demo": "DemoConfig", "own": "OwnConfig"}  # with those that have a door of their own
CONFIGS = RECIPES | STAGED  # whatever can be resumed


def module(recipe: str):
    inside = "" if recipe in RECIPES else "pipelines."
    return import_module(f"postgrad.recipes.{inside}{recipe.replace('-', '_')}")


def config_class(recipe: str) -> type:
    return getattr(module(recipe), CONFIGS[recipe])


def names() -> list[str]:
    """Everything that can be trained by name: rows of the table, pretraining, pipelines."""
    return [*methods.METHODS, "pretrain", *PIPELINES]


def recipe_for(row: methods.Method) -> str:
    """The recipe that trains a row: it follows from where its batches come from, and what it trains.

    A row on pairs without a score of its own trains a scalar head: a reward model.
    """
    if row.source == "pairs":
        return "reward" if getattr(row, "score", None) is None else "preference"
    return {"conversations": "sft", "singles": "preference", "steps": "process", "outcomes": "process"}.get(
        row.source, "rollouts")


def recipe_of(name: str) -> tuple[str, methods.Method | None]:
    """The recipe that a name stands for, and the row where it is one: "dapo" -> ("rollouts", its row)."""
    if name in PIPELINES or name == "pretrain":
        return name, None
    if name not in methods.METHODS and not name.endswith(".py") and ".py:" not in name:
        raise ValueError(f"there is no recipe {name!r}.{suggest(name, names())}")
    row = methods.get_method(name)
    return recipe_for(row), row


def divided(spec: str) -> tuple[str, str]:
    """What is trained, and the named setting: "grpo:words" -> ("grpo", "words");
    "mine.py:soft" is a row of a file."""
    if ".py" in spec:
        return spec, ""
    name, _, setting = spec.partition(":")
    return name, setting


def config_for(spec: str, settings: Mapping[str, object] | None = None, task: str | None = None):
    """config_for("grpo:words", {"optim.lr": 1e-4}) -> ("rollouts", config).

    settings: Python values by name, as `replace_settings` takes them; a method in place of the one that the
    spec names.
    """
    settings = {**(settings or {}), **({"task": task} if task else {})}
    name, setting = divided(spec)
    if name.endswith(".py") and module("own").is_pipeline(Path(name)):
        return "own", config_class("own")(file=name, changes=settings)
    recipe, row = recipe_of(name)
    if recipe in PIPELINES and not setting and not task:
        setting = next(iter(module(recipe).SETTINGS))
    return recipe, recipe_config(name, recipe, setting, {**({"method": row} if row else {}), **settings})


def recipe_config(name: str, recipe: str, setting: str, settings: Mapping[str, object]):
    """The config of a recipe: a named setting's or the recipe's defaults, with other settings."""
    home, known = module(recipe), config_class(recipe)
    has = {f.name for f in fields(known)}
    for other in (other for other in OBJECTS if other in settings and other not in has):
        raise ValueError(f"{name} takes no {other}: leave it out.")
    if setting:
        if setting not in home.SETTINGS:
            raise ValueError(f"recipe {name} has no setting {setting!r}."
                             f"{task_hint(setting, has) or suggest(setting, home.SETTINGS)}")
        return replace_settings(home.SETTINGS[setting](), settings, known_elsewhere)
    if not OWN.keys() & settings.keys():
        options = ", ".join(f"{name}:{s}" for s in home.SETTINGS)
        own = [f"{what} of your own with {how}" for what, how in OWN.items() if what in has]
        raise ValueError(f"{name} of what? Name {', or '.join([*own, f'a setting ({options})'])}.")
    first = {key: value for key, value in settings.items() if key in OBJECTS or isinstance(value, Settings)}
    rest = {key: value for key, value in settings.items() if key not in first}
    return replace_settings(known(**first), rest, known_elsewhere)


def task_hint(setting: str, has: Set[str]) -> str:
    """What to write for a task that was taken for a named setting."""
    from postgrad.data.tasks import is_task_name
    found = "task" in has and is_task_name(setting)
    return f" It is a task: write --task {setting} (in Python task={setting!r})." if found else ""


def known_elsewhere(name: str) -> str:
    """What a setting that other libraries or version 0.1 have is called here."""
    from postgrad.recipes.other_names import OTHER_NAMES
    if new := renamed_setting(name):
        return f" It is now {new!r}."
    return f" {OTHER_NAMES[name][1]}" if name in OTHER_NAMES else ""


def pipeline_in(folder: Path) -> dict | None:
    """What was started in the folder, if it holds a pipeline."""
    path = folder / "pipeline.json"
    if not path.exists():
        return None
    started = read_json(path)
    if not isinstance(started.get("command"), str) or not isinstance(started.get("config"), dict):
        raise ValueError(f"{path} does not say what was started: restore the file from a copy.")
    if started.get("recipe") == "python":
        raise ValueError(f"the pipeline in {folder} was made in Python and has no name to find it by: go on "
                         f"there, with pipeline.run({str(folder)!r}).")
    if started.get("recipe") not in [*STAGED]:
        raise ValueError(f"{folder} was made by a pipeline {started.get('recipe')!r:.60}, which this version "
                         "does not have.")
    return started


def start(recipe: str, config, folder: Path, *, command: str = "", watch=None,
          callback: Callable[[int, dict], None] | None = None, origin: Path | None = None):
    """Trains a new run in the folder; a pipeline gives its summary."""
    if recipe in STAGED:
        if processes.started() > 1:
            raise ValueError(f"{recipe} is several trainings and goes on in one process: leave torchrun out, "
                             "or train its stages one by one with `torchrun ... -m postgrad train`.")
        from postgrad.recipes.defaults import fitted
        from postgrad.recipes.pipelines.carry import carry_out
        config, _ = fitted(config)
        return carry_out(module(recipe).pipeline(config), folder, watch=watch, command=command,
                         recipe=recipe, config=config)
    from postgrad.recipes import running
    return running.start(recipe, config, module(recipe).build, folder, command=command, watch=watch,
                         callback=callback, origin=origin)


def resume(folder: Path, *, steps: int | None = None, sampler: str | None = None, watch=None,
           callback: Callable[[int, dict], None] | None = None, **given):
    """Goes on with the run or the pipeline in the folder; a finished run stays as it is.

    steps: to which a run goes on, where that is not what it began with. sampler: where its samplers are now,
    as many as before or not: who writes a row decides nothing. given: what was handed in and has no name,
    once more.
    """
    from postgrad.recipes import running
    from postgrad.runs import Run
    if started := pipeline_in(folder):
        if steps is not None or sampler is not None:
            raise ValueError(f"{folder} is a pipeline, whose stages have settings of their own: resume one "
                             f"of its runs, {folder}/STAGE.")
        config = settings_from_json(config_class(started["recipe"]), translate_config(started["config"]))
        return start(started["recipe"], config, folder, watch=watch, command=started["command"])
    run = Run.open(folder)
    recipe, _ = run.started()
    if recipe not in RECIPES:
        raise ValueError(f"run {folder} was made by a recipe {recipe!r}, which this version does not have.")
    objects = handed_in(run, given)
    first = run.folder / "start"  # a model that was handed in: it is wherever the run is
    kept = {"model": str(first)} if first.is_dir() else {}
    config = settings_from_json(config_class(recipe), translate_config(run.config) | kept, objects)
    config = config if steps is None else replace(config, steps=steps)
    if sampler is not None:
        if not getattr(getattr(config, "remote", None), "sampler", None):
            raise ValueError(f"run {folder} samples in its own process: leave sampler out.")
        config = replace(config, remote=replace(config.remote, sampler=sampler))
    return running.resume(run, config, module(recipe).build, watch=watch, callback=callback)


def handed_in(run, given: Mapping[str, object]) -> dict[str, object]:
    """What a run was given without a name, held against what is handed in now."""
    needed = {name: kept for name, kept in run.config.items() if is_record(kept)}
    if "method" in needed and "method" not in given and needed["method"]["name"] in methods.METHODS:
        given = {**given, "method": methods.METHODS[needed["method"]["name"]]}  # registered again since
    for name, kept in needed.items():
        if name not in given:
            raise ValueError(f"this run was given its {name} in Python ({kept['given']} {kept['name']}), "
                             "which has no name to find it by: go on with "
                             f"postgrad.resume({str(run.folder)!r}, {name}=...).")
        if name != "method" and record(given[name]) != kept:
            raise ValueError(f"the {name} that was handed in is not the one this run began with "
                             f"({kept['given']} {kept['name']}): hand in the same, or start a new run.")
    for name in given.keys() - needed.keys():
        raise ValueError(f"this run found its {name} by name ({run.config.get(name)}): leave {name} out.")
    return {name: given[name] for name in needed}

"""Settings as people read them: those of a config, and every setting of every recipe with its defaults."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from postgrad import methods
from postgrad.data.tasks import Task
from postgrad.methods import Method
from postgrad.recipes.base import ModelDefaults, TrainConfig
from postgrad.recipes.defaults import TO_BE_NAMED, try_fill_defaults
from postgrad.recipes.registry import (
    PIPELINES,
    RECIPES,
    config_class,
    config_for,
    is_pipeline,
    recipe_for,
    recipe_module,
    recipe_named,
    split_spec,
)
from postgrad.recipes.rollouts import RolloutConfig
from postgrad.runs.rows import JsonDict
from postgrad.system.settings import Settings, default_settings, describe_settings, flat_settings


def preview_config(spec: str, settings: Mapping[str, object] | None = None,
                   task: str | None = None) -> tuple[str, Settings]:
    """As `config_for`, where the task may be missing: preview_config("grpo") -> ("rollouts", config)"""
    name, setting = split_spec(spec)
    recipe, _ = recipe_named(name)
    if recipe == "pretrain" and not setting:
        spec, task = f"pretrain:{next(iter(recipe_module(recipe).SETTINGS))}", None
    elif not setting and not task and not is_pipeline(recipe):
        task = None if {"task", "data"} & (settings or {}).keys() else TO_BE_NAMED
    return config_for(spec, settings, task)


def implied_values(config: Settings) -> dict[str, object]:
    """The values of settings that stay None: the row's, or a rule's. {"kl.coef": 0.04}"""
    values: dict[str, object] = {}
    if isinstance(config, TrainConfig | ModelDefaults):
        values["optim.tokens_per_pass"] = config.optim.per_pass(config.device.startswith("cuda"))
        if rank := config.optim.adapter.lora:
            values["optim.adapter.alpha"] = 2.0 * rank
    if isinstance(config, RolloutConfig):
        constants = methods.constants_of(config.method)
        coef = constants.get("kl_in_reward") or constants.get("kl_in_loss", constants.get("beta"))
        values |= {"kl.coef": coef} if coef is not None else {}
    return values


def readable_value(value: object) -> object:
    """A value for a table or for JSON: a row or a task by its name."""
    if isinstance(value, Method | Task):
        return value.name
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)


def setting_rows(config: Settings) -> list[JsonDict]:
    """A config, a row for each setting: {"setting", "value", "open", "about", "when"}.

    open: the config leaves the value None, and `value` is what is used in its place.
    """
    filled, _ = try_fill_defaults(config)
    used = {key: value for key, value in flat_settings(filled).items() if value is not None}
    used |= implied_values(filled)
    return [{"setting": key, "value": readable_value(used.get(key) if value is None else value),
             "open": value is None and key in used, "about": about, "when": when}
            for key, value, about, when in describe_settings(config)]


def settings_index() -> list[JsonDict]:
    """Every setting of every recipe and pipeline, and every constant of every row, with its defaults:
    {"setting": "rollouts.group_size", "about", "when", "defaults": {"rollouts": 8}}

    A name that means different things in two places is listed once for each meaning.
    """
    index: dict[tuple[str, str], JsonDict] = {}

    def add(key: str, about: str, when: str, home: str, value: object) -> None:
        entry = index.setdefault((key, about), {"setting": key, "about": about, "when": when, "defaults": {}})
        entry["defaults"][home] = value

    for recipe in RECIPES | PIPELINES:
        for setting in setting_rows(preview_config(default_method_name(recipe))[1]):
            if not setting["setting"].startswith("method."):
                add(setting["setting"], setting["about"], setting["when"], recipe, setting["value"])
    for row in methods.METHODS.values():
        for name, value in methods.constants_of(row).items():
            add(f"method.{name}", *row.words(name), row.name, value)
    grpo = methods.get_method("grpo")
    for field, options in methods.PARTS.items():
        for part in options:
            row = methods.change(grpo, **{field: part})
            for name, value in methods.constants_of(row).items():
                if name not in methods.constants_of(grpo):
                    add(f"method.{name}", *row.words(name), f"{field}={part}", value)
    return list(index.values())


def default_method_name(recipe: str) -> str:
    """The name of a recipe for `postgrad train`: its default method, or its own."""
    method = default_settings(config_class(recipe)).get("method")
    return recipe if recipe in PIPELINES or not isinstance(method, Method) else method.name


def methods_of_recipe(recipe: str) -> list[str]:
    """The rows of the table that a recipe trains."""
    return [row.name for row in methods.METHODS.values() if recipe_for(row) == recipe]


def as_json(rows: Sequence[JsonDict]) -> str:
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"

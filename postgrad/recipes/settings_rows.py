"""Settings as people read them: those of a config, and every setting of every recipe with its defaults."""

from __future__ import annotations

import json
from collections.abc import Mapping

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
from postgrad.system.settings import Configurable, describe_settings, flat_settings


def preview_config(spec: str, settings: Mapping[str, object] | None = None, task: str | None = None):
    """As `config_for`, where no task need be named yet: preview("grpo") -> ("rollouts", config)"""
    name, setting = split_spec(spec)
    recipe, _ = recipe_named(name)
    if recipe == "pretrain" and not setting:
        spec, task = f"pretrain:{next(iter(recipe_module(recipe).SETTINGS))}", None
    elif not setting and not task and not is_pipeline(recipe):
        task = None if {"task", "data"} & (settings or {}).keys() else TO_BE_NAMED
    return config_for(spec, settings, task)


def open_values(config) -> dict[str, object]:
    """What stands where a config leaves a value open for good: the row's, or a rule's. {"kl.coef": 0.04}"""
    out: dict[str, object] = {}
    if isinstance(config, TrainConfig | ModelDefaults):
        on_gpu = config.device.startswith("cuda")
        out["optim.tokens_per_pass"] = config.optim.per_pass(on_gpu)
        if rank := config.optim.adapter.lora:
            out["optim.adapter.alpha"] = 2.0 * rank
    if isinstance(config, RolloutConfig):
        out["kl.coef"] = kl_weight(config.method)
    return {key: value for key, value in out.items() if value is not None}


def kl_weight(row: Method) -> float | None:
    """The weight of the KL to the start that a row has by itself, wherever it puts it."""
    known = methods.constants_of(row)
    if row.kind == "policy":
        return known["kl_in_reward"] or known["kl_in_loss"]
    return known.get("beta")


def plain_value(value: object) -> object:
    """A value for a table or for JSON: a row or a task by its name."""
    if isinstance(value, Configurable | Task):
        return value.name
    return value if value is None or isinstance(value, bool | int | float | str) else repr(value)


def setting_rows(config) -> list[dict]:
    """A config, a row for each setting: {"setting", "value", "open", "about", "when"}.

    Where a value is left open, `value` is what stands for it, and `open` is true.
    """
    chosen, _ = try_fill_defaults(config)
    stands = {key: value for key, value in flat_settings(chosen).items() if value is not None}
    stands |= open_values(chosen)
    rows = []
    for key, value, about, when in describe_settings(config):
        left = value is None
        rows.append({"setting": key, "value": plain_value(stands.get(key) if left else value),
                     "open": left and key in stands, "about": about, "when": when})
    return rows


def settings_index() -> list[dict]:
    """Every setting of every recipe and pipeline, and every constant of every row, with its defaults:
    {"setting": "rollouts.group_size", "about", "when", "defaults": {"rollouts": 8}}

    A name that means different things in two places is listed once for each meaning.
    """
    found: dict[tuple[str, str], dict] = {}

    def add(key: str, about: str, when: str, home: str, value: object) -> None:
        entry = found.setdefault((key, about), {"setting": key, "about": about, "when": when, "defaults": {}})
        entry["defaults"][home] = value

    for recipe in RECIPES | PIPELINES:
        config = preview_config(default_method_name(recipe))[1]
        for row in setting_rows(config):
            if not row["setting"].startswith("method."):
                add(row["setting"], row["about"], row["when"], recipe, row["value"])
    for row in methods.METHODS.values():
        for name, value in methods.constants_of(row).items():
            add(f"method.{name}", *row.words(name), row.name, value)
    plain = methods.get_method("grpo")
    for field, options in methods.PARTS.items():
        for part in options:
            row = methods.change(plain, **{field: part})
            for name, value in methods.constants_of(row).items():
                if name not in methods.constants_of(plain):
                    add(f"method.{name}", *row.words(name), f"{field}={part}", value)
    return list(found.values())


def default_method_name(recipe: str) -> str:
    """What `postgrad train` calls a recipe by: the row that is its default, or its own name."""
    if recipe in PIPELINES or recipe == "pretrain":
        return recipe
    return config_class(recipe).__dataclass_fields__["method"].default.name


def methods_of_recipe(recipe: str) -> list[str]:
    """The rows of the table that a recipe trains."""
    return [row.name for row in methods.METHODS.values() if recipe_for(row) == recipe]


def as_json(rows: list[dict]) -> str:
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"

"""A recipe's form, made from its dataclasses: their fields, types, sentences and named settings.

Nothing is written twice.

Left out on purpose: rules about values. A config checks itself, and its sentence is what the page shows.
"""

from __future__ import annotations

import inspect
import re
import shlex
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import Field, fields
from functools import cache
from pathlib import Path
from typing import Any

import postgrad
from postgrad.methods import Method
from postgrad.recipes.registry import (
    config_for,
    is_pipeline,
    recipe_module,
    recipe_named,
    recipe_names,
    setting_hint,
    split_spec,
)
from postgrad.studio.json_types import JsonDict, Values
from postgrad.system.parse import parse_settings
from postgrad.system.settings import Configurable, Settings, configurables_of, flat_settings, setting_text
from postgrad.system.user_code import CodeNotRead

FIRST = "grpo:words"
OWN_TASK = "own"  # in the menu of tasks
FAMILIES = {"policy": "Reinforcement learning", "preference": "Preferences", "supervised": "Imitation"}
MAIN = ("task", "data", "model", "teacher", "steps", "epochs", "optim.lr", "optim.adapter.lora",
        "method.beta", "rollouts.prompts_per_step", "rollouts.group_size", "rollouts.max_new_tokens",
        "rollouts.temperature", "kl.coef", "rows_per_step", "pairs.per_step", "replies.per_step",
        "evaluation.every", "seed", "device")  # the settings that are changed most
OWN = "mytask.py"  # stands where a task of one's own is to be named
LABS = Path(postgrad.__file__).parent.parent / "examples" / "labs"  # of the source tree; not in a wheel


def lab_files() -> list[str]:
    """The pipelines of examples/labs, as the terminal that the studio was started from writes them."""
    here = Path.cwd()
    return [str(path.relative_to(here) if path.is_relative_to(here) else path)
            for path in sorted(LABS.glob("*.py"))]


@cache
def recipe_menu() -> list[JsonDict]:
    """Everything that can be trained, with its named settings: {"name": "grpo", "about", "settings":
    [("words", ...)], ...}"""
    from postgrad.methods import METHODS
    found = []
    for name in [*recipe_names(), *lab_files()]:
        recipe, row = recipe_named(name)
        home = recipe_module(recipe)
        settings = [(key, docstring_summary(made)) for key, made in home.SETTINGS.items()]
        found.append({"name": name, "about": row.about if row else docstring_summary(home),
                      "settings": settings, "family": method_family(recipe, row),
                      "own": name in METHODS, "pipeline": is_pipeline(recipe)})
    order = ["grpo", "ppo", "dpo", "sft", "reward"]
    return sorted(found,
                  key=lambda row: (row["pipeline"], order.index(row["name"]) if row["name"] in order else 9))


def method_family(recipe: str, row: Method | None) -> str:
    """The heading under which a method stands in the form."""
    if row is None:
        return "Pipelines" if is_pipeline(recipe) else "Pretraining"
    return "Reward models" if recipe in ("reward", "process") else FAMILIES[row.kind]


def chosen_spec(given: Mapping[str, str]) -> str:
    """What the two menus of the form mean: {"method": "dpo", "setting": "words"} -> "dpo:questions", for dpo
    has no setting of that name."""
    if "method" not in given:
        return given.get("recipe") or FIRST
    row = next((row for row in recipe_menu() if row["name"] == given["method"]), None)
    settings, wanted = [key for key, _ in row["settings"]] if row else [], given.get("setting", "")
    if row is None or wanted == OWN_TASK and row["own"] or not settings:
        return given["method"]
    return f"{row['name']}:{wanted if wanted in settings else settings[0]}"


def split_sections(spec: str, sections: list[JsonDict]) -> tuple[list[JsonDict], list[JsonDict]]:
    """The fields that are always in sight, and the sections with the others."""
    fields = {f["key"]: f for group in sections for f in group["fields"]}
    shut = {"task": bool(split_spec(spec)[1]),  # the menu above says it
            "teacher": "teacher" in fields and fields["teacher"]["value"] == "none"}
    main = [key for key in MAIN if key in fields and not shut.get(key)]
    folded = [group | {"fields": rest, "changed": sum(f["changed"] for f in rest)} for group in sections
              if (rest := [f for f in group["fields"] if f["key"] not in main])]
    return [fields[key] for key in main], folded


def faults(base: Settings, spec: str, changes: Mapping[str, str], error: str) -> dict[str, str]:
    """The settings that an error is about, each with its sentence: those that are refused alone, else those
    that the error names."""
    kept, alone = {key: changes[key] for key in ("task", "data") if key in changes}, {}
    for key, text in changes.items():
        try:
            config_for(spec, parse_settings(type(base), [f"{k}={v}" for k, v in {**kept, key: text}.items()],
                                            configurables_of(base), setting_hint))
        except CodeNotRead:
            continue
        except ValueError as fault:
            alone[key] = str(fault)
    if 0 < len(alone) < max(2, len(changes)):
        return alone
    named = [key for key in flat_settings(base) if re.search(rf"(?<![\w.]){re.escape(key)}(?![\w.])", error)]
    return dict.fromkeys(named or [key for key in changes if key.rpartition(".")[2] in error], error)


def docstring_summary(thing: object) -> str:
    """The first paragraph of its docstring, on one line."""
    return " ".join((inspect.getdoc(thing) or "").strip().partition("\n\n")[0].split())


def starting_config(spec: str) -> Any:
    """The config that a form begins with: a named setting's, or the defaults with a task of one's own."""
    name, setting = split_spec(spec)
    return config_for(spec, {} if setting or is_pipeline(recipe_named(name)[0]) else {"task": OWN})[1]


def form_sections(spec: str, given: Mapping[str, str]) -> list[JsonDict]:
    """The form: its groups of settings, the recipe's own first, then the row's constants. given: what was
    typed, by dotted key."""
    config = starting_config(spec)
    groups = list(config_groups(config))
    for group in groups:
        group["fields"] = [form_field(group["config"], f, group["prefix"], given)
                           for f in fields(group["config"])
                           if not isinstance(getattr(group["config"], f.name), Settings | Configurable)]
    row = getattr(config, "method", None)
    if isinstance(row, Method):
        groups.insert(1, {"name": "method", "about": f"The constants of the row {row}: {row.about}.",
                          "fields": [constant_field(row, name, x, given)
                                     for name, x in row.settings().items()]})
    return groups


def config_groups(config: Settings, name: str = "") -> Iterator[JsonDict]:
    """A config and the groups of settings in it, each followed by those inside it:
    "", optim, optim.adapter ..."""
    prefix = f"{name}." if name else ""
    yield {"name": name, "about": docstring_summary(type(config)) if name else "", "config": config,
           "prefix": prefix}
    for f in fields(config):
        if isinstance(value := getattr(config, f.name), Settings):
            yield from config_groups(value, prefix + f.name)


def form_field(config: Settings, f: Field[object], prefix: str, given: Mapping[str, str]) -> JsonDict:
    kind, now = typing.get_type_hints(type(config))[f.name], setting_text(getattr(config, f.name))
    options = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    key = prefix + f.name
    about, when = (f.metadata.get(part, "") for part in ("about", "when"))
    return {"key": key, "name": f.name, "about": about, "when": when, "default": now,
            "value": given.get(key, now), "changed": given.get(key, now) != now,
            "yes_no": bool in options, "number": int in options or float in options,
            "optional": type(None) in options or f.default is None}


def constant_field(row: Configurable, name: str, value: object, given: Mapping[str, str]) -> JsonDict:
    """A constant of the row as a field of the form."""
    key, now = f"method.{name}", setting_text(value)
    about, when = row.words(name)
    return {"key": key, "name": name, "about": about, "when": when, "default": now,
            "value": given.get(key, now), "changed": given.get(key, now) != now,
            "yes_no": isinstance(value, bool),
            "number": isinstance(value, int | float) and not isinstance(value, bool), "optional": False}


def fitted_memory(config: Any) -> Values:
    """(the config with what is open chosen, the sentence about it, its bytes by part and at the peak).

    As it is where that cannot be known here: a form fetches nothing, and a task may still be unwritten.
    """
    from postgrad.recipes.base import RunConfig
    from postgrad.recipes.defaults import fill_defaults, memory_needs, model_size
    from postgrad.resolve.models import on_hub
    from postgrad.training.memory import PARTS
    if not hasattr(config, "model") or on_hub(config.model):
        return config, "", None
    try:
        config, chosen = fill_defaults(config)
        shape = model_size(config.model).shape
    except (ValueError, OSError):
        return config, "", None  # what is wrong is said by the config, or when the run starts
    if shape is None or not isinstance(config, RunConfig):
        return config, chosen.sentence, None
    made = memory_needs(config, shape)
    return config, chosen.sentence, {part: getattr(made, part) for part in (*PARTS, "peak")}


def check_models(config: Settings) -> None:
    """Every model that a config names is here, or can only be meant on the hub: a form fetches nothing."""
    from postgrad.resolve.models import on_hub, open_folder
    from postgrad.resolve.rewards import parse_reward
    named = [getattr(config, "model", None), getattr(config, "teacher", None),
             *parse_reward(getattr(config, "reward", None)).model_names]
    for name in named:
        if isinstance(name, str) and not on_hub(name):
            open_folder(name)


def plan_command(spec: str, given: Mapping[str, str], folder: str) -> JsonDict:
    """What would be started: {"words", "command", "changes", "error", "memory", "chosen", "faults"}.

    A value that is the setting's own is left out.

    error: the library's own sentence about what is wrong, or None. memory:
        bytes by part and at the peak, or None.
    faults: the settings that the error is about, with their sentences.
    chosen: what stands for the values that are left open, and why; or which file was not read.
    """
    name, setting = split_spec(spec)
    try:
        start = flat_settings(starting_config(spec))
    except ValueError as fault:
        return {"words": [], "command": "", "changes": {}, "error": str(fault), "memory": None,
                "chosen": "", "faults": {}}
    # then the task has to be said, unless there is data instead
    bare = not setting and not is_pipeline(recipe_named(name)[0])
    changes = {key: text for key, text in given.items() if key in start and (
        text.lower() not in ("", "none") if bare and key == "task" else text != setting_text(start[key]))}
    error: str | None = None
    needs, chosen, wrong, base = None, "", {}, starting_config(spec)
    try:
        typed = parse_settings(type(base), [f"{key}={text}" for key, text in changes.items()],
                               configurables_of(base), setting_hint)
        made = config_for(spec, typed)[1]
        config = flat_settings(made)
        check_models(made)
        _, chosen, needs = fitted_memory(made)
        changes = {key: text for key, text in changes.items()
                   if config[key] != start[key] or bare and key == "task"}
    except CodeNotRead as fault:
        chosen = str(fault)
    except ValueError as fault:
        error = str(fault)
        wrong = faults(base, spec, changes, error)
    words = ["train", spec, *(f"{key}={text}" for key, text in changes.items()), "--run", folder]
    return {"words": words, "command": shlex.join(["postgrad", *words]), "changes": changes, "error": error,
            "memory": needs, "chosen": chosen, "faults": wrong}

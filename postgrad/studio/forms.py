"""A recipe's form, made from its dataclasses: their fields, types, comments and named settings. Nothing is written twice.

Left out on purpose: rules about values. A config checks itself, and its sentence is what the page shows.
"""

from __future__ import annotations

import ast
import inspect
import io
import shlex
import tokenize
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from functools import cache

from postgrad import recipes
from postgrad.recipes.config import flat

OWN = "mytask.py"  # stands where a task of one's own is to be named


@cache
def comments(cls) -> dict[str, str]:
    """What is written behind the fields of a dataclass: {"lora": "the rank of low-rank adapters; 0 trains all weights"}"""
    text = inspect.cleandoc("\n" + inspect.getsource(cls))
    said = {t.start[0]: t.string.lstrip("# ") for t in tokenize.generate_tokens(io.StringIO(text).readline)
            if t.type == tokenize.COMMENT}
    body = next(node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ClassDef)).body
    lines = {node.target.id: range(node.lineno, node.end_lineno + 1) for node in body if isinstance(node, ast.AnnAssign)}
    return {name: " ".join(said[n] for n in where if n in said) for name, where in lines.items()}


@cache
def menu() -> list[dict]:
    """Every recipe and method with its named settings: {"name": "grpo", "about", "settings": [("words", "Word ...")], ...}"""
    from postgrad.methods import METHODS
    found = []
    for name in dict.fromkeys([*recipes.ALIASES, *recipes.RECIPES, *recipes.PIPELINES]):
        home = recipes.module(recipes.ALIASES.get(name, name))
        about = METHODS[name].about if name in METHODS else first_words(home)
        settings = [(key, first_words(made)) for key, made in home.SETTINGS.items()]
        own = name not in recipes.PIPELINES and any(f.name == "task" for f in fields(config_class(name)))
        found.append({"name": name, "about": about, "settings": settings, "own": own, "pipeline": name in recipes.PIPELINES})
    order = ["grpo", "ppo", "dpo", "sft", "reward"]
    return sorted(found, key=lambda row: (row["pipeline"], order.index(row["name"]) if row["name"] in order else 9))


def first_words(thing) -> str:
    """The first paragraph of its docstring, on one line."""
    return " ".join((inspect.getdoc(thing) or "").strip().partition("\n\n")[0].split())


def config_class(name: str):
    recipe = recipes.ALIASES.get(name, name)
    return getattr(recipes.module(recipe), (recipes.RECIPES | recipes.PIPELINES)[recipe])


def start_of(spec: str):
    """The config that a form begins with: a named setting's, or the defaults with a task of one's own."""
    name, _, setting = spec.partition(":")
    return recipes.resolve(spec, () if setting or name in recipes.PIPELINES else [f"task={OWN}"])[1]


def written(value) -> str:
    """A value as the command line takes it."""
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def sections(spec: str, given: Mapping[str, str]) -> list[dict]:
    """The form: its groups of settings, the recipe's own first. given: what was typed, by dotted key."""
    groups = list(grouped(start_of(spec)))
    for group in groups:
        group["fields"] = [entry(group["config"], f, group["prefix"], given) for f in fields(group["config"])
                           if not is_dataclass(getattr(group["config"], f.name)) and f.name != "method"]
        group["about"] = "" if group["about"].startswith(f"{type(group['config']).__name__}(") else group["about"]
    return groups


def grouped(config, name: str = "") -> Iterator[dict]:
    """A config and the groups of settings in it, each followed by those inside it: "", optim, optim.adapter ..."""
    prefix = f"{name}." if name else ""
    yield {"name": name, "about": first_words(type(config)) if name else "", "config": config, "prefix": prefix}
    for f in fields(config):
        if is_dataclass(value := getattr(config, f.name)):
            yield from grouped(value, prefix + f.name)


def entry(config, f, prefix: str, given: Mapping[str, str]) -> dict:
    kind, now = typing.get_type_hints(type(config))[f.name], written(getattr(config, f.name))
    options = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    key = prefix + f.name
    return {"key": key, "name": f.name, "about": comments(type(config)).get(f.name, ""), "default": now,
            "value": given.get(key, now), "changed": given.get(key, now) != now, "yes_no": bool in options,
            "number": int in options or float in options, "optional": type(None) in options}


def memory(config) -> dict[str, float] | None:
    """What `postgrad memory` says of a run, in bytes: a pass as full as it may be, and the cache of all its replies. None where
    that says nothing: a pipeline, pretraining, a model that is not there."""
    from postgrad import methods
    from postgrad.memory import PARTS, Setup, cache, estimate
    from postgrad.models import on_hub
    from postgrad.recipes.grpo import row
    from postgrad.recipes.opening import shape_of
    if not hasattr(config, "model") or not hasattr(config, "method") or on_hub(config.model):
        return None  # a form fetches nothing
    try:
        shape = shape_of(config.model)
    except (ValueError, OSError):
        return None  # what is wrong is said by the config, or when the run starts
    method, optim = row(config) if hasattr(config, "anchor") else methods.get(config.method), config.optim
    on_gpu = config.device.startswith("cuda")
    half = on_gpu and optim.precision != "fp32"
    room = max(1, optim.per_pass(on_gpu) // (2 if method.source.endswith("pairs") else 1))
    bits = optim.adapter.bits if half or optim.adapter.bits == 4 else 32
    setup = Setup(lora=optim.adapter.lora, bits=bits, single=not half, tokens=room,
                  reward_model=bool(getattr(config, "reward", None)))
    made = estimate(shape, method, setup)
    if made.cache:
        r = config.rollouts
        writing = replace(setup, tokens=r.max_new_tokens, samples=r.prompts_per_step * r.group_size)
        made = replace(made, cache=cache(shape, writing))
    return {part: getattr(made, part) for part in (*PARTS, "peak")}


def plan(spec: str, given: Mapping[str, str], folder: str) -> dict:
    """What would be started: {"words", "command", "changes", "error", "memory"}. A value that is the setting's own is left out.

    error: the library's own sentence about what is wrong, or None. memory: bytes by part and at the peak, or None.
    """
    name, _, setting = spec.partition(":")
    try:
        start = flat(start_of(spec))
    except ValueError as error:
        return {"words": [], "command": "", "changes": {}, "error": str(error), "memory": None}
    bare = not setting and name not in recipes.PIPELINES  # then the task has to be said, unless there is data instead
    changes = {key: text for key, text in given.items() if key in start and (
        text.lower() not in ("", "none") if bare and key == "task" else text != written(start[key]))}
    error = needs = None
    try:
        made = recipes.resolve(spec, [f"{key}={text}" for key, text in changes.items()])[1]
        config, needs = flat(made), memory(made)
        changes = {key: text for key, text in changes.items() if config[key] != start[key] or bare and key == "task"}
    except ValueError as fault:
        error = str(fault)
    words = ["train", spec, *(f"{key}={text}" for key, text in changes.items()), "--run", folder]
    return {"words": words, "command": shlex.join(["postgrad", *words]), "changes": changes, "error": error,
            "memory": needs}

"""Settings on the command line: `train --show`, `explain SETTING`, and what to write for a foreign flag."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from postgrad.cli.output import say_json, table
from postgrad.system.parse import parse_settings
from postgrad.system.settings import configurables_of

if TYPE_CHECKING:
    from postgrad.recipes.pipelines.stages import Pipeline

INDEX = Path(__file__).with_name("settings.json")  # made by cli/reference.py, read without torch


def config_from_text(spec: str, texts: Sequence[str] = (), task: str | None = None):
    """config_from_text("grpo:words", ["optim.lr=1e-4"]) -> ("rollouts", config)"""
    from postgrad import recipes
    return recipes.config_for(spec, settings_from_text(spec, texts), task)


def settings_from_text(spec: str, texts: Sequence[str]) -> dict[str, object]:
    """["lr=1e-4"] -> {"optim.lr": 0.0001}, by the settings that what is trained has."""
    from postgrad import recipes
    name, _ = recipes.divided(spec)
    if name.endswith(".py") and (own := recipes.module("own")).is_pipeline(Path(name)):
        return stage_settings(own.load_pipeline(Path(name)), texts) if texts else {}
    recipe, method = recipes.recipe_of(name)
    return parse_settings(recipes.config_class(recipe), texts, {"method": method} if method else {},
                          recipes.known_elsewhere)


def stage_settings(pipeline: Pipeline, texts: Sequence[str]) -> dict[str, object]:
    """["rl.lr=1e-4"] -> {"rl.optim.lr": 0.0001}, of a pipeline of the user's own."""
    from postgrad.recipes import known_elsewhere
    out: dict[str, object] = {}
    for text in texts:
        config, (stage, _, rest) = pipeline.stage_config(text), text.partition(".")
        typed = parse_settings(type(config), [rest], configurables_of(config), known_elsewhere)
        out |= {f"{stage}.{name}": value for name, value in typed.items()}
    return out


def show(args) -> int:
    """The settings of a run that is not started: a table, or with --json a list of objects."""
    from postgrad.recipes.defaults import fitted_or_open
    from postgrad.recipes.explained import preview, settings_of
    _, config = preview(args.recipe, settings_from_text(args.recipe, args.changes), args.task)
    rows, chosen = settings_of(config), fitted_or_open(config)[1]
    if args.json:
        return say_json(rows)
    table([{"setting": row["setting"], "value": as_shown(row), "what it is": row["about"]} for row in rows])
    print(f"\n{chosen}\npostgrad explain SETTING says when to change one." if chosen else
          "\npostgrad explain SETTING says when to change one.")
    return 0


def as_shown(row: dict) -> str:
    text = as_typed(row["value"])
    return f"none ({text})" if row["open"] else text


def as_typed(value: object) -> str:
    """A value as the command line takes it."""
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def known() -> list[dict]:
    """Every setting of every recipe: recipes.explained.index(), as it was written down."""
    return json.loads(INDEX.read_text(encoding="utf-8"))


def find(name: str) -> list[dict]:
    """The settings that a name means: "rollouts.group_size", "group_size", "method.high", "high"; "kl" is
    kl.coef."""
    rows = known()
    return ([row for row in rows if row["setting"] in (name, f"{name}.coef")]
            or [row for row in rows if row["setting"].rpartition(".")[2] == name])


def told(rows: Sequence[dict]) -> None:
    for row in rows:
        defaults = ", ".join(f"{home} {as_typed(value)}" for home, value in row["defaults"].items())
        words = {"what it is": row["about"], "when to change it": row["when"], "default": defaults}
        table([{"": name, row["setting"]: text} for name, text in words.items()])


def instead_of(flags: Sequence[str], argv: Sequence[str]) -> str:
    """What to write for flags that `train` does not have, as settings are KEY=VALUE; "" where none is one."""
    if not flags:
        return ""
    from postgrad.recipes.other_names import OTHER_NAMES
    names = {row["setting"] for row in known()}
    short = {name.rpartition(".")[2] for name in names}
    for flag in (word for word in flags if word.startswith("--")):
        word, _, value = flag.partition("=")
        name = word.lstrip("-").replace("-", "_")
        after = argv[argv.index(flag) + 1:]
        value = value or (after[0] if after and not after[0].startswith("--") and "=" not in after[0] else "")
        if name in names | short:
            return f"settings are written KEY=VALUE: for {word} write {name}={value or 'VALUE'}."
        if name in OTHER_NAMES:
            ours, sentence = OTHER_NAMES[name]
            hint = f"for {word} write {ours}={value}." if ours and value else sentence
            return f"settings are written KEY=VALUE: {hint}"
    return ""

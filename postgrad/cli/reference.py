"""What `make docs` writes of settings and commands: docs/settings.md and commands.md, and the index of
settings that `postgrad explain` reads without torch. A test holds them against the code."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from postgrad.cli.settings import format_setting
from postgrad.system.settings import setting_text

MADE = "Made from the code by `make docs`; edit the dataclasses, not this page."
KEPT = "\0"  # a space at which no line ends


def escape_cell(text: object) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")


def markdown(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    lines: list[Sequence[object]] = [columns, ["---"] * len(columns), *rows]
    return ["| " + " | ".join(map(escape_cell, line)) + " |" for line in lines]


def settings_page() -> str:
    """docs/settings.md: a table a recipe, and one for the constants of rows."""
    from postgrad.recipes.registry import PIPELINES, RECIPES
    from postgrad.recipes.settings_rows import (
        default_method_name,
        methods_of_recipe,
        preview_config,
        setting_rows,
    )
    lines = ["# Settings", "", MADE, "",
             "`postgrad train grpo:words optim.lr=1e-4 group_size=4` sets two of them: KEY=VALUE, without "
             "its group where only one group has it. `postgrad train grpo --show` prints those of a run, "
             "`postgrad explain group_size` one of them. In Python: "
             "`postgrad.fit(\"tiny-chat\", \"grpo\", task=\"words\", lr=1e-4, group_size=4)`.", "",
             "A value that is left open is `none`; what stands for it is in brackets, for the recipe's own "
             "model: with another model it may be another."]
    for recipe in RECIPES | PIPELINES:
        config = preview_config(default_method_name(recipe))[1]
        rows = [row for row in setting_rows(config) if not row["setting"].startswith("method.")]
        trained = ", ".join(methods_of_recipe(recipe)) or recipe
        lines += ["", f"## {recipe}", "", f"`postgrad train NAME` with one of: {trained}.", "",
                  *markdown(["setting", "default", "what it is", "when to change it"],
                            [[f"`{r['setting']}`", format_setting(r), r["about"], r["when"]] for r in rows])]
    return "\n".join([*lines, *constants_part()]) + "\n"


def constants_part() -> list[str]:
    from postgrad.recipes.settings_rows import settings_index
    rows = [row for row in settings_index() if row["setting"].startswith("method.")]

    def defaults(row: Mapping[str, Any]) -> str:
        return ", ".join(f"{name} {setting_text(value)}" for name, value in row["defaults"].items())

    return ["", "## Constants of rows", "", "Every number of a row can be set: `method.high=0.3`; so can the "
            "parts that go by a name, `method.correction=tis`, and after them their own numbers: "
            "`method.cap=3`.", "",
            *markdown(["constant", "what it is", "when to change it", "in the rows"],
                      [[f"`{r['setting']}`", r["about"], r["when"], defaults(r)] for r in rows])]


def commands_page() -> str:
    """docs/commands.md: every command of the parser, with its arguments."""
    from postgrad.cli import parser
    lines = ["# Commands", "", MADE.replace("dataclasses", "dataclasses of options"), "",
             "Every command takes `--json`, prints one JSON object then and nothing else, and `--help`.",
             "Exit code 0 is success, 2 a mistake or a file that cannot be used: one sentence on stderr, and",
             'with `--json` on stdout `{"error": {"code": "usage|input|file", "message": ...}}`.']
    for name, about, command in commands_in(parser(), "postgrad"):
        arguments = [a for a in command._actions if a.dest not in ("help", "json")]
        lines += ["", f"## {name}", "", f"{about[0].upper()}{about[1:]}.", ""]
        lines += ["```text", usage_line(name, arguments), "```"]
        if arguments:
            rows = [[f"`{argument_words(a)}`", argument_help(a)] for a in arguments]
            lines += ["", *markdown(["argument", "what it is"], rows)]
        if command.epilog:
            lines += ["", "```text", command.epilog, "```"]
    return "\n".join(lines) + "\n"


Listed = tuple[str, str, argparse.ArgumentParser]


def commands_in(parser: argparse.ArgumentParser, name: str) -> Iterator[Listed]:
    """(name, what it does, its parser) of every command, and of the actions of those that have some."""
    for group in (a for a in parser._actions if isinstance(a, argparse._SubParsersAction)):
        for entry in group._choices_actions:
            inside = group.choices[entry.dest]
            nested = list(commands_in(inside, f"{name} {entry.dest}"))
            yield from nested or [(f"{name} {entry.dest}", entry.help or "", inside)]


def argument_words(action: argparse.Action) -> str:
    """An argument as it is typed: --samples N, MODEL, --json."""
    name = action.option_strings[-1] if action.option_strings else ""
    value = action.metavar or ("|".join(map(str, action.choices)) if action.choices else "") or (
        "N" if action.type in (int, float) else action.dest.upper())
    return name if action.nargs == 0 else f"{name} {value}".strip()


def usage_line(name: str, arguments: list[argparse.Action]) -> str:
    """A command as it is typed, what may be left out in brackets."""
    def part(a: argparse.Action) -> str:
        text = (argument_words(a) + (" ..." if a.nargs in ("*", "+") else "")).replace(" ", KEPT)
        needed = a.required if a.option_strings else a.nargs not in ("*", "?")
        return text if needed else f"[{text}]"

    ordered = sorted(arguments, key=lambda a: 0 if not a.option_strings else 1 if a.required else 2)
    text = " ".join([name, *map(part, ordered)])
    lines = textwrap.wrap(text, 100, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace(KEPT, " ")


def argument_help(action: argparse.Action) -> str:
    needed = action.option_strings and action.required
    return (action.help or "").replace("%%", "%") + ("; required" if needed else "")


def pages() -> dict[str, str]:
    """What is written into the folder of documents, by file."""
    return {"settings.md": settings_page(), "commands.md": commands_page()}


def index_text() -> str:
    from postgrad.recipes.settings_rows import as_json, settings_index
    return as_json(settings_index())

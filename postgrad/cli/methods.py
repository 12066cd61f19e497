"""`postgrad methods`: the table, the methods of a file, and one method in full, as its page has it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING

from postgrad.cli.options import Command, CommandOptions
from postgrad.cli.output import print_json, print_table
from postgrad.system.settings import setting, setting_text

if TYPE_CHECKING:
    from postgrad.methods import Method


@dataclass(frozen=True, kw_only=True)
class MethodsOptions(CommandOptions):
    method: str | None = setting(None, "a row to show in full: its name, or FILE.py:NAME; FILE.py lists "
                                 "its rows", positional=True)


def run_methods(options: MethodsOptions) -> None:
    print_methods(options.method, options.json)


def print_methods(name: str | None, as_json: bool) -> None:
    from postgrad.methods import METHODS, rows_named
    rows = rows_named(name) if name else list(METHODS.values())
    if as_json:
        print_json([method_fields(row) for row in rows])
    elif name and len(rows) == 1:
        print_method(rows[0])
    else:
        print_table([{"method": row.name, "batches": row.source, "what is particular": row.about,
                      "paper": row.paper} for row in rows])


def method_fields(row: Method) -> dict[str, object]:
    """The fields of a row of the table; functions by name, with the constants bound to them."""
    from postgrad.methods.row import format_call

    def field_value(x: object) -> object:
        if isinstance(x, partial):
            return format_call(x.func.__name__, x.keywords)
        return getattr(x, "__name__", repr(x)) if callable(x) else x

    return {f.name: field_value(getattr(row, f.name)) for f in fields(row)}


def print_method(row: Method) -> None:
    """Its functions with their formulas and places, its constants, its departures and its neighbours."""
    from postgrad.methods import METHODS
    from postgrad.methods.pages import method_page
    from postgrad.methods.row import format_call
    about = method_page(row, METHODS)
    print(f"{about.name}: {about.about}\nlearns from {about.source}\npaper: {about.paper or 'none'}")
    for part in about.parts:
        print(f"\n{part.field}  {format_call(part.function, part.constants)}  {part.file}:{part.line}")
        for piece in part.pieces:
            print(f"  {'  ' * (piece.kind == 'formula')}{piece.text}")
    for name, text in about.wants.items():
        print(f"\nwants {name}: {text}")
    if on := [constant for constant in about.constants if constant.on]:
        print()
        print_table([{"constant": c.name, "value": setting_text(c.value), "what it is": c.about} for c in on])
    for head, text in (("off", ", ".join(c.name for c in about.constants if not c.on)),
                       ("departs from its paper", about.departures),
                       ("next to it", ", ".join(f"{n.name} ({len(n.differences)} differences)"
                                                for n in about.neighbours))):
        if text:
            print(f"\n{head}: {text}")


COMMAND = Command("methods", "the table of algorithms, with papers", MethodsOptions, run_methods)

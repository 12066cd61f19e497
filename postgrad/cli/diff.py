"""`postgrad diff`: two methods side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from postgrad.cli.options import Command, CommandOptions
from postgrad.cli.output import print_json, print_table
from postgrad.system.settings import setting

if TYPE_CHECKING:
    from postgrad.methods.pages import Difference


@dataclass(frozen=True, kw_only=True)
class DiffOptions(CommandOptions):
    first: str = setting(about="a row of the table, or FILE.py", metavar="METHOD", positional=True)
    second: str = setting(about="another", metavar="METHOD", positional=True)


def run_diff(options: DiffOptions) -> None:
    from postgrad.methods import get_method
    from postgrad.methods.pages import compare_rows
    rows = get_method(options.first), get_method(options.second)
    names = rows[0].name, rows[1].name
    differences = compare_rows(*rows)
    if options.json:
        return print_json({"methods": list(names), "same": not differences,
                           "differences": [difference._asdict() for difference in differences]})
    if differences:
        return print_differences(names, differences)
    return print(f"{names[0]} and {names[1]} are the same row." if names[0] != names[1] else
                 f"{names[0]} is {names[1]}: the same row.")


def print_differences(names: tuple[str, str], differences: Sequence[Difference]) -> None:
    """Functions and words a line each, then constants and facts as a table."""
    width = max(map(len, (*names, "both")))
    for difference in (d for d in differences if d.kind in ("function", "words")):
        print(difference.part)
        for name, text in zip(("both", *names), difference_lines(difference), strict=True):
            if text:
                print(f"  {name:<{width}}  {text}")
    if numbers := [d for d in differences if d.kind in ("constant", "fact")]:
        print()
        print_table([{"": d.part, names[0]: fact_words(d.first), names[1]: fact_words(d.second)}
                     for d in numbers])


def difference_lines(difference: Difference) -> tuple[str, str, str]:
    """What both rows have in common, "" where nothing, then what each of them has."""
    first, second = difference.first, difference.second
    if difference.kind == "words":
        return "", str(first or "none"), str(second or "none")
    if isinstance(first, Mapping) and isinstance(second, Mapping) and formula_line(first) == formula_line(
            second):
        return formula_line(first), call_line(first), call_line(second)
    return "", function_line(first), function_line(second)


def function_line(function: object) -> str:
    return (f"{call_line(function)}: {formula_line(function)}" if isinstance(function, Mapping) and function
            else "none")


def formula_line(function: Mapping[str, Any]) -> str:
    return "   ".join([function["says"], *function["formulas"]])


def call_line(function: Mapping[str, Any]) -> str:
    from postgrad.methods.row import format_call
    return format_call(function["function"], function["constants"])


def fact_words(value: object) -> str:
    if value is None or value == []:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)


COMMAND = Command("diff", "two rows of the table side by side: only what differs, with the formulas",
                  DiffOptions, run_diff)

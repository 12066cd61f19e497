"""The page of a row of the table: what postgrad.methods.pages says of it, and its exact bias as a figure."""

from __future__ import annotations

import ast
import json
from functools import cache
from pathlib import Path

import postgrad
from postgrad.studio.json_types import JsonDict, JsonList
from postgrad.studio.svg import Plot
from postgrad.system.user_code import parse_source

BIAS = Path(__file__).parent / "bias.json"  # measured by `make docs`
PACKAGE = Path(postgrad.__file__).parent
ROWS = PACKAGE / "methods"
FAMILIES = {"supervised": "Imitate", "preference": "Prefer", "policy": "Reinforce"}


@cache
def bias_data() -> dict[str, JsonDict]:
    found: dict[str, JsonDict] = json.loads(BIAS.read_text(encoding="utf-8"))
    return found


def bias_scatter(name: str) -> JsonDict | None:
    """The mean gradient of a row against the exact one, component by component, and the plot they lie in."""
    if name not in bias_data():
        return None
    row = bias_data()[name]
    most = 1.1 * max(map(abs, (*row["exact"], *row["mean"])))
    return {**row, "points": list(zip(row["exact"], row["mean"], strict=True)), "most": most,
            "plot": Plot((-most, most), (-most, most), 420, 300, 56, 20, 30, 44)}


@cache
def row_source(name: str) -> JsonDict:
    """The lines that make a row, with the comment above them: {"name", "file", "line", "text"}."""
    for path in sorted(ROWS.glob("*.py")):
        lines = path.read_text().splitlines()
        for node in ast.walk(parse_source("\n".join(lines))):
            if isinstance(node, ast.Call) and row_name(node) == name:
                begin = node.lineno
                while lines[begin - 2].strip().startswith("#"):
                    begin -= 1
                return {"name": name, "file": path.relative_to(PACKAGE.parent).as_posix(), "line": begin,
                        "text": "\n".join(line[4:] for line in lines[begin - 1: node.end_lineno])}
    raise LookupError(f"the table has no row {name!r}")


def row_name(call: ast.Call) -> object:
    """The name that a call gives to a row; None for any other call."""
    value = next((k.value for k in call.keywords if k.arg == "name"), None)
    return value.value if isinstance(value, ast.Constant) else None


def methods_by_family() -> dict[str, JsonList]:
    """The rows by family."""
    from postgrad.methods import METHODS
    return {title: [row for row in METHODS.values() if row.kind == kind] for kind, title in FAMILIES.items()}


def fact_text(value: object) -> str:
    """A constant, a function or a fact of a row, as text."""
    from postgrad.methods.row import format_call
    if isinstance(value, dict):
        return format_call(value["function"], value["constants"])
    if isinstance(value, bool):
        return "yes" if value else "no"
    if value is None or value == []:
        return "none"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else (
        f"{value:g}" if isinstance(value, float) else str(value))

"""A page about a row, as data: its functions with their formulas and where they stand, its constants, where
it departs from its paper, how often it uses its samples, and the rows next to it.

Nothing here is written down a second time: docstrings, comments and line numbers come from the source.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from postgrad.methods.compare import Difference, compare, idle
from postgrad.methods.constants import bound, constants, functions
from postgrad.methods.docstrings import Piece, docstring, pieces, plain
from postgrad.methods.ranges import range_of
from postgrad.methods.row import COLUMNS, Method, Policy
from postgrad.methods.words import words_of
from postgrad.system.user_code import called, syntax

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
NEXT = 3  # rows that a row is compared with


class Part(NamedTuple):
    """A function of a row: where it stands (file from the folder that holds the package), what is bound to
    it, and its docstring."""

    field: str
    function: str
    file: str
    line: int
    constants: dict[str, object]
    pieces: list[Piece]


class Constant(NamedTuple):
    """A constant by the name that sets it. within: what it may be, in words. on: it is at work."""

    name: str
    value: object
    within: str
    about: str
    when: str
    on: bool


class Neighbour(NamedTuple):
    name: str
    differences: list[Difference]


@dataclass(frozen=True, kw_only=True)
class Page:
    """All that is to be said of a row. teacher: who teaches it, "" where nobody does. wants: the further
    columns of the batch that its functions are handed, and what they are. updates: optimizer steps of a
    collection, passes times minibatches."""

    name: str
    kind: str
    source: str
    about: str
    paper: str
    reference: bool
    teacher: str
    parts: list[Part]
    wants: dict[str, str]
    constants: list[Constant]
    departures: str
    epochs: int
    minibatches: int
    ratio: bool
    neighbours: list[Neighbour]

    @property
    def updates(self) -> int:
        return self.epochs * self.minibatches


def page(row: Method, table: Mapping[str, Method]) -> Page:
    """The page of a row, one of the table's or a user's own."""
    epochs, minibatches, ratio = ((row.epochs, row.minibatches, row.ratio) if isinstance(row, Policy)
                                  else (1, 1, False))
    return Page(
        name=row.name, kind=row.kind, source=row.source, about=row.about, paper=row.paper,
        reference=row.reference, teacher=teacher(row),
        parts=[part(field, function) for field, function in functions(row).items() if field not in idle(row)],
        wants={name: COLUMNS[name] for name in sorted(getattr(row, "wanted", ()))},
        constants=[constant(row, name, value) for name, value in constants(row).items()],
        departures=departures(row), epochs=epochs, minibatches=minibatches, ratio=ratio,
        neighbours=neighbours(row, table.values()),
    )


def teacher(row: Method) -> str:
    if not getattr(row, "teacher", False):
        return ""
    return ("the model that the run starts from, shown a demonstration" if getattr(row, "shown", False)
            else "the model that `teacher=` names")


def part(field: str, function: Callable) -> Part:
    name = called(function).rpartition(".")[2]
    return Part(field, name, *place(function), bound(function), pieces(docstring(function)))


def place(function: Callable) -> tuple[str, int]:
    """The file and the line of a function; its module and 0 where it has no source."""
    home = plain(function)
    home = home if inspect.isroutine(home) or inspect.isclass(home) else type(home)
    try:
        path, line = Path(inspect.getsourcefile(home) or "").resolve(), inspect.getsourcelines(home)[1]
    except (OSError, TypeError):  # typed in, or built in
        return str(home.__module__), 0
    near = next((folder for folder in (ROOT, Path.cwd()) if path.is_relative_to(folder)), None)
    return (path.relative_to(near) if near else path).as_posix(), line


def constant(row: Method, name: str, value: object) -> Constant:
    """A constant of a function is at work even as 0; one that the row itself holds is off then."""
    field, _, key = name.rpartition(".")
    home = next((function for where, function in functions(row).items()
                 if key in bound(function) and field in ("", where)), None)
    within = range_of(key, home)
    on = home is not None or bool(getattr(row, name, value))
    return Constant(name, value, within.words if within else "", *words_of(row, name), on)


def neighbours(row: Method, rows: Iterable[Method]) -> list[Neighbour]:
    """The rows of the same kind that differ from this one in the fewest parts, and in what."""
    found = [Neighbour(other.name, [d for d in compare(row, other) if d.kind != "words"])
             for other in rows if other.kind == row.kind and other.name != row.name]
    return sorted(found, key=lambda neighbour: len(neighbour.differences))[:NEXT]


def departures(row: Method) -> str:
    """The comment above a row: where it departs from its paper, and why; "" where there is none."""
    files = [Path(row.file.rpartition(":")[0])] if row.file else sorted(HERE.glob("*.py"))
    return next((text for path in files if (text := remarks(path.read_text()).get(row.name))), "")


def remarks(text: str) -> dict[str, str]:
    """The comments that stand above the rows of a file, by row: above the call that names it, or above the
    statement in which it is made."""
    lines, found = text.splitlines(), {}
    for statement in syntax(text).body:
        for call in (node for node in ast.walk(statement) if isinstance(node, ast.Call)):
            name = {k.arg: k.value for k in call.keywords}.get("name")
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                found[name.value] = above(lines, call.lineno) or above(lines, statement.lineno)
    return found


def above(lines: list[str], line: int) -> str:
    """The comment that ends on the line above."""
    start = line - 1
    while start and lines[start - 1].strip().startswith("#"):
        start -= 1
    return " ".join(text.strip().lstrip("# ") for text in lines[start: line - 1])

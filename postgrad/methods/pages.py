"""Documentation of rows as data: the page of a row, and two rows side by side.

All of it is read from the source: docstrings, comments, line numbers. In a docstring a formula is a line
indented by four spaces more than the words; a line indented further continues the formula above it.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from postgrad.methods.row import (
    COLUMNS,
    Function,
    Method,
    Policy,
    bound_constants,
    constant_meaning,
    constants_of,
    row_functions,
    unbound,
)
from postgrad.system.user_code import function_name, parse_source, source_lines, text_hash

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parent.parent
NEAREST = 3  # rows that a row is compared with
INDENT = "    "
FLAGS = ("compares", "ratio", "unbiased", "teacher", "shown")  # what a row says of itself that no run can set


# docstrings

class DocPiece(NamedTuple):
    """A paragraph of words or a formula, on one line each. kind: words or formula."""

    kind: str
    text: str


def docstring(function: Function) -> str:
    """A function's docstring with its indentation, ended by a line of the margin alone. Python 3.13 strips
    the margin, and a formula at the end would look like words."""
    inner = unbound(function)
    try:
        return _source_docstring(inner) or inner.__doc__ or ""
    except (OSError, TypeError, SyntaxError):  # typed in, built in, or a callable object
        return inner.__doc__ or ""


@lru_cache(maxsize=1000)
def _source_docstring(function: Function) -> str:
    node = parse_source(textwrap.dedent(inspect.getsource(function))).body[0]
    if not isinstance(node, ast.FunctionDef | ast.ClassDef):
        return ""
    text = ast.get_docstring(node, clean=False)
    return f"{text.rstrip()}\n{' ' * node.body[0].col_offset}" if text else ""


def doc_pieces(doc: str | None) -> list[DocPiece]:
    """A docstring's paragraphs and formulas in their order.

        doc_pieces("A square.\\n\\n        f(x) = x^2\\n    ")  ->  words "A square.", formula "f(x) = x^2"
    """
    out: list[DocPiece] = []
    before = ""  # the line above, with its indentation beyond the margin
    for line in _without_margin(doc or ""):
        formula = line.startswith(INDENT)
        continues = formula and before.startswith(INDENT) and _indent(line) > _indent(before)
        if line.strip() and (continues or (not formula and before and not before.startswith(INDENT))):
            out[-1] = out[-1]._replace(text=f"{out[-1].text} {' '.join(line.split())}")
        elif line.strip():
            out.append(DocPiece("formula" if formula else "words", " ".join(line.split())))
        before = before if continues else line.rstrip()
    return out


def _without_margin(doc: str) -> list[str]:
    """The lines of a docstring without its margin; the closing quotes' line has it too."""
    first, *rest = doc.expandtabs().splitlines() or [""]
    filled = [line for line in rest if line.strip()] + (rest[-1:] if rest and not rest[-1].strip() else [])
    margin = min(map(_indent, filled), default=0)
    return [first.strip(), *(line[margin:] for line in rest)]


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def first_paragraph(doc: str | None) -> str:
    """The first paragraph of a docstring, on one line."""
    return next((piece.text for piece in doc_pieces(doc) if piece.kind == "words"), "")


def formulas_in(doc: str | None) -> list[str]:
    """The formulas of a docstring."""
    return [piece.text for piece in doc_pieces(doc) if piece.kind == "formula"]


# two rows side by side

class Difference(NamedTuple):
    """One part of two rows, as each of them has it; None where one has no such part.

    kind: function (a dict of `function_facts`), constant, fact or words.
    """

    part: str
    kind: str
    first: object
    second: object


def compare_rows(a: Method, b: Method) -> list[Difference]:
    """The differences of two rows: source of batches, functions, constants, columns, texts. [] where only
    names and texts differ."""
    out = [Difference(part, kind, first, second)
           for kind, parts_of in (("function", used_functions), ("fact", row_facts), ("constant", settable))
           for part, first, second in _differing(parts_of(a), parts_of(b))]
    return out + [Difference(part, "words", getattr(a, part), getattr(b, part)) for part in ("about", "paper")
                  if out and getattr(a, part) != getattr(b, part)]


def _differing(a: Mapping[str, object], b: Mapping[str, object]) -> list[tuple[str, object, object]]:
    """The parts that differ; a missing part equals 0, False and None."""
    pairs = [(part, a.get(part), b.get(part)) for part in dict(a) | dict(b)]
    return [(part, x, y) for part, x, y in pairs if x != y and (x or y)]


def unused_functions(row: Method) -> set[str]:
    """The fields whose functions are not called: the estimator of a KL without a weight."""
    return {"kl_estimator"} if isinstance(row, Policy) and not row.kl_in_loss else set()


def used_functions(row: Method) -> dict[str, object]:
    return {place: function_facts(function) for place, function in row_functions(row).items()
            if place not in unused_functions(row)}


def settable(row: Method) -> dict[str, object]:
    """The constants of a row that are not facts."""
    return {name: value for name, value in constants_of(row).items() if name not in row_facts(row)}


def row_facts(row: Method) -> dict[str, object]:
    """Kind, source, reference, columns and flags of a row."""
    columns = {f"columns of {place}": list(row.columns_of(place)) for place in row_functions(row)}
    flags = {name: getattr(row, name) for name in FLAGS} if isinstance(row, Policy) else {}
    return {"kind": row.kind, "learns from": row.source, "reference": row.needs_reference, **columns, **flags}


def function_facts(function: Function) -> dict[str, object]:
    """A function of a row: name, module, constants, first paragraph, formulas; of a user's function a hash of
    its source too."""
    doc = docstring(function)
    module, _, name = function_name(function).rpartition(".")
    own = {} if module.startswith("postgrad.") else {"text": text_hash(function)}
    return {"function": name, "module": module, "constants": bound_constants(function), **own,
            "says": first_paragraph(doc), "formulas": formulas_in(doc)}


# the page of a row

class RowFunction(NamedTuple):
    """A function of a row: location (file relative to the source tree), constants, docstring."""

    field: str
    function: str
    file: str
    line: int
    constants: dict[str, object]
    pieces: list[DocPiece]


class ConstantInfo(NamedTuple):
    """A constant by the name that sets it. within: its range in words. on: whether it has an effect."""

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
class MethodPage:
    """The page of a row. teacher: who it is, "" without one. wants: the columns of the batch that its
    functions take, with their descriptions. updates: optimizer steps of a collection."""

    name: str
    kind: str
    source: str
    about: str
    paper: str
    reference: bool
    teacher: str
    parts: list[RowFunction]
    wants: dict[str, str]
    constants: list[ConstantInfo]
    departures: str
    epochs: int
    minibatches: int
    ratio: bool
    neighbours: list[Neighbour]

    @property
    def updates(self) -> int:
        return self.epochs * self.minibatches


def method_page(row: Method, table: Mapping[str, Method]) -> MethodPage:
    """The page of a row, one of the table's or a user's own."""
    epochs, minibatches, ratio = ((row.epochs, row.minibatches, row.ratio) if isinstance(row, Policy)
                                  else (1, 1, False))
    return MethodPage(
        name=row.name, kind=row.kind, source=row.source, about=row.about, paper=row.paper,
        reference=row.needs_reference, teacher=teacher_words(row),
        parts=[row_function(place, function) for place, function in row_functions(row).items()
               if place not in unused_functions(row)],
        wants={name: COLUMNS[name].about for name in sorted(row.wanted)},
        constants=[constant_info(row, name, value) for name, value in constants_of(row).items()],
        departures=departures(row), epochs=epochs, minibatches=minibatches, ratio=ratio,
        neighbours=nearest_rows(row, table.values()),
    )


def teacher_words(row: Method) -> str:
    if not isinstance(row, Policy) or not row.teacher:
        return ""
    return ("the model that the run starts from, shown a demonstration" if row.shown
            else "the model that `teacher=` names")


def row_function(place: str, function: Function) -> RowFunction:
    name = function_name(function).rpartition(".")[2]
    return RowFunction(place, name, *source_location(function), bound_constants(function),
                       doc_pieces(docstring(function)))


def source_location(function: Function) -> tuple[str, int]:
    """The file and the line of a function; its module and 0 where it has no source."""
    inner = unbound(function)
    owner = inner if inspect.isroutine(inner) or inspect.isclass(inner) else type(inner)
    try:
        path, line = Path(inspect.getsourcefile(owner) or "").resolve(), source_lines(owner)[1]
    except (OSError, TypeError):  # typed in, or built in
        return str(owner.__module__), 0
    near = next((folder for folder in (ROOT, Path.cwd()) if path.is_relative_to(folder)), None)
    return (path.relative_to(near) if near else path).as_posix(), line


def constant_info(row: Method, name: str, value: object) -> ConstantInfo:
    """A row's own constant is off at 0; a function's never is."""
    within, about, when = constant_meaning(row, name)
    on = name not in vars(row) or bool(getattr(row, name))
    return ConstantInfo(name, value, within.words if within else "", about, when, on)


def nearest_rows(row: Method, rows: Iterable[Method]) -> list[Neighbour]:
    """The rows of the same kind with the fewest differences from this one."""
    others = [Neighbour(other.name, [d for d in compare_rows(row, other) if d.kind != "words"])
              for other in rows if other.kind == row.kind and other.name != row.name]
    return sorted(others, key=lambda neighbour: len(neighbour.differences))[:NEAREST]


def departures(row: Method) -> str:
    """The comment above a row, where it departs from its paper and why; "" without one."""
    files = [Path(row.file.rpartition(":")[0])] if row.file else sorted(FOLDER.glob("*.py"))
    return next((text for path in files if (text := row_comments(path.read_text()).get(row.name))), "")


def row_comments(text: str) -> dict[str, str]:
    """The comments above the rows of a file, by row: above its call, or above the statement of the call."""
    lines, out = text.splitlines(), {}
    for statement in parse_source(text).body:
        for call in (node for node in ast.walk(statement) if isinstance(node, ast.Call)):
            name = {k.arg: k.value for k in call.keywords}.get("name")
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                out[name.value] = (_comment_above(lines, call.lineno)
                                   or _comment_above(lines, statement.lineno))
    return out


def _comment_above(lines: list[str], line: int) -> str:
    """The comment that ends on the line above."""
    start = line - 1
    while start and lines[start - 1].strip().startswith("#"):
        start -= 1
    return " ".join(text.strip().lstrip("# ") for text in lines[start: line - 1])

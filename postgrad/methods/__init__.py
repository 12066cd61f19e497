"""THE TABLE: one row per algorithm.

Two algorithms are compared by reading two rows; a variant is a row, never a flag.

row         what a row is          constants   what of it can be set, and what a run keeps of it
supervised, preference, policy   the rows, by what they learn from
parts       what of a policy row is set by a name: a correction, a choice of tokens
words, ranges   what each constant is, when to change it, and what it may be
compare     two rows side by side      pages   all that is to be said of a row, as data
A row names functions of maths/ with their constants. Where a row departs from its paper, its comment says so.
What is common to all rows and to no paper: a normaliser runs over the whole step (papers write it per
prompt), and no row has a learning rate. Any other module in this folder adds the rows it defines; so does a
user's file, by its path, and `register`, for as long as the process lives.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path

from postgrad.methods.constants import change, constants, described, difference, parts, title
from postgrad.methods.parts import PARTS
from postgrad.methods.row import SOURCES, Method, Policy, Preference, Row, Supervised
from postgrad.system.plugins import load_plugins
from postgrad.system.settings import suggest
from postgrad.system.user_code import load_file

__all__ = ["METHODS", "PARTS", "SOURCES", "Method", "Policy", "Preference", "Row", "Supervised", "change",
           "constants", "described", "difference", "get", "is_file", "method", "named", "register", "rows_in",
           "rows_of", "title"]

FIRST = ("supervised", "preference", "policy")


def rows_in(module) -> list[Method]:
    """The rows that a module defines, in its order: single ones, and those in tuples and lists."""
    found: list[Method] = []
    for name, value in vars(module).items():
        held = value if isinstance(value, tuple | list) else [value]
        found += [] if name.startswith("_") else [row for row in held
                                                  if isinstance(row, Method) and row not in found]
    return found


def _table() -> dict[str, Method]:
    here = sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.endswith("_test"))
    table: dict[str, Method] = {}
    for name in [*FIRST, *(m for m in here if m not in FIRST)]:
        for row in rows_in(import_module(f"{__name__}.{name}")):
            if row.name in table:
                raise ValueError(f"two rows are called {row.name}: give the one in "
                                 f"methods/{name}.py another name.")
            table[row.name] = row
    return table


METHODS: dict[str, Method] = _table()


def register(row: Method) -> Method:
    """A row of your own, by its name from here on, for as long as the process lives.

    A name of the table is refused.
    """
    if not isinstance(row, Row):
        raise ValueError(f"{row!r:.80} is no row: make one with Policy, Preference or Supervised, or by "
                         "changing another.")
    if row.name in METHODS and METHODS[row.name] is not row and row.name in _BUILT_IN:
        raise ValueError(f"{row.name} is a row of the table: give yours another name.")
    METHODS[row.name] = row
    return row


_BUILT_IN = frozenset(METHODS)


def get(name: str) -> Method:
    """The row of that name; FILE.py, or FILE.py:NAME where it defines several, is a row of the user's own."""
    rows = rows_of(name)
    if len(rows) > 1:
        raise ValueError(f"{name} defines several rows: name one, e.g. {name}:{rows[0].name}.")
    return rows[0]


def rows_of(name: str) -> list[Method]:
    """The rows that a name means: one of the table, FILE.py:NAME, or all that FILE.py defines."""
    if is_file(name):
        file, _, inside = name.partition(".py:")
        return _from_file(Path(f"{file.removesuffix('.py')}.py"), inside)
    if name not in METHODS:
        load_plugins()
    if name in METHODS:
        return [METHODS[name]]
    raise ValueError(f"there is no method {name!r}.{suggest(name.lower().replace('-', '_'), METHODS)}")


def is_file(name: str) -> bool:
    """Whether a name is that of a user's file, with or without a row in it."""
    return name.endswith(".py") or ".py:" in name


def _from_file(path: Path, name: str) -> list[Method]:
    module = load_file(path, "row")
    rows = {row.name: row for row in rows_in(module) if METHODS.get(row.name) is not row}
    if not rows:
        raise ValueError(f"{path} defines no row: add one, e.g. row = postgrad.method('grpo', "
                         "name='mine', high=0.3).")
    if name and name not in rows:
        raise ValueError(f"{path} has no row {name!r}.{suggest(name, rows)}")
    taken = [rows[name]] if name else list(rows.values())
    for row in taken:
        if row.name in _BUILT_IN:
            raise ValueError(f"{path}: {row.name} is a row of the table: give yours another name.")
    return [change(row, file=f"{path}:{row.name}") for row in taken]


def method(row: str | Method, **changes: object) -> Method:
    """A row by name or as it is, with changes: method("dapo", high=0.3),
    method("grpo", name="mine", surrogate=mine)."""
    return change(get(row) if isinstance(row, str) else row, **changes)


def find(row: Method) -> Method | None:
    """The row of the table, or of the user's file, that this one is but for its constants and named parts;
    None where there is none."""
    known = get(row.file) if row.file else METHODS.get(row.name) if row.name in _BUILT_IN else None
    if known is None:
        return None
    alike = change(known, **{field: name for field, name in parts(row).items() if name in PARTS[field]})
    words: dict = {"constants": {}}
    same = constants(alike).keys() == constants(row).keys()
    return known if same and not difference(described(alike) | words, described(row) | words) else None


def named(words: str | Mapping) -> Method:
    """The row that a config names: "dapo", or {"name": "dapo", "high": 0.3}, as `Row.saved` writes it."""
    if isinstance(words, str):
        return get(words)
    if not isinstance(words.get("name"), str):
        raise ValueError(f"{dict(words)!r:.80} names no row: write its name, as in "
                         "{'name': 'dapo', 'high': 0.3}.")
    changes = {key: value for key, value in words.items() if key != "name"}
    return change(get(words["name"]), **changes)

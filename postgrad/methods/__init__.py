"""THE TABLE: one row per algorithm.

Two algorithms are compared by reading two rows; a variant is a row, never a flag.

row         what a row is: its kinds, its constants, the columns its functions are handed, rows by name
supervised, preference, policy   the rows, by what they learn from
pages       all that is to be said of a row, and two rows side by side, as data
A row names functions of maths/ with their constants. Where a row departs from its paper, its comment says so.
What is common to all rows and to no paper: a normaliser runs over the whole step (papers write it per
prompt), and no row has a learning rate. Any other module in this folder adds the rows it defines; so does a
user's file, by its path, and `register`, for as long as the process lives.
"""

from __future__ import annotations

import pkgutil
from importlib import import_module

from postgrad.methods.row import (
    BUILT_IN,
    COLUMNS,
    METHODS,
    PARTS,
    SOURCES,
    Method,
    Policy,
    Preference,
    Supervised,
    change,
    constants_of,
    describe_row,
    get_method,
    method,
    method_from_config,
    register,
    row_difference,
    row_title,
    rows_in,
    rows_named,
)

__all__ = ["COLUMNS", "METHODS", "PARTS", "SOURCES", "Method", "Policy", "Preference", "Supervised", "change",
           "constants_of", "describe_row", "get_method", "method", "method_from_config",
           "register", "row_difference", "row_title", "rows_in", "rows_named"]

FIRST = ("supervised", "preference", "policy")


def fill_table() -> None:
    """Puts the rows of every module of this folder into METHODS."""
    modules = sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.endswith("_test"))
    for name in [*FIRST, *(m for m in modules if m not in FIRST)]:
        for row in rows_in(import_module(f"{__name__}.{name}")):
            if row.name in METHODS:
                raise ValueError(f"two rows are called {row.name}: give the one in "
                                 f"methods/{name}.py another name.")
            METHODS[row.name] = row
    BUILT_IN.update(METHODS)


fill_table()

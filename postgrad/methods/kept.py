"""What a run keeps of its row: its words, constants and functions by name; and what differs between two."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from postgrad.methods.row import Method, constants, functions
from postgrad.user_code import text_hash


def described(row: Method) -> dict:
    """A row as JSON: its words, every constant, every function by name; the user's own by text too."""
    return {"name": row.name, "kind": row.kind, "source": row.source, "paper": row.paper, "about": row.about,
            "constants": constants(row), "functions": {k: called(f) for k, f in functions(row).items()},
            "wants": sorted(getattr(row, "wanted", ())), "texts": _texts(row)}


def called(function: Callable) -> str:
    plain = function.func if isinstance(function, partial) else function
    return f"{plain.__module__}.{getattr(plain, '__qualname__', type(plain).__qualname__)}"


def _texts(row: Method) -> dict[str, str]:
    """Hashes of the functions that are not the package's: constants alone do not say what they compute."""
    return {name: text_hash(function) for name, function in functions(row).items()
            if not called(function).startswith("postgrad.")}


def difference(before: Mapping, now: Mapping) -> str:
    """What differs between two described rows, in words; "" where nothing does."""
    found = []
    for part in ("constants", "functions", "texts"):
        old, new = before.get(part, {}), now.get(part, {})
        for key in sorted(old.keys() | new.keys()):
            if old.get(key) != new.get(key):
                changed = f"{key} was {old.get(key)} and is {new.get(key)}"
                found.append(f"the text of {key}" if part == "texts" else changed)
    found += [f"{key} was {before.get(key)} and is {now.get(key)}" for key in ("kind", "source", "wants")
              if before.get(key) != now.get(key)]
    return "; ".join(found)

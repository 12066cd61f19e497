"""The constants of a row: what they are, how they are set, and what a run keeps of the row
it was made with."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from numbers import Real
from typing import Any

from postgrad.methods.parts import PARTS
from postgrad.methods.ranges import range_of
from postgrad.system.settings import check_range, suggest
from postgrad.system.user_code import called, text_hash

Row = Any  # a frozen dataclass of methods/row.py, which stands on this module
WORDS = ("name", "source", "paper", "about", "file", "unbiased", "compares", "ratio", "shown")  # no constants


def title(row: Row, table: Mapping[str, Row]) -> str:
    """A row's name, and the constants that are not those of the table: "dapo(high=0.3)"."""
    known = constants(table[row.name]) if row.name in table else constants(row)
    changed = {k: v for k, v in constants(row).items() if known.get(k) != v}
    return row.name + (f"({', '.join(f'{k}={v}' for k, v in changed.items())})" if changed else "")


def same(a: object, b: object) -> bool:
    if isinstance(a, partial) and isinstance(b, partial):
        return (a.func, a.args, a.keywords) == (b.func, b.args, b.keywords)
    return a == b


# constants

def functions(row: Row) -> dict[str, Callable]:
    """The functions of a row by field: {"credit": ..., "surrogate": ..., "weigh": ...}"""
    return {f.name: value for f in fields(row) if callable(value := getattr(row, f.name))}


def bound(function: Callable) -> dict[str, object]:
    """The constants of a function: what `partial` bound, else its keyword-only defaults.

    {"low": 0.2, "high": 0.28}
    """
    plain = function.func if isinstance(function, partial) else function
    try:
        parameters = list(inspect.signature(plain).parameters.values())
    except (TypeError, ValueError):  # something built in, which has no signature
        parameters = []
    defaults = {p.name: p.default for p in parameters
                if p.kind is p.KEYWORD_ONLY and isinstance(p.default, int | float)}
    return defaults | (function.keywords if isinstance(function, partial) else {})


def written(name: str, constants: Mapping[str, object]) -> str:
    """A function with its constants: clipped_ratio(low=0.2, high=0.28)"""
    inside = ", ".join(f"{key}={value:g}" if isinstance(value, float) else f"{key}={value}"
                       for key, value in constants.items())
    return f"{name}({inside})" if inside else name


def _homes(row: Row) -> dict[str, list[tuple[str, str | None]]]:
    """Where each constant stands: {"high": [("surrogate", "high")], "kl_in_loss": [("kl_in_loss", None)]}"""
    homes: dict[str, list[tuple[str, str | None]]] = {}
    for f in fields(row):
        if isinstance(getattr(row, f.name), int | float) and f.name not in WORDS:
            homes.setdefault(f.name, []).append((f.name, None))
    for name, function in functions(row).items():
        for key in bound(function):
            homes.setdefault(key, []).append((name, key))
    return homes


def parts(row: Row) -> dict[str, str]:
    """The parts of a row that are set by a name: {"choose": "all", "correction": "tis"}. A function that has
    none there goes by its own."""
    held = {field: getattr(row, field) for field in PARTS if hasattr(row, field)}
    return {field: next((name for name, values in PARTS[field].items() if _plain(values[field]) is _plain(x)),
                        called(x).rpartition(".")[2] if callable(x) else "") for field, x in held.items()}


def _plain(function: object) -> object:
    return function.func if isinstance(function, partial) else function


def constants(row: Row) -> dict[str, object]:
    """Everything of a row that can be set, by the name that sets it: parts by their names, and numbers.

    GRPO: {"correction": "none", ..., "kl_in_loss": 0.04, ..., "low": 0.2, ...}

    A name that stands in two places is written with its place: "credit.lam".
    """
    out: dict[str, object] = dict(parts(row))
    for name, homes in _homes(row).items():
        for place, key in homes:
            value = getattr(row, place) if key is None else bound(getattr(row, place))[key]
            out[name if len(homes) == 1 else place if key is None else f"{place}.{key}"] = value
    return out


def change(row: Row, **values: object) -> Row:
    """Another row: change(dapo, high=0.3), change(grpo, name="mine", surrogate=my_surrogate).

    "surrogate.high" is high too.
    """
    named = {f.name for f in fields(row)}
    for name, value in sorted(values.items(), key=lambda x: x[0] not in PARTS):  # a part brings its constants
        by_name = name in PARTS and isinstance(value, str)
        if name in named and not by_name and not isinstance(getattr(row, name), int | float):
            row = replace(row, **{name: value})
        else:
            row = set_constant(row, name, value)
    return row


def set_constant(row: Row, name: str, value: object) -> Row:
    if name in parts(row):
        if value not in PARTS[name]:
            raise ValueError(f"method.{name}={value!r}: there is no such part."
                             f"{suggest(str(value), PARTS[name])}")
        return replace(row, **PARTS[name][str(value)])
    place, _, key = name.rpartition(".")
    homes = [home for home in _homes(row).get(key, ()) if not place or home[0] == place]
    if not homes:
        raise ValueError(f"{row.name} has no constant {name!r}.{suggest(name, constants(row))}")
    if len(homes) > 1:
        options = " or ".join(f"{where}.{key}" if inner else where for where, inner in homes)
        raise ValueError(f"{row.name} has {name!r} in two places, {options}: write the one that is meant.")
    (where, inner), = homes
    value = _checked(row, name, value,
                     getattr(row, where) if inner is None else bound(getattr(row, where))[inner])
    if inner is None:
        check_range(f"method.{name}", value, range_of(name))
        return replace(row, **{where: value})
    function = getattr(row, where)
    check_range(f"method.{name}", value, range_of(inner, function))
    plain, before = (function.func, function.keywords) if isinstance(function, partial) else (function, {})
    return replace(row, **{where: partial(plain, **before | {inner: value})})


def _checked(row: Row, name: str, value: object, before: object) -> object:
    """A number for a number, true or false for a switch."""
    if isinstance(before, bool):
        if not isinstance(value, bool):
            raise ValueError(f"method.{name}={value!r}: {row.name} expects true or false.")
        return value
    number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else math.nan
    if not math.isfinite(number):
        raise ValueError(f"method.{name}={value!r}: {row.name} expects a number, it has {before}.")
    return int(number) if isinstance(before, int) and number.is_integer() else number


# what a run keeps of its row

def described(row: Row) -> dict:
    """A row as JSON: its words, every constant, every function by name;
    functions of the user's own by their text too."""
    return {"name": row.name, "kind": row.kind, "source": row.source, "paper": row.paper, "about": row.about,
            "constants": constants(row), "functions": {k: called(f) for k, f in functions(row).items()},
            "wants": sorted(getattr(row, "wanted", ())), "compares": getattr(row, "compares", False),
            "shown": getattr(row, "shown", False), "texts": _texts(row)}


def _texts(row: Row) -> dict[str, str]:
    """Hashes of the functions that are not the package's:
    their constants alone do not say what they compute."""
    return {name: text_hash(function) for name, function in functions(row).items()
            if not called(function).startswith("postgrad.")}


def difference(before: Mapping, now: Mapping) -> str:
    """What differs between two described rows, in words; "" where nothing does."""
    found = []
    for part in ("constants", "functions", "texts"):
        old, new = (x if isinstance(x := said.get(part), Mapping) else {} for said in (before, now))
        for key in sorted(old.keys() | new.keys()):
            if old.get(key) != new.get(key):
                found.append(f"the text of {key}" if part == "texts" else f"{key} was {old.get(key)} and is "
                             f"{new.get(key)}")
    facts = ("kind", "source", "wants", "shown")
    found += [f"{key} was {before.get(key)} and is {now.get(key)}" for key in facts
              if (before.get(key) or None) != (now.get(key) or None)]
    return "; ".join(found)

"""Two rows side by side: only what differs, with what their functions say of themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import NamedTuple

from postgrad.methods.constants import bound, constants, functions
from postgrad.methods.docstrings import docstring, first_paragraph, set_apart
from postgrad.methods.row import Method
from postgrad.system.user_code import called, text_hash

FLAGS = ("compares", "ratio", "unbiased", "teacher", "shown")  # what a row says of itself that no run can set
WORDS = ("about", "paper")


class Difference(NamedTuple):
    """One part of two rows, as each of them has it; None where one has no such part.

    kind: function (a dict of `told`), constant, fact or words.
    """

    part: str
    kind: str
    first: object
    second: object


def compare(a: Method, b: Method) -> list[Difference]:
    """What differs between two rows: where their batches come from, functions, constants, the columns they
    want, what they say of themselves. Nothing where they are one row under two names."""
    found = [Difference(part, kind, first, second)
             for kind, parts_of in (("function", used), ("fact", facts), ("constant", settable))
             for part, first, second in beside(parts_of(a), parts_of(b))]
    return found + [Difference(part, "words", getattr(a, part), getattr(b, part)) for part in WORDS
                    if found and getattr(a, part) != getattr(b, part)]


def beside(a: dict, b: dict) -> list[tuple[str, object, object]]:
    """The parts that differ; what one has not and the other has as 0, no or nothing is no difference."""
    pairs = [(part, a.get(part), b.get(part)) for part in a | b]
    return [(part, x, y) for part, x, y in pairs if x != y and (x or y)]


def used(row: Method) -> dict[str, object]:
    """The functions of a row, each as it is told; the estimator of a KL alone that has a weight."""
    return {part: told(function) for part, function in functions(row).items() if part not in idle(row)}


def idle(row: Method) -> set[str]:
    """The functions that a row has and does not use."""
    return {"kl"} if not getattr(row, "kl_in_loss", 0) else set()


def settable(row: Method) -> dict[str, object]:
    """The constants of a row, but for what is a fact of it."""
    return {name: value for name, value in constants(row).items() if name not in facts(row)}


def facts(row: Method) -> dict[str, object]:
    """What a row is, beside its functions and constants."""
    wants = {f.name: list(getattr(row, f.name)) for f in fields(row) if f.name.endswith("_wants")}
    flags = {name: getattr(row, name) for name in FLAGS if hasattr(row, name)}
    return {"kind": row.kind, "learns from": row.source, "reference": row.reference, **wants, **flags}


def told(function: Callable) -> dict[str, object]:
    """A function of a row: its name, where it stands, what is bound to it, its first sentence, its formulas;
    of a user's function a hash of its text too, for a name alone does not say what it computes."""
    doc = docstring(function)
    module, _, name = called(function).rpartition(".")
    own = {} if module.startswith("postgrad.") else {"text": text_hash(function)}
    return {"function": name, "module": module, "constants": bound(function), **own,
            "says": first_paragraph(doc), "formulas": set_apart(doc)}

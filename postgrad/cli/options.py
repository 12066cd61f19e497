"""Commands and their options: a dataclass of settings becomes flags, and flags become the dataclass.

`max_new_tokens: int = setting(64, "...")` is --max-new-tokens N. A field without a default is required, a
bool is a switch, a list may be given several times.
"""

from __future__ import annotations

import argparse
import typing
from collections.abc import Callable, Iterator
from dataclasses import MISSING, Field, dataclass, fields
from typing import Any, NamedTuple, TypeVar

from postgrad.system.settings import Settings, annotations_of, setting

SPLITS = ("train", "validation", "test")
STORE = "preferences.db"


@dataclass(frozen=True, kw_only=True)
class CommandOptions(Settings):
    """The options of every command."""

    json: bool = setting(False, "print one JSON object and nothing else")

    @classmethod
    def name_of(cls, field_name: str) -> str:
        return f"--{field_name.replace('_', '-')}"


class Command(NamedTuple):
    """A command. epilog: what its help says last; actions: the commands inside it, where it is several."""

    name: str
    about: str
    options: type[CommandOptions] = CommandOptions
    run: Callable[[Any], int | None] = lambda options: 0
    epilog: str = ""
    actions: tuple[Command, ...] = ()


def add_options(parser: argparse.ArgumentParser, options: type[Settings]) -> None:
    """Every field as an argument: position or flag, type, default and choices; its sentence is the help."""
    annotations = annotations_of(options)
    for f in fields(options):
        name = f.name if f.metadata["positional"] else f"--{f.name.replace('_', '-')}"
        parser.add_argument(name, **dict(argparse_arguments(f, annotations[f.name])))


def argparse_arguments(f: Field[Any], annotation: Any) -> Iterator[tuple[str, Any]]:
    """The keyword arguments of `add_argument` for a field."""
    default = f.default_factory() if f.default_factory is not MISSING else f.default
    is_list, positional = typing.get_origin(annotation) is list, f.metadata["positional"]
    yield "help", (f.metadata["about"] + default_words(default, f)).replace("%", "%%")
    if default is not MISSING:
        yield "default", default
    elif not positional:
        yield "required", True
    if annotation is bool:
        yield "action", "store_true"
        return
    yield "type", item_type(annotation)
    if is_list and not positional:
        yield "action", "append"
    elif positional and (is_list or default is not MISSING):
        yield "nargs", "+" if default is MISSING else "*" if is_list else "?"
    if f.metadata["choices"]:
        yield "choices", f.metadata["choices"]
    else:
        number = item_type(annotation) in (int, float)
        yield "metavar", f.metadata["metavar"] or ("N" if number else f.name.upper())


def item_type(annotation: Any) -> type:
    """The type of one value: int | None -> int, list[str] -> str."""
    inside = [t for t in typing.get_args(annotation) if t is not type(None)]
    return item_type(inside[0]) if inside else annotation


def default_words(default: object, f: Field[Any]) -> str:
    """The default, where the sentence does not say it."""
    has_words = isinstance(default, int | float | str) and not isinstance(default, bool)
    return f" (default: {default})" if has_words and "default" not in f.metadata["about"] else ""


Options = TypeVar("Options", bound=Settings)


def options_from(cls: type[Options], source: object) -> Options:
    """The dataclass from a parsed command line, or from another that has its fields."""
    return cls(**{f.name: getattr(source, f.name) for f in fields(cls)})

"""Parses text into the values of settings, for the command line and the studio's form; everything else builds
configs from Python values (system/settings.py)."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal

from postgrad.system.settings import Configurable, SettingNames, Settings, type_words, union_members

NONE = ("none", "null", "")
SWITCH = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def parse_settings(cls: type[Settings], texts: Iterable[str], configurables: Mapping[str, Configurable] = {},
                   hint: Callable[[str], str] = lambda name: "") -> dict[str, object]:
    """parse_settings(RolloutConfig, ["lr=1e-4"]) -> {"optim.lr": 0.0001}, for `replace_settings`.

    configurables: as in SettingNames, where they are not the defaults: {"method": dapo}. hint: likewise.
    """
    pairs = [split_setting(text) for text in texts]
    configurables = {f.name: f.default for f in fields(cls) if isinstance(f.default, Configurable)} | {
        **configurables}
    names, values = SettingNames(cls, configurables, hint), dict[str, object]()
    for key, text in sorted(pairs, key=lambda pair: pair[0] not in configurables):  # they decide the names
        name = names.find(key)
        head, _, inner = name.partition(".")
        if name in configurables:
            values[name] = configurables[name] = names.fields[name].metadata["resolve"](text)
        else:
            values[name] = parse_value(text, names.annotations.get(name, str), key)
        if head in configurables and inner and isinstance(values[name], str):  # a part brings its constants
            configurables[head] = configurables[head].with_setting(inner, values[name])
        if head in configurables:
            names = SettingNames(cls, configurables, hint)
    return values


def split_setting(text: str) -> tuple[str, str]:
    """"optim.lr=1e-4" -> ("optim.lr", "1e-4")"""
    name, sign, value = text.partition("=")
    if not sign or not name:
        file = f"data={text}, or of prompts --task {text}" if "/" in text or Path(text).suffix else ""
        raise ValueError(f"{text!r} is not a setting: write "
                         + (f"{file}." if file else "KEY=VALUE, e.g. optim.lr=1e-4."))
    return name, value


def parse_value(text: str, annotation: Any, name: str) -> object:
    """The value of a text, by the annotation of its field."""
    members = union_members(annotation)
    if text.lower() in NONE and {type(None), object} & set(members):
        return None
    for member in members:
        try:
            return _parse_as(text, member)
        except (ValueError, KeyError):
            continue
    expected = " or ".join(map(type_words, members)).lower()
    raise ValueError(f"{name}={text!r:.80}: expected {expected}.")


def _parse_as(text: str, kind: Any) -> object:
    """ValueError or KeyError where the text is no value of that type."""
    if kind is bool:
        return SWITCH[text.lower()]
    if kind is int:
        whole = text.lstrip("+-").isdecimal() or not float(text).is_integer()
        return int(text) if whole else int(float(text))
    if kind is float:
        return float(text)
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return {str(x): x for x in inside}[text]
    if origin in (list, tuple):
        return origin(_parse_as(part.strip(), inside[0]) for part in text.split(","))
    if kind is type(None):
        raise ValueError(text)
    return text  # a name, or an object by its name

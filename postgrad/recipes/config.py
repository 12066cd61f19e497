"""Configs are small frozen dataclasses; the command line overrides their values, and a run saves them as JSON."""

from __future__ import annotations

import difflib
import types
import typing
from collections.abc import Iterable
from dataclasses import MISSING, fields, is_dataclass, replace


def suggest(word: str, known: Iterable[str], more: Iterable[str] = ()) -> str:
    """' Did you mean `rollouts`?' or, without a near match (in `more` either), the list of what there is."""
    known = sorted(known)
    near = difflib.get_close_matches(word, [*known, *more], n=1, cutoff=0.5)
    return f" Did you mean {near[0]!r}?" if near else f" There is: {', '.join(known)}."


def override(config, changes: Iterable[str]):
    """override(config, ["optim.lr=1e-4", "steps=20"]): a new config with these values; all of them are checked as usual.

    A setting of a group may be named without it where only one group has it: lr=1e-4.
    """
    wanted = []
    for change in changes:
        path, sign, text = change.partition("=")
        if not sign or not path:
            raise ValueError(f"{change!r} is not a setting: write KEY=VALUE, e.g. optim.lr=1e-4.")
        wanted.append((path.split("."), text, path))
    return _set(config, wanted, config)


def _set(config, wanted: list[tuple[list[str], str, str]], whole):
    """All changes at once: two that are only right together (task=none data=mine.jsonl) are checked together."""
    known, hints = {f.name for f in fields(config)}, typing.get_type_hints(type(config))
    values, groups = {}, {}
    for (head, *rest), text, path in wanted:
        if head not in known:
            (head, *between), rest = _home(whole, head, path), [head, *rest]
            rest = [*between, *rest]
        now = getattr(config, head)
        if is_dataclass(now) != bool(rest):
            inside = ", ".join(f"{head}.{f.name}" for f in fields(now)) if is_dataclass(now) else ""
            kind = f"a group of settings: name one of {inside}" if inside else "one value"
            raise ValueError(f"{path!r} cannot be set so: {head!r} is {kind}.")
        if rest:
            groups.setdefault(head, []).append((rest, text, path))
        else:
            values[head] = parse(text, hints[head], path)
    return replace(config, **values, **{head: _set(getattr(config, head), inner, whole) for head, inner in groups.items()})


def _home(config, name: str, path: str) -> list[str]:
    """The group that a setting named without it stands in: lr for optim.lr, lora for optim.adapter.lora."""
    homes = [key.split(".")[:-1] for key in flat(config) if key.split(".")[-1] == name]
    if len(homes) > 1:
        options = " or ".join(".".join([*home, name]) for home in homes)
        raise ValueError(f"{path!r} may be {options}: write the one that is meant.")
    if not homes or "." in path:
        last, known = path.split(".")[-1], flat(config)
        elsewhere = [key for key in known if key.split(".")[-1] == last]  # the right name in another group
        hint = f" Did you mean {elsewhere[0]!r}?" if elsewhere else suggest(path, [f.name for f in fields(config)], known)
        raise ValueError(f"there is no setting {path!r}.{hint}")
    return homes[0]


def parse(text: str, kind, path: str):
    """Text as the type that the dataclass names."""
    options = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if type(None) in options and text.lower() in ("none", "null", ""):
        return None
    for option in options:
        try:
            if option is bool:
                return {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}[text.lower()]
            if option is int:
                return int(float(text)) if not text.lstrip("+-").isdecimal() and float(text).is_integer() else int(text)
            if option in (float, str):
                return option(text)
        except (ValueError, KeyError):
            continue
    wanted = " or ".join(getattr(o, "__name__", str(o)) for o in options if o is not type(None))
    raise ValueError(f"{path}={text!r}: expected {wanted}.")


def plain(config) -> dict:
    """A config as JSON-ready values."""
    return {f.name: plain(v) if is_dataclass(v := getattr(config, f.name)) else v for f in fields(config)}


def unplain(cls, values: dict):
    """The config that `plain` wrote; a key that this version does not know is an error, not a guess."""
    hints = typing.get_type_hints(cls)
    unknown = values.keys() - hints.keys()
    if unknown:
        raise ValueError(f"the saved config has {sorted(unknown)[0]!r}, which this version of {cls.__name__} does not know.")
    missing = {f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING} - values.keys()
    if missing:
        raise ValueError(f"the saved config lacks {sorted(missing)[0]!r}, which {cls.__name__} needs.")
    return cls(**{k: unplain(hints[k], v) if is_dataclass(hints[k]) else v for k, v in values.items()})


def flat(config, prefix: str = "") -> dict[str, object]:
    """Dotted keys and values: {"optim.lr": 0.0003, ...}"""
    out: dict[str, object] = {}
    for f in fields(config):
        value = getattr(config, f.name)
        out |= flat(value, f"{prefix}{f.name}.") if is_dataclass(value) else {prefix + f.name: value}
    return out

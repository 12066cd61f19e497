"""Settings: small frozen dataclasses whose fields explain themselves;
words on a command line override their values.

A field made with `setting` carries a sentence, and when to change it. A config may hold groups of settings
(other dataclasses), and values that have settings of their own (`Open`: a row of the table and its
constants), so that optim.lr=1e-4 and method.high=0.3 are both KEY=VALUE. A run saves its config as JSON.
"""

from __future__ import annotations

import difflib
import math
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from typing import ClassVar, NamedTuple


class Range(NamedTuple):
    """The numbers that a setting may have, in words and as a test."""

    words: str
    holds: Callable[[float], bool]


COUNT = Range("at least 1", lambda x: 1 <= x < math.inf)
NOT_NEGATIVE = Range("a number of 0 or more", lambda x: 0 <= x < math.inf)
POSITIVE = Range("a positive number", lambda x: 0 < x < math.inf)
ABOVE_ZERO = Range("above 0, or inf", lambda x: x > 0)
SHARE = Range("from 0 to below 1", lambda x: 0 <= x < 1)
FRACTION = Range("from 0 to 1", lambda x: 0 <= x <= 1)
ERROR_RATE = Range("from 0 to below 0.5", lambda x: 0 <= x < 0.5)


def check_range(name: str, value: object, within: Range | None) -> None:
    if within and not (isinstance(value, int | float) and within.holds(value)):
        raise ValueError(f"{name} is {value}: it must be {within.words}.")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a group of settings is: a frozen dataclass, its fields made with `setting`.

    prefix: what stands before its settings' names in a config: "optim."
    short: the setting that the group's own name stands for: kl=0 is kl.coef=0.
    """

    prefix: ClassVar[str] = ""
    short: ClassVar[str] = ""

    def __post_init__(self):
        for f in fields(self):
            if getattr(self, f.name) is not None:
                check_range(self.prefix + f.name, getattr(self, f.name), f.metadata.get("within"))


def setting(default=MISSING, about: str = "", when: str = "", within: Range | None = None, *,
            group: Callable | None = None, parse: Callable[[str], object] | None = None):
    """A field of a config. about: what it is, in a sentence; when: when to change it.

    within: the numbers it may have; checked whenever a config is made, None aside.

    group: makes its first value.

    parse: how a word becomes its value, where that is more than a number or a text.
    """
    said = {"about": about, "when": when, "parse": parse, "within": within}
    return field(default_factory=group, metadata=said) if group else field(default=default, metadata=said)


class Open:
    """A value of a config with settings of its own, named behind a dot."""

    def settings(self) -> Mapping[str, object]:
        raise NotImplementedError

    def with_setting(self, name: str, text: str) -> Open:
        raise NotImplementedError

    def words(self, name: str) -> tuple[str, str]:
        """What one of its settings is, and when to change it."""
        raise NotImplementedError

    def saved(self) -> object:
        """As JSON; None where it has no name that could be found again."""
        raise NotImplementedError


def suggest(word: str, known: Iterable[str], more: Iterable[str] = ()) -> str:
    """' Did you mean `rollouts`?' or, without a near match (in `more` either), the list of what there is."""
    near = difflib.get_close_matches(word, [*known, *more], cutoff=0.5)
    near.sort(key=lambda name: sorted(name) != sorted(word))  # letters that changed places come first
    return f" Did you mean {near[0]!r}?" if near else f" There is: {', '.join(sorted(known))}."


def parsed_names(config) -> None:
    """For __post_init__ of a config: a name that stands for something else (`parse`) becomes that thing."""
    for f in fields(config):
        parse, value = f.metadata.get("parse"), getattr(config, f.name)
        if parse and isinstance(value, str | Mapping):
            object.__setattr__(config, f.name, parse(value))


def override(config, changes: Iterable[str], known_elsewhere: Callable[[str], str] = lambda name: ""):
    """override(config, ["optim.lr=1e-4", "steps=20"]): a new config with these values;
    all of them are checked as usual.

    A setting of a group may be named without it where only one group has it: lr=1e-4, high=0.3.
    known_elsewhere: what to say of a name that other libraries use ("" where it is none).
    """
    wanted = []
    for change in changes:
        path, sign, text = change.partition("=")
        if not sign or not path:
            raise ValueError(f"{change!r} is not a setting: write KEY=VALUE, e.g. optim.lr=1e-4.")
        wanted.append((path.split("."), text, path))
    opened = _opened(config, wanted)
    return _set(config, wanted, opened, _Names(flat(config, opened=opened), known_elsewhere))


class _Names(NamedTuple):
    """All settings of a config by their whole names, and what to say of a name that other libraries use."""

    whole: Mapping[str, object]
    elsewhere: Callable[[str], str]

    def home(self, path: str, known: Iterable[str]) -> list[str]:
        """The whole name of a setting that was named without its group: lr -> optim.lr, lora ->
        optim.adapter.lora."""
        last = path.split(".")[-1]
        homes = [key for key in self.whole if key.split(".")[-1] == last]
        if "." not in path and len(homes) > 1:
            raise ValueError(f"{path!r} may be {' or '.join(homes)}: write the one that is meant.")
        if "." not in path and homes:
            return homes[0].split(".")
        hint = (self.elsewhere(last)
                or (f" Did you mean {homes[0]!r}?" if homes else suggest(path, known, self.whole)))
        raise ValueError(f"there is no setting {path!r}.{hint}")


def _opened(config, wanted: list[tuple[list[str], str, str]]) -> dict[str, Open]:
    """The config with the changes that decide which names there are:
    method=dapo has other constants than grpo."""
    opens = {f.name: f.metadata["parse"] for f in fields(config) if isinstance(getattr(config, f.name), Open)}
    return {path: opens[path](text) for (head, *rest), text, path in wanted if head in opens and not rest}


def _set(config, wanted, opened: Mapping[str, Open], names: _Names):
    """All changes at once: two that are only right together (task=none data=mine.jsonl) are
    checked together."""
    known = {f.name: f for f in fields(config)}
    hints = typing.get_type_hints(type(config))
    values: dict[str, object] = dict(opened)
    groups: dict[str, list] = {}
    for (head, *rest), text, path in wanted:
        if head not in known:
            head, *rest = names.home(path, known)
        now = values.get(head, getattr(config, head))
        if isinstance(now, Settings) and not rest and now.short:
            rest = [now.short]
        if isinstance(now, Open) and rest:
            values[head] = now.with_setting(".".join(rest), text)
        elif isinstance(now, Settings) and rest:
            groups.setdefault(head, []).append((rest, text, path))
        elif rest or isinstance(now, Settings):
            inside = ", ".join(f"{head}.{f.name}" for f in fields(now)) if isinstance(now, Settings) else ""
            kind = f"a group of settings: name one of {inside}" if inside else "one value"
            raise ValueError(f"{path!r} cannot be set so: {head!r} is {kind}.")
        elif head not in opened:
            values[head] = (known[head].metadata.get("parse") or _as(hints[head], path))(text)
    inner = {head: _set(getattr(config, head), changes, {}, names) for head, changes in groups.items()}
    return replace(config, **values, **inner)


def _as(kind, path: str) -> Callable[[str], object]:
    return lambda text: parse(text, kind, path)


def parse(text: str, kind, path: str):
    """Text as the type that the dataclass names."""
    options = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if type(None) in options and text.lower() in ("none", "null", ""):
        return None
    for option in options:
        try:
            if option is bool:
                return {"true": True, "1": True, "yes": True, "false": False, "0": False,
                        "no": False}[text.lower()]
            if option is int:
                return (int(float(text)) if not text.lstrip("+-").isdecimal() and float(text).is_integer()
                        else int(text))
            if option in (float, str):
                return option(text)
        except (ValueError, KeyError):
            continue
    names = [getattr(o, "__name__", str(o)) for o in options if o in (bool, int, float, str)]
    raise ValueError(f"{path}={text!r}: expected {' or '.join(names)}.")


def plain(config, record: Callable[[object], object] = repr) -> dict:
    """A config as JSON-ready values. record: what is kept of a value that is no name and no number."""
    return {f.name: _plain(getattr(config, f.name), record) for f in fields(config)}


def _plain(value, record: Callable[[object], object]):
    if isinstance(value, Open) and (saved := value.saved()) is not None:
        return saved
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return plain(value, record) if isinstance(value, Settings) else record(value)


def unplain(cls, values: Mapping, given: Mapping[str, object] | None = None):
    """The config that `plain` wrote; a key that this version does not know is an error, not a guess.

    given: what was handed in again, by field.
    """
    if not isinstance(values, Mapping):
        raise ValueError(f"the saved config has {values!r:.60} where a {cls.__name__} should stand.")
    hints = typing.get_type_hints(cls)
    unknown = values.keys() - hints.keys()
    if unknown:
        raise ValueError(f"the saved config has {sorted(unknown)[0]!r}, which this version of {cls.__name__} "
                         "does not know.")
    missing = ({f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING}
               - values.keys())
    if missing:
        raise ValueError(f"the saved config lacks {sorted(missing)[0]!r}, which {cls.__name__} needs.")
    given = given or {}
    for f in (f for f in fields(cls) if f.name in values and f.name not in given):
        if not could_be(values[f.name], hints[f.name], f.metadata):
            raise ValueError(f"the saved config has {values[f.name]!r:.60} for {f.name!r} of {cls.__name__}, "
                             "which cannot be its value.")
    return cls(**{k: given[k] if k in given else unplain(hints[k], v) if is_group(hints[k]) else v
                  for k, v in values.items()})


def could_be(value: object, kind, said: Mapping) -> bool:
    """Whether a value of a saved config is of its field's kind, as far as that is a plain one."""
    options = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if said.get("parse") and not {object, typing.Any} & set(options):
        return isinstance(value, str | Mapping) or (value is None and type(None) in options)
    if not set(options) <= {int, float, str, bool, type(None)}:
        return True
    return type(value) in options or (type(value) is int and float in options)


def is_group(kind) -> bool:
    return isinstance(kind, type) and issubclass(kind, Settings)


def flat(config, prefix: str = "", opened: Mapping[str, Open] | None = None) -> dict[str, object]:
    """Dotted keys and values: {"optim.lr": 0.0003, "method": "grpo", "method.low": 0.2, ...}"""
    out: dict[str, object] = {}
    for f in fields(config):
        value = (opened or {}).get(f.name, getattr(config, f.name))
        if isinstance(value, Open):
            out[prefix + f.name] = value
            out |= {f"{prefix}{f.name}.{key}": x for key, x in value.settings().items()}
        elif isinstance(value, Settings):
            out |= flat(value, f"{prefix}{f.name}.")
        else:
            out[prefix + f.name] = value
    return out


class Described(NamedTuple):
    """A setting of a config: its whole name, its value, what it is, when to change it."""

    key: str
    value: object
    about: str
    when: str


def described(config, prefix: str = "") -> Iterator[Described]:
    """Every setting of a config as a person reads it, in its order, what an Open value has after it."""
    for f in fields(config):
        key, value = prefix + f.name, getattr(config, f.name)
        if isinstance(value, Settings):
            yield from described(value, f"{key}.")
            continue
        yield Described(key, value, f.metadata.get("about", ""), f.metadata.get("when", ""))
        if isinstance(value, Open):
            yield from (Described(f"{key}.{name}", x, *value.words(name))
                        for name, x in value.settings().items())

"""Settings: small frozen dataclasses whose fields have a description, advice and a range.

A config may hold groups of settings (other `Settings`) and values with settings of their own
(`Configurable`: a method and its constants), so that optim.lr and method.high are both names. Values are
Python values, checked against annotation and range when a config is made; text is parsed in system/parse.py
alone. A run saves its config as JSON.
"""

from __future__ import annotations

import difflib
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from numbers import Integral, Real
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar


class SettingTypeError(TypeError, ValueError):
    """A value of a type that its setting does not have."""


class Range(NamedTuple):
    """The numbers that a setting may have, in words and as a predicate."""

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


def check_choice(name: str, value: object, choices: Sequence[object] | None) -> None:
    if choices and value not in choices:
        *others, last = map(str, choices)
        raise ValueError(f"{name} is {value!r:.80}: expected {', '.join(others)} or {last}.")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A group of settings: a frozen dataclass, its fields made with `setting`.

    prefix: what stands before its settings' names in a config: "optim."
    short: the setting that the group's own name stands for: kl=0 is kl.coef=0.
    """

    prefix: ClassVar[str] = ""
    short: ClassVar[str] = ""

    def __post_init__(self) -> None:
        """Resolves names, then checks every value's type and range."""
        annotations = annotations_of(type(self))
        for f in fields(self):
            name, value = self.name_of(f.name), getattr(self, f.name)
            if f.metadata.get("resolve") and isinstance(value, str | Mapping):
                checked = f.metadata["resolve"](value)
            else:
                checked = check_type(name, value, annotations[f.name])
            if checked is not value:
                object.__setattr__(self, f.name, checked)
            if checked is not None:
                check_range(name, checked, f.metadata.get("within"))
                check_choice(name, checked, f.metadata.get("choices"))

    @classmethod
    def name_of(cls, field_name: str) -> str:
        """A setting as errors name it."""
        return cls.prefix + field_name


S = TypeVar("S", bound=Settings)


def setting(default: Any = MISSING, about: str = "", when: str = "", within: Range | None = None, *,
            group: Callable[[], object] | None = None, resolve: Callable[[Any], object] | None = None,
            choices: Sequence[object] | None = None, metavar: str | None = None,
            positional: bool = False) -> Any:
    """A field of a config. about: its description; when: when to change it. within: its range, None aside.
    group: default factory of a group of settings. resolve: name or saved JSON -> object. choices: the values
    it may have. metavar, positional: of an option of a command."""
    metadata = {"about": about, "when": when, "resolve": resolve, "within": within, "choices": choices,
                "metavar": metavar, "positional": positional}
    group = default.copy if isinstance(default, list) else group
    return (field(default_factory=group, metadata=metadata) if group
            else field(default=default, metadata=metadata))


class Configurable:
    """A value of a config with settings of its own, named behind a dot: method.high."""

    def settings(self) -> Mapping[str, object]:
        raise NotImplementedError

    def with_setting(self, name: str, value: object) -> Configurable:
        raise NotImplementedError

    def words(self, name: str) -> tuple[str, str]:
        """Description and advice of one of its settings."""
        raise NotImplementedError

    def saved(self) -> object:
        """As JSON; None where no name resolves to it."""
        raise NotImplementedError


# types

def annotations_of(cls: type) -> dict[str, Any]:
    """The resolved annotations of a class."""
    if cls not in _ANNOTATIONS:
        _ANNOTATIONS[cls] = typing.get_type_hints(cls)
    return _ANNOTATIONS[cls]


_ANNOTATIONS: dict[type, dict[str, Any]] = {}


def union_members(annotation: Any) -> tuple[Any, ...]:
    """int | None -> (int, NoneType); int -> (int,)"""
    union = isinstance(annotation, types.UnionType) or typing.get_origin(annotation) is typing.Union
    return typing.get_args(annotation) if union else (annotation,)


def is_group(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Settings)


def check_type(name: str, value: object, annotation: Any) -> object:
    """The value as its annotation has it: an int for a float becomes a float, numpy's numbers Python's.
    Values of classes that are not built in pass."""
    members = union_members(annotation)
    if type(value) in members:
        return value
    for member in members:
        if (converted := _as_type(value, member)) is not MISSING:
            return converted
    expected = " or ".join(type_words(member) for member in members)
    kind = type(value).__name__
    article = "an" if kind[0] in "aeiou" else "a"
    raise SettingTypeError(f"{name} is {value!r:.80}, {article} {kind}: expected {expected}.")


def _as_type(value: object, kind: Any) -> object:
    """The value as that type; MISSING where it is not of it."""
    if kind in (bool, str, type(None)):
        return value if isinstance(value, kind) else MISSING
    if kind in (int, float):
        number = Integral if kind is int else Real
        return kind(value) if isinstance(value, number) and not isinstance(value, bool) else MISSING
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return value if any(value == x and type(value) is type(x) for x in inside) else MISSING
    if origin in (list, tuple):
        items = [_as_type(x, inside[0]) for x in value] if isinstance(value, list | tuple) else [MISSING]
        return MISSING if any(x is MISSING for x in items) else origin(items)
    if is_group(kind):
        return value if isinstance(value, kind) else MISSING
    return value


def type_words(kind: Any) -> str:
    """A type as an error names it."""
    known = {bool: "True or False", str: "text", type(None): "None", int: "a whole number",
             float: "a number"}
    if kind in known:
        return known[kind]
    origin, inside = typing.get_origin(kind), typing.get_args(kind)
    if origin is Literal:
        return f"one of {', '.join(map(repr, inside))}"
    if origin in (list, tuple):
        return f"a list, each item {type_words(inside[0])}"
    return f"{kind.__name__} or a dict of its settings" if is_group(kind) else str(kind)


# names

def suggest(word: str, known: Iterable[str], more: Iterable[str] = ()) -> str:
    """" Did you mean 'rollouts'?", or the list of `known` where nothing is close."""
    known = list(known)
    near = difflib.get_close_matches(word, [*known, *more], cutoff=0.5) or difflib.get_close_matches(
        re.sub(r"trainer$|config$", "", word.lower()), known, cutoff=0.5)  # TRL's GRPOTrainer
    near.sort(key=lambda name: sorted(name) != sorted(word))  # letters that changed places come first
    return f" Did you mean {near[0]!r}?" if near else f" There is: {', '.join(sorted(known))}."


class SettingNames:
    """The dotted names of a class of configs, and what shorter names resolve to. configurables: the values
    with settings of their own, by field. hint: the answer to a name of other libraries; "" for others."""

    def __init__(self, cls: type[Settings], configurables: Mapping[str, Configurable],
                 hint: Callable[[str], str] = lambda name: ""):
        self.annotations: dict[str, Any] = {}
        self.fields: dict[str, Field[Any]] = {}
        self.groups: dict[str, type[Settings]] = {}
        self.configurables, self.hint, self.top = configurables, hint, [f.name for f in fields(cls)]
        self._add(cls, "")

    def _add(self, cls: type[Settings], prefix: str) -> None:
        for f in fields(cls):
            name, annotation = prefix + f.name, annotations_of(cls)[f.name]
            if is_group(annotation):
                self.groups[name] = annotation
                self._add(annotation, f"{name}.")
                continue
            self.annotations[name], self.fields[name] = annotation, f
            if name in self.configurables:
                inside = self.configurables[name].settings()
                self.annotations |= {f"{name}.{key}": int | float if type(value) is int else type(value)
                                     for key, value in inside.items()}

    def find(self, name: str, whole_group: bool = False) -> str:
        """The dotted name: lr -> optim.lr, kl -> kl.coef, lora -> optim.adapter.lora. whole_group: a group
        may be named."""
        head = name.partition(".")[0]
        if name in self.annotations or head in self.configurables:
            return name
        if name in self.groups:
            return self._in_group(name, whole_group)
        if head in self.top and head not in self.groups:
            raise ValueError(f"{name!r} cannot be set so: {head!r} is one value.")
        homes = [key for key in self.annotations if key.split(".")[-1] == name.split(".")[-1]]
        if "." not in name and len(homes) > 1:
            raise ValueError(f"{name!r} may be {' or '.join(homes)}: write the one that is meant.")
        if "." not in name and homes:
            return homes[0]
        hint = (self.hint(name.split(".")[-1])
                or (f" Did you mean {homes[0]!r}?" if homes else suggest(name, self.top, self.annotations)))
        raise ValueError(f"there is no setting {name!r}.{hint}")

    def _in_group(self, name: str, whole_group: bool) -> str:
        group = self.groups[name]
        if whole_group:
            return name
        if group.short:
            return f"{name}.{group.short}"
        inside = ", ".join(f"{name}.{f.name}" for f in fields(group))
        raise ValueError(f"{name!r} cannot be set so: {name!r} is a group of settings: name one of {inside}."
                         f"{self.hint(name)}")

    def expand(self, changes: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
        """Changes by their dotted names; a dict for a group is expanded."""
        for key, value in changes.items():
            name = self.find(prefix + key, whole_group=isinstance(value, Mapping | Settings))
            if isinstance(value, Mapping) and (
                    name in self.groups or name in self.configurables and "name" not in value):
                yield from self.expand(value, f"{name}.")
            else:
                yield name, value


# configs

def replace_settings(config: S, changes: Mapping[str, object],
                     hint: Callable[[str], str] = lambda name: "") -> S:
    """replace_settings(config, {"optim.lr": 1e-4, "steps": 20}): another config, checked as usual.

    A setting may be named without its group where one group has it: lr, high. A group may be a dict:
    {"rollouts": {"temperature": 0.8}}. All changes are made at once: some are valid only together. hint: as
    in SettingNames.
    """
    configurables = configurables_of(config)
    for name in configurables.keys() & changes.keys():
        resolve, value = _field(config, name).metadata["resolve"], changes[name]
        if isinstance(value, str) or isinstance(value, Mapping) and "name" in value:
            changes = {**changes, name: (value := resolve(value))}
        if isinstance(value, Configurable):
            configurables[name] = value
    names = SettingNames(type(config), configurables, hint)
    checked = {}
    for name, value in names.expand(changes):
        if name in names.groups:
            value = check_type(name, value, names.groups[name])
        elif name in names.fields and not (names.fields[name].metadata.get("resolve")
                                           and isinstance(value, str | Mapping)):
            value = check_type(name, value, names.annotations[name])
        checked[name] = value
    return _replace(config, checked)


def configurables_of(config: Settings) -> dict[str, Configurable]:
    held = {f.name: getattr(config, f.name) for f in fields(config)}
    return {name: value for name, value in held.items() if isinstance(value, Configurable)}


def _field(config: Settings, name: str) -> Field[Any]:
    return next(f for f in fields(config) if f.name == name)


def _replace(config: S, changes: Mapping[str, object]) -> S:
    values: dict[str, object] = {name: value for name, value in changes.items() if "." not in name}
    inside: dict[str, dict[str, object]] = {}
    for name, value in changes.items():
        head, _, rest = name.partition(".")
        if rest:
            inside.setdefault(head, {})[rest] = value
    for head, inner in inside.items():
        now: Any = values.get(head, getattr(config, head))
        if isinstance(now, Configurable):
            for name, value in inner.items():
                now = now.with_setting(name, value)
        else:
            now = _replace(now, inner)
        values[head] = now
    return replace(config, **values)


def flat_settings(config: Settings, prefix: str = "") -> dict[str, object]:
    """Dotted names and values: {"optim.lr": 0.0003, "method": grpo, "method.low": 0.2, ...}"""
    return {row.name: row.value for row in describe_settings(config, prefix)}


def default_settings(cls: type[Settings]) -> dict[str, object]:
    """Dotted names and defaults of a class of configs; required settings have none."""
    out: dict[str, object] = {}
    for f in fields(cls):
        default = f.default if f.default_factory is MISSING else f.default_factory()
        if isinstance(default, Settings):
            out |= flat_settings(default, f"{f.name}.")
        elif default is not MISSING:
            out[f.name] = default
    return out


def setting_text(value: object) -> str:
    """A value as the command line takes it."""
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


class DescribedSetting(NamedTuple):
    """A setting of a config: dotted name, value, description, advice."""

    name: str
    value: object
    about: str
    when: str


def describe_settings(config: Settings, prefix: str = "") -> Iterator[DescribedSetting]:
    """Every setting of a config in its order; those of a Configurable follow it."""
    for f in fields(config):
        name, value = prefix + f.name, getattr(config, f.name)
        if isinstance(value, Settings):
            yield from describe_settings(value, f"{name}.")
            continue
        yield DescribedSetting(name, value, f.metadata.get("about", ""), f.metadata.get("when", ""))
        if isinstance(value, Configurable):
            yield from (DescribedSetting(f"{name}.{key}", x, *value.words(key))
                        for key, x in value.settings().items())


# JSON

def settings_to_json(config: Settings, record: Callable[[object], object] = repr) -> dict[str, Any]:
    """A config as JSON-ready values. record: makes JSON of any other value."""
    annotations = annotations_of(type(config))
    mappings = {name for name, kind in annotations.items() if typing.get_origin(kind) is Mapping}
    return {f.name: dict(value) if f.name in mappings else _to_json(value, record)
            for f in fields(config) for value in [getattr(config, f.name)]}


def _to_json(value: object, record: Callable[[object], object]) -> object:
    if isinstance(value, Configurable) and (saved := value.saved()) is not None:
        return saved
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Settings):
        return settings_to_json(value, record)
    return record(value)


def settings_from_json(cls: type[S], values: object,
                       objects: Mapping[str, object] | None = None) -> S:
    """The inverse of `settings_to_json`; unknown names are errors. objects: values passed in, by field."""
    if not isinstance(values, Mapping):
        raise ValueError(f"the saved config has {values!r:.60} where a {cls.__name__} should stand.")
    annotations, objects = annotations_of(cls), objects or {}
    if unknown := sorted(values.keys() - annotations.keys()):
        raise ValueError(f"the saved config has {unknown[0]!r}, which this version of {cls.__name__} "
                         "does not know.")
    required = {f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING}
    if missing := sorted(required - values.keys()):
        raise ValueError(f"the saved config lacks {missing[0]!r}, which {cls.__name__} needs.")
    loaded: dict[str, Any] = {}
    for f in (f for f in fields(cls) if f.name in values):
        value, annotation = values[f.name], annotations[f.name]
        if f.name in objects:
            loaded[f.name] = objects[f.name]
        elif is_group(annotation):
            loaded[f.name] = settings_from_json(annotation, value)
        elif _could_be(value, annotation, bool(f.metadata.get("resolve"))):
            loaded[f.name] = value
        else:
            raise ValueError(f"the saved config has {value!r:.60} for {f.name!r} of {cls.__name__}, "
                             "which cannot be its value.")
    return cls(**loaded)


def _could_be(value: object, annotation: Any, resolved: bool) -> bool:
    members = union_members(annotation)
    if resolved and not {object, Any} & set(members):
        return isinstance(value, str | Mapping) or (value is None and type(None) in members)
    try:
        check_type("", value, annotation)
    except SettingTypeError:
        return False
    return True

"""What an instrument is: a state in the URL, controls that change it, a function of the trainer, a picture.

state -> compute(state) -> numbers -> templates/instruments/NAME.html. So it can be shared, reloaded, and
tested without a browser.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, fields
from functools import cache, lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from starlette.datastructures import QueryParams

from postgrad.studio.json_types import JsonDict, Values
from postgrad.system.user_code import parse_source

PACKAGE = Path(__file__).parent.parent.parent
# the folder of runs of the request that is being answered
RUNS: ContextVar[Path | None] = ContextVar("RUNS", default=None)


@dataclass(frozen=True)
class Slider:
    """A number. In a field that is a tuple, one slider for each place, with its index.

    stops: a name for each of its values, where it can be played: the stages of a step of training.
    placed: the picture itself holds it, beside what it moves.
    """

    name: str
    label: str
    low: float
    high: float
    step: float
    index: int | None = None
    stops: tuple[str, ...] = ()
    placed: bool = False


@dataclass(frozen=True)
class ChoiceControl:
    """One of a few: values, or (value, label) pairs."""

    name: str
    label: str
    options: Values

    def pairs(self) -> list[Values]:
        return [option if isinstance(option, tuple) else (option, str(option)) for option in self.options]


@dataclass(frozen=True)
class Toggle:
    """On or off."""

    name: str
    label: str
    words: tuple[str, str] = ("on", "off")


Control = Slider | ChoiceControl | Toggle


@dataclass(frozen=True)
class Remark:
    """A sentence about a figure: its words, and when they are true of the numbers.

    `holds` looks at all that the words say, so that they are true of any numbers, those of an edited
    function included; what is not a number holds for nothing.
    """

    holds: Callable[[JsonDict], bool]
    words: Callable[[JsonDict], str]


def first_true(*claims: Remark) -> Callable[[JsonDict], str]:
    """An insight: the first of the claims that holds; "" where none does."""
    return lambda numbers: next((c.words(numbers) for c in claims if c.holds(numbers)), "")


@dataclass(frozen=True, kw_only=True)
class Instrument:
    """One instrument. Whatever its figure depends on is in the state, and the state in the URL.

    functions: the dotted names of what computes it, shown in the caption with their source.
    controls: a tuple, or a function of the state where the state decides which there are.
    settle: repairs a state whose fields don't fit each other (a group of 8 with 4 rewards).
    insight: one sentence with the live numbers, true of them, or "" (`first_true`). about: one sentence for
    the list.
    Its figure is templates/instruments/NAME.html, seen beside the controls; what may stand below the sentence
    (equations, further pictures, notes) is templates/instruments/below/NAME.html.
    """

    name: str
    number: int
    title: str
    functions: tuple[str, ...]
    state: type
    controls: tuple[Control, ...] | Callable[[Any], tuple[Control, ...]]
    compute: Callable[[Any], JsonDict]
    insight: Callable[[JsonDict], str]
    about: str = ""
    settle: Callable[[Any], Any] = lambda state: state

    def shown(self, state: Any) -> tuple[Control, ...]:
        return self.controls(state) if callable(self.controls) else self.controls

    def read(self, query: QueryParams) -> Any:
        """The state in a query.

        Numbers out of range are brought into it; what can't be read is refused with a sentence.
        """
        start = self.state()
        known = {f.name: getattr(start, f.name) for f in fields(start)}
        strange = sorted(set(query) - set(known) - {"before"})
        if strange:
            raise ValueError(f"{self.name} has no control {strange[0]!r}; it has {', '.join(known)}.")
        controls = {c.name: c for c in self.shown(start)}
        values = {name: parse_field(name, query.getlist(name), known[name], controls.get(name))
                  for name in query
                  if name in known}
        return self.settle(self.state(**values))

    def query(self, state: Any) -> str:
        """The state as a query, defaults left out: the same state always has the same address."""
        start = self.state()
        values = {f.name: getattr(state, f.name) for f in fields(state)}
        changed = [(k, v) for k, v in values.items() if v != getattr(start, k)]
        return urlencode([(k, query_text(x)) for k, v in changed
                          for x in (v if isinstance(v, tuple) else (v,))])

    def numbers(self, state: Any) -> JsonDict:
        return _numbers(self, state)


@lru_cache(maxsize=64)
def _numbers(instrument: Instrument, state: Any) -> JsonDict:
    return instrument.compute(state)


def close(a: float, b: float, within: float = 1e-6) -> bool:
    """Whether two numbers of a claim are the same; what is not a number is close to nothing."""
    return abs(a - b) <= within


def as_percent(share: float, digits: int = 1) -> str:
    """0.267 -> 26.7 %. What is not all is never 100 %, and what is not nothing never 0 %."""
    edge = 10.0 ** -digits
    if 0 < 100 * share < edge / 2:
        return f"under {edge:.{digits}f} %"
    if 100 - edge / 2 <= 100 * share < 100:
        return f"over {100 - edge:.{digits}f} %"
    return f"{100 * share:.{digits}f} %"


def query_text(value: object) -> str:
    return (str(int(value)) if isinstance(value, bool) else f"{value:.6g}" if isinstance(value, float)
            else str(value))


def parse_field(name: str, words: Sequence[str], default: object, control: Control | None) -> object:
    """What a query says of a field, in the type of its default."""
    if isinstance(default, tuple):
        if len(words) > 256:
            raise ValueError(f"{name} takes at most 256 values, not {len(words)}.")
        kind = default[0] if default else 0.0
        return tuple(parse_field(name, [word], kind, control) for word in words)
    word = words[-1]
    if isinstance(control, ChoiceControl):
        allowed = {query_text(value): value for value, _ in control.pairs()}
        if word not in allowed:
            raise ValueError(f"{name} is one of {', '.join(allowed)}, not {word[:40]!r}.")
        return allowed[word]
    if isinstance(default, bool):
        if word not in ("0", "1"):
            raise ValueError(f"{name} is 1 (on) or 0 (off), not {word[:40]!r}.")
        return word == "1"
    if isinstance(default, str):
        return word[:200]
    try:
        value = float(word)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{name} is a number, not {word[:40]!r}.")
    if isinstance(control, Slider):
        value = min(max(value, control.low), control.high)
    return round(value) if isinstance(default, int) else value


# the source of a function, read without importing it: torch stays out of a page

@cache
def function_source(name: str) -> Mapping[str, str | int]:
    """{"name", "file", "line", "text"} of postgrad.maths.preference.bradley_terry,
    or of a class or a table of a module."""
    module, _, wanted = name.rpartition(".")
    parts = module.split(".")[1:]
    file = PACKAGE.joinpath(*parts).with_suffix(".py")
    file = file if file.is_file() else PACKAGE.joinpath(*parts, "__init__.py")
    lines = file.read_text().splitlines()
    for node in parse_source("\n".join(lines)).body:
        names = {getattr(node, "name", None)} | {getattr(t, "id", None) for t in getattr(node, "targets", [])}
        if wanted in names:
            begin = min([node.lineno, *(d.lineno for d in getattr(node, "decorator_list", []))])
            return {"name": name, "file": file.relative_to(PACKAGE.parent).as_posix(), "line": begin,
                    "text": "\n".join(lines[begin - 1: node.end_lineno])}
    raise LookupError(f"{name}: {file} has no {wanted!r}")

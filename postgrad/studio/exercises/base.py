"""An exercise, and the verdict on an answer to it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from random import Random
from typing import Any, Literal

from postgrad.studio.exercises.symptoms import WHOLE, Parts
from postgrad.studio.exercises.values import near
from postgrad.studio.json_types import JsonDict, Values
from postgrad.system.user_code import parse_source

Answer = Callable[..., Any]  # the reader's function
NamedBy = Literal["", "mistake", "symptom", "where", "error", "shape", "property", "library", "count"]


@dataclass(frozen=True, kw_only=True)
class Mistake:
    """A known way to go wrong, as a change of the model solution; `says` is told to the learner who made it.

    Mistake(says="You took the mean of the batch.", old="mean(group)", new="mean(rewards)")
    """

    says: str
    old: str
    new: str

    def applied(self, solution: str) -> str:
        """The wrong solution, whole."""
        if solution.count(self.old) != 1:
            raise ValueError(f"{self.old!r} stands {solution.count(self.old)} times in the solution, not "
                             f"once.")
        return solution.replace(self.old, self.new)


@dataclass(frozen=True, kw_only=True)
class Property:
    """What every right answer keeps. holds: (answer, *arguments) -> whether it does, `answer` being the
    reader's function, as it is observed."""

    says: str
    holds: Callable[..., bool]


def call_answer(answer: Answer, *arguments: object) -> object:
    return answer(*arguments)


def repeats_itself(answer: Answer, *arguments: object) -> bool:
    return near(answer(*arguments), answer(*arguments), 1e-9)


AGAIN = Property(says="Asked twice with the same lists, it says the same: it leaves them as they are.",
                 holds=repeats_itself)


@dataclass(frozen=True, kw_only=True)
class Exercise:
    """One thing to write, and how it is judged.

    function: the name that the answer has to define.
    solution: a whole file that passes; mistakes are changes of it.
    cases: arguments to try, drawn by a generator that is handed in; edge cases among them.
    right: what a right answer gives for such arguments, computed by other means than the solution.
    observe: what is looked at, (answer, *arguments) -> plain values: the value itself unless said otherwise.
    tolerance: of numbers, relative to 1 + their size.
    parts: words for what a value consists of, as "the loss", and what picks it.
    library: full names in the library that an answer may use.
    curves: something to look at before writing, {run: {curve: numbers}}.
    """

    name: str
    title: str
    chapter: int
    function: str
    statement: str
    starter: str
    hints: tuple[str, str, str]
    solution: str
    mistakes: tuple[Mistake, ...]
    cases: Callable[[Random], Iterable[Values]]
    right: Callable[..., object]
    properties: tuple[Property, ...] = ()
    observe: Callable[..., object] = call_answer
    tolerance: float = 1e-4
    parts: Parts = field(default_factory=lambda: WHOLE)
    library: tuple[str, ...] = ()
    curves: Callable[[], dict[str, dict[str, list[float]]]] | None = None

    def __post_init__(self) -> None:
        for name in ("statement", "starter", "solution"):
            object.__setattr__(self, name, getattr(self, name).strip("\n") + "\n")

    def marks(self, case: Values) -> JsonDict:
        """The arguments of a case by the names that the starter gives them."""
        names = next(([arg.arg for arg in node.args.args] for node in parse_source(self.starter).body
                      if isinstance(node, ast.FunctionDef) and node.name == self.function), [])
        return dict(zip(names, case, strict=False))


def with_full_stop(text: str) -> str:
    """With a full stop, where it has no end of its own."""
    return text if text.endswith((".", "?", "!")) else f"{text}."


@dataclass(frozen=True, kw_only=True)
class AnswerVerdict:
    """passed; says: in a sentence or two what is wrong, or that nothing is; example: a call with what came
    and what should have; mistake: the number of the known mistake, from 0, or None; checks: the sentence of
    each property, and whether it holds; output: what the answer printed; named_by: what the fault is named
    by, "" where nothing is wrong."""

    passed: bool
    says: str
    example: str = ""
    mistake: int | None = None
    checks: tuple[tuple[str, bool], ...] = ()
    output: str = ""
    named_by: NamedBy = ""

    def record(self) -> JsonDict:
        return asdict(self)

"""What a wrong answer has to do with the right one: a sign, a factor, a shift, the places that are wrong.

No exercise is known here. A sentence says what holds of all cases that were tried, and nothing of why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations
from math import isfinite
from statistics import fmean
from typing import NamedTuple

from postgrad.studio.exercises.values import near, value_kind, value_text
from postgrad.studio.json_types import JsonDict

Parts = dict[str, Callable[..., object]]  # words for a part of a value -> what picks it
WHOLE: Parts = {"": lambda value: value}
Look = Callable[[list[JsonDict], list[bool]], str]  # (arguments, whether right) -> where it is wrong
FACTORS = {2.0: "twice", -2.0: "minus twice", 0.5: "half of", -0.5: "minus half of"}


class CaseOutcome(NamedTuple):
    """One case: its arguments by name, what the answer gave, and what is right."""

    arguments: JsonDict
    got: object
    right: object


Change = Callable[[list[float], CaseOutcome], list[float]]  # what is right, changed


def listed(names: list[str]) -> str:
    """a; a and b; a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def value_symptom(outcomes: list[CaseOutcome], parts: Parts, tolerance: float, *, strong: bool) -> str:
    """What can be said of values that are wrong and of the right kind; "" where nothing can.

    strong: what holds of every case; otherwise also where most of what is wrong stands."""
    try:
        split = {name: [o._replace(got=pick(o.got), right=pick(o.right)) for o in outcomes]
                 for name, pick in parts.items()}
    except (LookupError, TypeError, AttributeError):  # another shape has no such parts
        return ""
    wrong = [name for name, mine in split.items() if not all(near(o.got, o.right, tolerance) for o in mine)]
    look = where_wrong if strong else where_mostly
    says = {name: (relation_symptom(split[name], tolerance) or place_symptom(split[name], tolerance, look)
                   or case_symptom(split[name], tolerance, look)) for name in wrong}
    if "" in parts:
        return f"It {says['']}." if says.get("") else ""
    fine = [name for name in parts if name not in wrong]
    if not wrong or not (all(says.values()) or (fine and not strong)):
        return ""
    if len(set(says.values())) == 1 and says[wrong[0]] and len(wrong) > 1:
        told = [f"{listed(wrong)}: each {says[wrong[0]]}"]
    else:
        told = [f"{name} {says[name] or 'comes out wrong'}" for name in wrong]
    if fine:
        told.append(f"{listed(fine)} {'are' if len(fine) > 1 else 'is'} right")
    sentence = "; ".join(told)
    return f"{sentence[0].upper()}{sentence[1:]}."


def parts_standing(outcomes: list[CaseOutcome], parts: Parts, tolerance: float) -> str:
    """Which parts are right and which are wrong, where both are; with a space before it."""
    try:
        ok = {name: all(near(pick(o.got), pick(o.right), tolerance) for o in outcomes)
              for name, pick in parts.items()}
    except (LookupError, TypeError, AttributeError):
        return ""
    fine, wrong = ([name for name in parts if ok[name] is truth] for truth in (True, False))
    if not fine or not wrong:
        return ""
    verbs = ["are" if len(names) > 1 else "is" for names in (fine, wrong)]
    sentence = f"{listed(fine)} {verbs[0]} right, {listed(wrong)} {verbs[1]} not."
    return f" {sentence[0].upper()}{sentence[1:]}"


# another shape

def shape_symptom(outcomes: list[CaseOutcome], tolerance: float) -> str:
    """One number where a list is right, a list with too many or too few, texts."""
    rows = [(o.got, o.right) for o in outcomes if isinstance(o.right, list) and len(o.right) > 1]
    if rows and all(plain_number(got) for got, _ in rows):
        right = [numbers(wanted) for _, wanted in rows]
        for word, reduce in REDUCED:
            if all(row and near(got, reduce(row), tolerance)
                   for (got, _), row in zip(rows, right, strict=True)):
                return f"It returns one number, the {word} of what is asked for: a list should be returned."
        return "It returns one number where a list should be."
    lists = [(got, wanted) for got, wanted in rows if isinstance(got, list)]
    if not lists or len(lists) < len(rows) or all(len(got) - len(wanted) not in (-1, 0, 1)
                                                  for got, wanted in lists):
        return ""
    return next((f"It {says}." for says, change in LISTS
                 if all(near(got, change(wanted), tolerance) for got, wanted in lists)), "")


REDUCED: tuple[tuple[str, Callable[[list[float]], float]], ...] = (
    ("mean", fmean), ("sum", sum), ("last", lambda x: x[-1]), ("first", lambda x: x[0]), ("largest", max))

LISTS: tuple[tuple[str, Callable[..., list[object]]], ...] = (
    ("leaves out the first item of the list", lambda x: x[1:]),
    ("leaves out the last item of the list", lambda x: x[:-1]),
    ("puts a 0 before the list", lambda x: [0, *x]),
    ("puts a 0 after the list", lambda x: [*x, 0]),
    ("returns the list from the last to the first: the order is turned round", lambda x: x[::-1]),
    ("puts the list into another list", lambda x: [x]),
)


# all numbers alike

def relation_symptom(outcomes: list[CaseOutcome], tolerance: float) -> str:
    """One relation that holds between all numbers that came and all that are right."""
    pairs = [(numbers(o.got), numbers(o.right)) for o in outcomes]
    if any(got is None or right is None or len(got) != len(right) for got, right in pairs):
        return ""
    got, right = ([x for pair in pairs for x in pair[i] or ()] for i in (0, 1))
    if not all(map(isfinite, got)):
        return "" if any(map(isfinite, got)) else "is nan or infinite in every case"

    def agrees(change: Change) -> bool:
        changed = [change(list(numbers(o.right) or ()), o) for o in outcomes]
        return near(got, [x for part in changed for x in part], tolerance)

    def each(change: Callable[[float], float]) -> Change:
        return lambda x, _: [change(v) for v in x]

    def whole(change: Callable[[list[float]], list[float]]) -> Change:
        return lambda x, _: change(x)

    def with_argument(change: Callable[[float, float], float], by: dict[int, float]) -> Change:
        return lambda x, o: [change(v, by[id(o)]) for v in x]

    if agrees(each(lambda v: -v)):
        return "has the wrong sign in every case"
    if agrees(each(abs)):
        return "is never negative: it has lost the sign of what is right"
    if len({round(v, 9) for v in got}) == 1 and len({round(v, 9) for v in right}) > 1:
        return f"is {value_text(got[0])} whatever the arguments are"
    for says, shift in SHIFTS:
        if any(len(x) > 2 for _, x in pairs if x) and agrees(whole(shift)):
            return says
    for name, values in argument_numbers(outcomes):
        by = dict(zip(map(id, outcomes), values, strict=True))
        for words, change in BY_ARGUMENT:
            if agrees(with_argument(change, by)):
                return words.format(name)
    return constant_relation(got, right, tolerance) or echo_symptom(outcomes, tolerance)


def constant_relation(got: list[float], right: list[float], tolerance: float) -> str:
    """The same factor or the same difference throughout."""
    largest = max(range(len(right)), key=lambda i: abs(right[i]))
    if len({round(v, 9) for v in right if v}) < 2 or abs(right[largest]) < 1e-9:
        return ""
    factor, offset = got[largest] / right[largest], got[largest] - right[largest]
    if abs(factor) > 1e-6 and near(got, [factor * v for v in right], tolerance):
        times = FACTORS.get(round(factor, 6), f"{value_text(factor)} times")
        return f"is {times} what it should be, in every case"
    if near(got, [v + offset for v in right], tolerance):
        return f"is {value_text(abs(offset))} too {'high' if offset > 0 else 'low'} in every case"
    return ""


def echo_symptom(outcomes: list[CaseOutcome], tolerance: float) -> str:
    for name in outcomes[0].arguments:
        if all(near(numbers(o.got), numbers(o.arguments[name]), tolerance) for o in outcomes):
            return f"is `{name}` as it came"
    return ""


SHIFTS: tuple[tuple[str, Callable[[list[float]], list[float]]], ...] = (
    ("stands one place too early: each place has the number of the next one", lambda x: [*x[1:], 0.0]),
    ("stands one place too late: each place has the number of the one before", lambda x: [0.0, *x[:-1]]),
    ("is turned round: the last number stands first", lambda x: x[::-1]),
    ("is summed up from the first place on", lambda x: [sum(x[: i + 1]) for i in range(len(x))]),
)
BY_ARGUMENT: tuple[tuple[str, Callable[[float, float], float]], ...] = (
    ("is what is right times {}", lambda v, by: v * by),
    ("is what is right divided by {}", lambda v, by: v / by if by else float("nan")),
    ("is what is right times the square of {}", lambda v, by: v * by * by),
    ("is minus what is right times {}", lambda v, by: -v * by),
    ("is what is right times {0} / ({0} - 1): one too few is divided by", lambda v, by:
     v * by / (by - 1) if by != 1 else float("nan")),
    ("is what is right times {0} / ({0} + 1): one too many is divided by", lambda v, by:
     v * by / (by + 1) if by != -1 else float("nan")),
    ("is what is right plus {}", lambda v, by: v + by),
    ("is what is right less {}", lambda v, by: v - by),
    ("is {} less what is right", lambda v, by: by - v),
)


def argument_numbers(outcomes: list[CaseOutcome]) -> Iterator[tuple[str, list[float]]]:
    """Words for a number that each case has, and the numbers: an argument, or the length of a list."""
    for name in outcomes[0].arguments:
        values = [o.arguments[name] for o in outcomes]
        if all(map(plain_number, values)) and len(set(map(str, values))) > 1:
            yield f"`{name}`", [float(str(v)) for v in values]
        elif all(isinstance(v, list) for v in values) and len({len(v) for v in values
                                                               if isinstance(v, list)}) > 1:
            yield f"the length of `{name}`", [float(len(v)) for v in values if isinstance(v, list)]


# where it is wrong

def place_symptom(outcomes: list[CaseOutcome], tolerance: float, look: Look) -> str:
    """Which places of a list are wrong: the first, the last, those at which an argument is of one kind."""
    rows = [(o, o.got, o.right) for o in outcomes]
    if not all(isinstance(got, list) and isinstance(right, list) and len(got) == len(right) and right
               for _, got, right in rows):
        return ""
    places = [(o, i, len(right), near(got[i], right[i], tolerance))
              for o, got, right in rows if isinstance(got, list) and isinstance(right, list)
              for i in range(len(right))]
    wrong = [(i, count) for _, i, count, ok in places if not ok]
    if any(ok for *_, ok in places) and any(count > 1 for _, count in wrong):
        ends = ENDS if look is where_wrong else ENDS[:2]
        for says, chosen in ends:
            if all((chosen(i, n) != ok) if look is where_wrong else (chosen(i, n) or ok)
                   for _, i, n, ok in places):
                return says + (", and not always there" if look is where_mostly else "")
    aligned = [name for name in outcomes[0].arguments if all(
        isinstance(o.arguments[name], list) and len(o.arguments[name]) == len(right)
        for o, _, right in rows if isinstance(right, list))]
    marks = [{name: o.arguments[name][i] for name in aligned} for o, i, *_ in places]
    says = look(marks, [ok for *_, ok in places]) if aligned else ""
    return f"is wrong {says}" if says else ""


ENDS: tuple[tuple[str, Callable[[int, int], bool]], ...] = (
    ("is wrong at the last place alone", lambda i, n: i == n - 1),
    ("is wrong at the first place alone", lambda i, n: i == 0),
    ("is right at the last place alone", lambda i, n: i < n - 1),
    ("is right at the first place alone", lambda i, n: i > 0),
)


def case_symptom(outcomes: list[CaseOutcome], tolerance: float, look: Look) -> str:
    """Which cases are wrong, by their arguments; which text stands for which; 1 for 0."""
    right = [near(o.got, o.right, tolerance) for o in outcomes]
    texts = {(o.right, o.got) for o, ok in zip(outcomes, right, strict=True) if not ok
             and isinstance(o.right, str) and isinstance(o.got, str)}
    if texts:
        return listed([f'says "{got}" where "{wanted}" is right' for wanted, got in sorted(texts)][:3])
    if says := look([o.arguments for o in outcomes], right):
        return f"is wrong {says}"
    bits = {(float(str(o.right)), float(str(o.got))) for o, ok in zip(outcomes, right, strict=True)
            if not ok and plain_number(o.right) and plain_number(o.got)}
    if bits in ({(0.0, 1.0)}, {(1.0, 0.0)}):
        (wanted, came), = bits
        first = min((o for o, ok in zip(outcomes, right, strict=True) if not ok),
                    key=lambda o: len(str(list(o.arguments.values()))))
        shown = ", ".join(value_text(v, 60) for v in first.arguments.values())
        return f"gives {came:g} where {wanted:g} is right, as for {shown}"
    return ""


def where_wrong(marks: list[JsonDict], right: list[bool]) -> str:
    """A condition on arguments that holds where it is wrong, in two cases at least, and nowhere else."""
    if right.count(True) < 2 or right.count(False) < 2:
        return ""
    return next((f"wherever {says}" for says, holds in conditions(marks)
                 if all(held != ok for held, ok in zip(holds, right, strict=True))), "")


def where_mostly(marks: list[JsonDict], right: list[bool]) -> str:
    """A condition outside which nothing is wrong: the narrowest of those within which most is."""
    wrong = right.count(False)
    wider = [(sum(holds), says) for says, holds in conditions(marks)
             if all(held or ok for held, ok in zip(holds, right, strict=True))
             and len(right) - sum(holds) > 1 and 5 * wrong > 3 * sum(holds)]
    return f"only where {min(wider)[1]}" if wrong > 1 and wider else ""


def conditions(marks: list[JsonDict]) -> Iterator[tuple[str, list[bool]]]:
    """Words for a condition, and where it holds."""
    names = list(marks[0]) if marks else []
    for name in names:
        values = [mark[name] for mark in marks]
        if all(map(plain_number, values)):
            yield from ((f"`{name}` is {words}", [test(float(str(v))) for v in values])
                        for words, test in NUMBER_TESTS)
        elif all(isinstance(v, bool) for v in values):
            yield from ((f"`{name}` is {truth}", [v is truth for v in values]) for truth in (True, False))
        elif all(isinstance(v, list) for v in values):
            yield from ((f"`{name}` {words}", [test(v) for v in values]) for words, test in LIST_TESTS)
    for one, other in combinations(names, 2):
        pairs = [(mark[one], mark[other]) for mark in marks]
        if all(plain_number(a) and plain_number(b) for a, b in pairs):
            sized = [(float(str(a)), float(str(b))) for a, b in pairs]
            yield f"`{one}` is `{other}`", [a == b for a, b in sized]
            yield f"`{one}` is above `{other}`", [a > b for a, b in sized]
            yield f"`{one}` is below `{other}`", [a < b for a, b in sized]


NUMBER_TESTS: tuple[tuple[str, Callable[[float], bool]], ...] = (
    ("0", lambda v: v == 0), ("1", lambda v: v == 1), ("negative", lambda v: v < 0),
    ("positive", lambda v: v > 0), ("above 1", lambda v: v > 1), ("below 1", lambda v: v < 1),
)
LIST_TESTS: tuple[tuple[str, Callable[..., bool]], ...] = (
    ("is empty", lambda v: not v), ("has one item", lambda v: len(v) == 1),
    ("has more than one item", lambda v: len(v) > 1), ("has more than two items", lambda v: len(v) > 2),
    ("has equal items", lambda v: len(v) > 1 and all(x == v[0] for x in v)),
    ("has a 0 in it", lambda v: any(plain_number(x) and x == 0 for x in v)),
    ("has a negative number in it", lambda v: any(plain_number(x) and x < 0 for x in v)),
    ("has an item twice", lambda v: any(v.count(x) > 1 for x in v)),
)


def plain_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def numbers(value: object) -> list[float] | None:
    """All numbers of nested lists and dicts, in order; None where something else is among them."""
    if isinstance(value, int | float):
        return [float(value)]
    if isinstance(value, dict):
        value = [value[key] for key in sorted(value, key=str)]
    if not isinstance(value, list):
        return None
    rows = [numbers(item) for item in value]
    return None if any(row is None for row in rows) else [x for row in rows for x in row or ()]


def error_symptom(marks: list[JsonDict], raised: list[bool]) -> str:
    """Where something comes up, if not everywhere: " wherever `lam` is 0"."""
    right = [not broke for broke in raised]
    says = where_wrong(marks, right) or where_mostly(marks, right)
    return f" {says}" if says else ""


def kind_symptom(outcomes: list[CaseOutcome]) -> str:
    """Another kind of value than is asked for."""
    for o in outcomes:
        if o.got is None and o.right is not None:
            return "It returned nothing: is a `return` missing?"
        if value_kind(o.got) != value_kind(o.right):
            return f"It returned {value_kind(o.got)} where {value_kind(o.right)} should be."
    return ""

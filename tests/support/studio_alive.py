"""An exported site against Python: random states of an instrument, what its script makes of them in a
browser, and how far the two are apart. Used by the tests, and with more states by proofs/book.py."""

import json
import random
import re
from dataclasses import replace
from html.parser import HTMLParser

from starlette.datastructures import QueryParams
from studio_positions import moved, places

from postgrad.studio.instruments import INSTRUMENTS, instrument_context
from postgrad.studio.instruments import trial as _trial
from postgrad.studio.pages import jinja_environment

# of many states at once: numbers, sentence, query and picture
ASK = """([name, queries]) => queries.map((query) => {
  const of = alive.instruments[name], words = new URLSearchParams(query), picture = alive.figure(name, words);
  const state = alive.read(of, words), numbers = alive.numbers(of, state);
  return { numbers, says: of.insight(numbers), query: alive.address(of, state), picture };
})"""
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
DRAWN = 0.1001  # pixels of the drawing, to which positions are rounded


def random_states(instrument, count: int, seed: int = 0) -> list:
    """States with every control at a random place."""
    draw = random.Random(f"{instrument.name} {seed}")
    if instrument.name == "preference-labeller":
        wholes = ["".join(draw.choices("abts", k=40)) for _ in range(count // 20 + 1)]
        return [labelled(instrument, draw, draw.choice(wholes)) for _ in range(count)]
    return [mixed(instrument, draw) for _ in range(count)]


def mixed(instrument, draw):
    state = instrument.settle(instrument.state())
    for control in instrument.shown(state):
        if getattr(control, "index", None) is None:
            state = moved(instrument, state, control, draw.choice(places(control)))
    for control in instrument.shown(state):
        if getattr(control, "index", None) is not None:
            values = list(getattr(state, control.name))
            values[control.index] = draw.choice(places(control))
            state = replace(state, **{control.name: tuple(values)})
    return state


def labelled(instrument, draw, whole: str):
    """Some pairs labelled, and a trial begun. Beginnings of a few series, for each label is a training."""
    given = [draw.choice("abt" if kind == "rank" else "12345") + str(draw.randrange(1000))
             for kind, _, _ in _trial.ORDER[:draw.randrange(len(_trial.ORDER) + 1)]]
    labels, trial = whole[:draw.randrange(41)], ".".join(["0", *given])
    return instrument.settle(instrument.state(labels=labels, trial=trial))


def apart(one, other, where="") -> tuple[float, str]:
    """The largest difference of two nested results and where it is, numbers relative to their size where
    that is above 1; infinite where anything else differs."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        pairs = [(one[key], other[key], f"{where}.{key}") for key in one]
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = [(a, b, f"{where}[{i}]") for i, (a, b) in enumerate(zip(one, other, strict=True))]
    elif isinstance(one, bool | str | None) or not isinstance(other, int | float):
        return (0.0, where) if one == other else (float("inf"), f"{where}: {one!r} and {other!r}")
    else:
        return abs(one - other) / max(1.0, abs(one)), where
    return max((apart(*pair) for pair in pairs), default=(0.0, where))


class Picture(HTMLParser):
    """The texts of a picture, and its elements with their attributes."""

    def __init__(self, text: str):
        super().__init__()
        self.texts, self.elements = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.texts.append(" ".join(data.split()))


def same_attribute(one: str | None, other: str | None) -> bool:
    """The same words; numbers as near as they are drawn."""
    if one == other or one is None or other is None:
        return one == other
    numbers = zip(NUMBER.findall(one), NUMBER.findall(other), strict=False)
    return NUMBER.sub("#", one) == NUMBER.sub("#", other) and all(abs(float(a) - float(b)) <= DRAWN
                                                                  for a, b in numbers)


def same_picture(one: str, other: str) -> str:
    """"" where two pictures show the same, else where they part."""
    a, b = Picture(one), Picture(other)
    parts = [(x, y) for x, y in zip(a.texts, b.texts, strict=False) if x != y]
    if parts or len(a.texts) != len(b.texts) or len(a.elements) != len(b.elements):
        return f"texts: {parts[:2]}"
    for (tag, mine), (name, theirs) in zip(a.elements, b.elements, strict=True):
        if tag != name or mine.keys() != theirs.keys() or not all(
                same_attribute(mine[key], theirs[key]) for key in mine):
            return f"elements: {tag} {mine} and {name} {theirs}"
    return ""


def by_python(instrument, query: str) -> tuple[dict, str, str]:
    """(numbers, sentence, picture) as the server has them."""
    shown = instrument_context(instrument, QueryParams(query))
    template = jinja_environment().get_template("instrument_figure.html")
    picture = template.render(swapped=True, exported=True, **shown)
    return json.loads(json.dumps(shown["numbers"])), shown["insight"], picture


def compared(page, name: str, states: list) -> tuple[float, list[str]]:
    """The script in this page against Python: the largest difference of a number, and all that differs
    besides."""
    instrument = INSTRUMENTS[name]
    queries = [instrument.query(state) for state in states]
    worst, faults = 0.0, []
    for query, found in zip(queries, page.evaluate(ASK, [name, queries]), strict=True):
        numbers, says, picture = by_python(instrument, query)
        gap, where = apart(numbers, found["numbers"])
        worst = max(worst, gap)
        faults += [f"{name}?{query}: {fault}" for fault in (
            f"{where} is {gap} apart" if gap > 1e-9 else "",
            f"{found['says']!r}, not {says!r}" if found["says"] != says else "",
            f"read as {found['query']}" if found["query"] != query else "",
            same_picture(picture, found["picture"])) if fault]
    return worst, faults

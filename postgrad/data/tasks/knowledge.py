"""The facts that the `questions` task asks about, from the tables of texts.toml."""

from __future__ import annotations

from typing import NamedTuple

from postgrad.data.tasks.base import task_texts


class Fact(NamedTuple):
    """Fact("What does a dog eat?", "A dog eats meat.", "meat", ("corn", "grass", ...),
    ("A dog eats corn.", ...))

    phrase: a right reply contains it. rivals: phrases that make a reply wrong. wrong: false sentences.
    """

    question: str
    sentence: str
    phrase: str
    rivals: tuple[str, ...]
    wrong: tuple[str, ...]


TABLES = task_texts("knowledge")


def _pairs(table: str) -> list[tuple[str, str]]:
    return [(x, y) for x, y in map(str.split, TABLES[table])]


def _kind(ask: str, say: str, rows: list[tuple[str, str]]) -> list[Fact]:
    """Facts of one kind: every other value of the kind is a rival, and makes a false sentence."""
    values = list(dict.fromkeys(y for _, y in rows))
    facts = []
    for x, y in rows:
        rivals = [other for other in values if other not in (x, y)]
        right, *wrong = (_capital(say.format(x=x, y=value)) for value in (y, *rivals))
        facts.append(Fact(ask.format(x=x), right, y.lower(), tuple(map(str.lower, rivals)), tuple(wrong)))
    return facts


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _order(what: str, names: list[str]) -> list[Fact]:
    after = list(zip(names, names[1:] + names[:1], strict=True))
    return (_kind(f"What {what} comes after {{x}}?", "{y} comes after {x}.", after)
            + _kind(f"What {what} comes before {{x}}?", "{y} comes before {x}.", [(y, x) for x, y in after]))


def _sizes(animals: list[str]) -> list[Fact]:
    """Which of two is bigger: every third pair of those at least four places apart, asked one way round."""
    facts = []
    for i, big in enumerate(animals):
        for j in range(i + 4 + i % 3, len(animals), 3):
            small = animals[j]
            x, z = (big, small) if (i + j) % 2 else (small, big)
            right, false = f"A {big} is bigger than a {small}.", f"A {small} is bigger than a {big}."
            asked = f"Which is bigger, a {x} or a {z}?"
            facts.append(Fact(asked, right, f"{big} is bigger", (f"{small} is bigger",), (false,)))
    return facts


def _facts() -> tuple[Fact, ...]:
    animals, opposites = [row.split() for row in TABLES["animals"]], _pairs("opposites")

    def column(place: int) -> list[tuple[str, str]]:
        return [(row[0], row[place]) for row in animals if row[place] != "-"]

    return tuple(
        _kind("What does a {x} eat?", "a {x} eats {y}.", column(1))
        + _kind("What sound does a {x} make?", "a {x} says {y}.", column(2))
        + _kind("Where does a {x} live?", "a {x} lives in the {y}.", column(3))
        + _kind("How many legs does a {x} have?", "a {x} has {y} legs.", column(4))
        + _kind("What colour is the {x}?", "the {x} is {y}.", _pairs("colours"))
        + _kind("What is the opposite of {x}?", "the opposite of {x} is {y}.",
                opposites + [(y, x) for x, y in opposites])
        + _kind("How long do I boil {x}?", "boil the {x} for {y} minutes.", _pairs("boil"))
        + _kind("How long do I bake {x}?", "bake the {x} for {y} minutes.", _pairs("bake"))
        + _kind("Where do I keep {x}?", "keep the {x} in the {y}.", _pairs("keep"))
        + _order("day", TABLES["days"])
        + _order("month", TABLES["months"])
        + _sizes([row[0] for row in animals])
    )


FACTS = _facts()

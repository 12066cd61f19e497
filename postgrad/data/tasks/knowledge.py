"""The small world that the `questions` task asks about:
facts from tables, each with its question and its rivals."""

from __future__ import annotations

from typing import NamedTuple


class Fact(NamedTuple):
    """One thing to know.

    Fact("What does a dog eat?", "A dog eats meat.", "meat", ("corn", "grass", ...), ("A dog eats corn.",
        ...))
    phrase: what a right reply must contain; rivals: phrases of the same kind,
        one of which makes a reply wrong.
    wrong: sentences that are false.
    """

    question: str
    sentence: str
    phrase: str
    rivals: tuple[str, ...]
    wrong: tuple[str, ...]


# animals from the largest to the smallest: food, sound, home, legs (- : not asked)
_ANIMALS = """horse grass neigh barn four|cow grass moo barn four|bear fish growl cave four
lion meat roar - four|pig corn oink farm four|sheep grass baa field four|goat leaves bleat hill four
dog meat woof house four|fox meat - forest four|cat fish meow house four|rabbit carrots - hole four
duck bread quack pond two|hen corn cluck farm two|fish plants - sea no|bird seeds tweet nest two
frog flies croak pond four|mouse cheese squeak hole four|spider flies - web eight|bee honey buzz hive six
fly sugar buzz - six"""
_COLOURS = """sky blue|grass green|snow white|sun yellow|night black|carrot orange|tomato red|banana yellow
leaf green|coal black|milk white|sea blue|rose red|lemon yellow|mud brown|cherry red|frog green|bear brown
rice white|chocolate brown|fire orange|plum purple"""
_OPPOSITES = """hot cold|big small|up down|day night|fast slow|old new|hard soft|wet dry|full empty
open closed|happy sad|rich poor|light dark|high low|long short|early late|strong weak|clean dirty|near far
first last|loud quiet|left right"""
_BOIL = "eggs ten|rice twenty|corn eight|beans forty|potatoes thirty|carrots fifteen|pasta twelve|fish five"
_BAKE = "bread forty|cake fifty|cookies twelve|potatoes sixty|fish twenty|pizza fifteen|pie thirty|apples ten"
_KEEP = """milk fridge|bread box|butter fridge|books shelf|shoes hall|clothes closet|tools shed|car garage
money bank|cheese fridge|letters drawer|pens drawer|bike shed|coats closet|cups shelf|pots kitchen"""
_DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
           "November", "December"]


def _rows(table: str) -> list[list[str]]:
    return [row.split() for row in table.replace("\n", "|").split("|")]


def _pairs(table: str) -> list[tuple[str, str]]:
    return [(x, y) for x, y in _rows(table)]


def _kind(ask: str, say: str, rows: list[tuple[str, str]]) -> list[Fact]:
    """The facts of one kind: every other value of the kind is a rival, and makes a false sentence."""
    values = list(dict.fromkeys(y for _, y in rows))
    facts = []
    for x, y in rows:
        rivals = [other for other in values if other not in (x, y)]
        wrong = tuple(_capital(say.format(x=x, y=other)) for other in rivals)
        facts.append(Fact(ask.format(x=x), _capital(say.format(x=x, y=y)), y.lower(),
                          tuple(r.lower() for r in rivals), wrong))
    return facts


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _order(what: str, names: list[str]) -> list[Fact]:
    after = list(zip(names, names[1:] + names[:1], strict=True))
    return (_kind(f"What {what} comes after {{x}}?", "{y} comes after {x}.", after)
            + _kind(f"What {what} comes before {{x}}?", "{y} comes before {x}.", [(y, x) for x, y in after]))


def _sizes(animals: list[str]) -> list[Fact]:
    """Which of two is bigger: pairs at least four places apart, every third of them, asked one way round."""
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
    animals = _rows(_ANIMALS)

    def column(place: int) -> list[tuple[str, str]]:
        return [(row[0], row[place]) for row in animals if row[place] != "-"]

    opposites = _pairs(_OPPOSITES)
    return tuple(
        _kind("What does a {x} eat?", "a {x} eats {y}.", column(1))
        + _kind("What sound does a {x} make?", "a {x} says {y}.", column(2))
        + _kind("Where does a {x} live?", "a {x} lives in the {y}.", column(3))
        + _kind("How many legs does a {x} have?", "a {x} has {y} legs.", column(4))
        + _kind("What colour is the {x}?", "the {x} is {y}.", _pairs(_COLOURS))
        + _kind("What is the opposite of {x}?", "the opposite of {x} is {y}.",
                opposites + [(y, x) for x, y in opposites])
        + _kind("How long do I boil {x}?", "boil the {x} for {y} minutes.", _pairs(_BOIL))
        + _kind("How long do I bake {x}?", "bake the {x} for {y} minutes.", _pairs(_BAKE))
        + _kind("Where do I keep {x}?", "keep the {x} in the {y}.", _pairs(_KEEP))
        + _order("day", _DAYS)
        + _order("month", _MONTHS)
        + _sizes([row[0] for row in animals])
    )


FACTS = _facts()

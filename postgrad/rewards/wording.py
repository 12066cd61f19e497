r"""The words of a mathematical answer, which math-verify ignores: units, a.m. and p.m., a base.

"10\text{ cm}" -> ("10", ("cm",)), "12_{3}" -> ("12", ("base 3",)). Words in both must be equal. A unit
may be in one alone, and a gold answer's base may be left out; words that change a value may not: a.m.,
thousand, a base in the reply alone, a word that is no unit. Left out on purpose: conversion of units.
"""

from __future__ import annotations

import functools
import re

_PIECE = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox)\s?\{([^{}]*)\}(?:\^\{?([0-9])\}?)?")
_BASE = re.compile(r"(?<![0-9A-Za-z\\])([0-9][0-9A-F]*)_(?:\{\(?([0-9]{1,2})\)?\}|([0-9]))(?![0-9])")
_NAMED_BASE = re.compile(r"()\(?\bbase[\s-]?([0-9]{1,2})\)?")
_LETTERS = re.compile(r"[A-Za-z][A-Za-z.\s/-]*")
_NAMES = """mm mm millimeter millimetre|cm cm centimeter centimetre|m meter metre|km km kilometer kilometre
g gram|kg kg kilogram|mg mg milligram|l liter litre|ml ml milliliter millilitre|s second sec|min min minute
h hour hr|in inch|ft ft foot|yd yd yard|mi mile|lb lb pound|oz oz ounce|cent cent|dollar dollar usd|euro euro
degree degree|unit unit|day day|week week|month month|year year|mph mph|kph kph"""  # as kept, and as written
_ROWS = [row.split() for line in _NAMES.splitlines() for row in line.split("|")]
UNITS = {name: one for one, *names in _ROWS for word in names for name in (word, word + "s")}
UNITS |= {"inches": "in", "feet": "ft"}
SHORT = {**UNITS, **{name: name for name in ("m", "g", "s", "h", "l", "in", "mi")}}  # in \text m is no letter
AMID = "amid"  # a word that does not stand at the end: what it does to the formula is not known
_CHANGES = frozenset("""am pm hundred thousand million billion trillion dozen score half halves third thirds
quarter quarters percent tenths hundredths squared cubed factorial north south east west left right up down
not no or and plus minus times over under less more than least most about approximately negative positive
infinite infinity none undefined""".split())
_UNIT = "|".join(sorted(UNITS, key=len, reverse=True))
_TAIL = re.compile(rf"(?<=[0-9.}}])\s?((?:(?:square|cubic|sq) )?(?:{_UNIT}|[ap]\.?m\.?)"
                   r"(?:\^\{?[23]\}?)?)\.?", re.IGNORECASE)
_KNOWN = frozenset(SHORT.values())
WORDS = frozenset("""yes no on off up down odd even true false none all both neither left right north south
east west""".split())  # these are words without \text around them too


def _word(text: str, power: str = "") -> str:
    """One way to write a word or a unit: " Centimeters" -> "cm", "a.m." -> "am", "square feet" -> "ft^2"."""
    text = " ".join(text.replace(".", "").casefold().split())
    for name, number in (("square ", "2"), ("sq ", "2"), ("cubic ", "3")):
        if text.startswith(name):
            text, power = text.removeprefix(name), number
    text, _, after = text.partition("^")
    power = after.strip("{}") or power
    return SHORT.get(text, text) + (f"^{power}" if power else "")


@functools.lru_cache(1 << 12)
def split_wording(text: str) -> tuple[str, tuple[str, ...]]:
    r"""The formula and the words of an answer: r"5\text{ am}" -> ("5", ("am",)), "no" -> ("", ("no",))"""
    words: list[str] = []

    def piece(match: re.Match[str]) -> str:
        inside = match[1].strip()
        if re.fullmatch(r"[,;]?\s*(?:or|and)\s*", inside):
            return ", "
        if not _LETTERS.fullmatch(inside) or len(inside) == 1 and inside not in SHORT:
            return f" {match[1]}"  # a number, a number and its unit, or a letter: 5\mathrm{i}
        words.append(_word(inside, match[2] or ""))
        return "@"

    def base(match: re.Match[str]) -> str:
        words.append(f"base {match[match.lastindex or 0]}")
        return f"{match[1]}@"

    def tail(match: re.Match[str]) -> str:
        words.append(_word(match[1]))
        return ""

    if text.casefold() in WORDS:
        return "", (text.casefold(),)
    bare = _NAMED_BASE.sub(base, _BASE.sub(base, _PIECE.sub(piece, text)))
    bare = re.sub(r"(?<=[0-9)}]),? (?:or|and) ", ", ", bare)
    found = _TAIL.search(bare)
    if found and found.end() == len(bare.rstrip()):
        bare = bare[:found.start()] + tail(found)
    whole = bare.rstrip("@ ")
    if "@" in whole or re.search(r"[0-9)}\]]\s?_", whole):
        words.append(AMID)
    bare = whole.replace("@", " ")
    bare = re.sub(r", ?(?=,)", "", bare)
    bare = re.sub(r", (?![0-9]{3}(?![0-9]))", ",", bare)  # 1, 234 is no number, and stays apart
    return bare.strip(), tuple(words)


def words_agree(wanted: tuple[str, ...], got: tuple[str, ...]) -> bool:
    """Whether the words of an answer go with those of the gold answer."""
    if wanted and got:
        return sorted(wanted) == sorted(got)
    if AMID in wanted + got or not all(word.partition("^")[0] in _KNOWN for word in got):
        return False
    return not any(piece in _CHANGES for word in wanted for piece in re.split(r"[\s^/-]+", word))

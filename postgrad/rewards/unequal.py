"""Formulas that are unequal at first sight: other brackets or signs between them, other values,
a statement that is false.

What is told apart here needs no algebra and no jail; what is not told apart may still be unequal.
"""

from __future__ import annotations

import math
import re

from postgrad.rewards.estimate import estimate

# x=3: no letter on the right
_ASSIGNED = re.compile(r"([a-zA-Z])=((?:[^a-zA-Z=,<>]|\\(?:frac|sqrt|pi|cdot|times)(?![a-z]))*)")
# [1,2) or \{1,2\} somewhere inside
_SET = re.compile(r"\[[^][()]*,(?![0-9]{3}(?![0-9]))[^][()]*\)|\\\{[^{}]*,[^{}]*\\\}")
_WRAPPED = re.compile(r"\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)")
_ORDER = re.compile(r"[<>]|\\(?:le|ge|lt|gt)q?(?![a-z])")
OPEN, CLOSE = "([{", ")]}"


def shape(text: str) -> str:
    r"""The brackets around a list: "()" for (1,2), "{}" for \{1,2\} and for 1,2;
    "" where the plain text is no list."""
    text = re.sub(r"^[a-zA-Z]\s?\\in ?", "", text.replace(r"\{", "{").replace(r"\}", "}"))
    depth, commas, closes = 0, set(), len(text)
    for at, char in enumerate(text):
        depth += (char in OPEN) - (char in CLOSE)
        if depth == 0 and char in CLOSE:
            closes = min(closes, at)
        if char == ",":
            commas.add(depth)
    if 0 in commas:
        return "{}"
    return text[0] + text[-1] if 1 in commas and text[0] in OPEN and closes == len(text) - 1 else ""


def solutions(text: str) -> str:
    """Several values of one letter as a list: "x=1,x=2" -> "1,2"; any other plain text as it is."""
    found = [_ASSIGNED.fullmatch(item) for item in text.split(",")]
    if len(found) > 1 and all(found) and len({match[1] for match in found}) == 1:
        return ",".join(match[2] for match in found)
    return text


def is_interval(text: str) -> bool:
    r"""Whether a plain text can only be an interval or several: (-\infty,3), [1,2). (1,2) may be a point."""
    return shape(text) in ("[)", "(]") or "," in text and (r"\infty" in text or r"\cup" in text)


def _near(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)


def _has_letters(text: str) -> bool:
    return re.search("[a-zA-Z]", re.sub(r"\\[a-zA-Z]+", "", text)) is not None


def _unwrapped(text: str) -> str:
    """(x=3) -> x=3"""
    while "," not in text and (found := _WRAPPED.fullmatch(text)):
        text = found[1]
    return text


def differ(wanted: str, got: str) -> bool:
    """Whether two plain formulas are unequal at first sight:
    other brackets or signs between them, or other values.

    Where one of the two is an equation, the value is that of its last side: x=3 and 3 are equal.
    """
    wanted, got = _unwrapped(wanted), _unwrapped(got)
    shapes, orders = (shape(wanted), shape(got)), (_ORDER.search(wanted), _ORDER.search(got))
    if all(shapes) and shapes[0] != shapes[1] or "%" in got and "%" not in wanted:
        return True
    if orders[1] and not orders[0]:
        return not is_interval(wanted)
    if r"\infty" in got and r"\infty" not in wanted and not (orders[0] and (shapes[1] or r"\cup" in got)):
        return True  # math-verify may take (\log_{2}(\infty))^{2} for any number
    if "=" in got and _equations_differ(wanted, got):
        return True
    if ("=" in wanted) != ("=" in got):
        wanted, got = wanted.rpartition("=")[2], got.rpartition("=")[2]
    values = estimate(wanted.removesuffix("%")), estimate(got.removesuffix("%"))
    if values[0] is not None and _SET.search(got):
        return True
    if wanted.endswith("%") and None not in values:  # 50% is 50 or 0.5
        return not _near(*values) and (got.endswith("%") or not _near(values[0] / 100, values[1]))
    if orders[0] and not orders[1]:
        return values[1] is not None
    if all(shapes):
        return _lists_differ(shapes[0], _items(wanted), _items(got))
    if any(shapes):
        return any(value is not None for value in values)
    return None not in values and not _near(*values)


def _equations_differ(wanted: str, got: str) -> bool:
    """Whether an answer is false as it stands (0=5, or 7=x for x), or gives a letter another value:
    x=2, y=3, 1=1 for x=3."""
    *others, last = got.split("=")
    sides = ([side for side in others if not _has_letters(side)]
             + [last] * ("=" not in wanted or not _has_letters(last)))
    numbers = [value for value in map(estimate, sides) if value is not None]
    if not all(_near(numbers[0], number) for number in numbers):
        return True
    here, there = _ASSIGNED.fullmatch(wanted), _ASSIGNED.fullmatch(got)
    if not here or not there:
        return here is not None and not _has_letters(got)
    values = estimate(here[2]), estimate(there[2])
    return here[1].lower() != there[1].lower() or None not in values and not _near(*values)


def _items(text: str) -> list[str]:
    r"""What stands between the commas of a list: \{1,(2,3)\} -> ["1", "(2,3)"]"""
    text = re.sub(r"^[a-zA-Z]\s?\\in ?", "", text.replace(r"\{", "{").replace(r"\}", "}"))
    inner = text[1:-1] if text[0] in OPEN and shape(text) == text[0] + text[-1] else text
    items, depth = [""], 0
    for char in inner:
        depth += (char in OPEN) - (char in CLOSE)
        items = [*items, ""] if char == "," and depth == 0 else [*items[:-1], items[-1] + char]
    return items


def _lists_differ(brackets: str, wanted: list[str], got: list[str]) -> bool:
    """Lists of other values; the order counts unless they are sets, and repeats in a set do not."""
    values = [[estimate(item) for item in items] for items in (wanted, got)]
    if None in values[0] + values[1]:
        return False
    if brackets == "{}":
        values = [[x for i, x in enumerate(row) if i == 0 or not _near(x, row[i - 1])]
                  for row in map(sorted, values)]
    return len(values[0]) != len(values[1]) or not all(map(_near, *values))

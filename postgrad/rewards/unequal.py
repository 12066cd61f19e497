"""Formulas that differ by brackets, relations or estimated values, without algebra and without the jail.
Formulas that do not differ here may still be unequal."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

# x=3: no letter on the right
_ASSIGNED = re.compile(r"([a-zA-Z])=((?:[^a-zA-Z=,<>]|\\(?:frac|sqrt|pi|cdot|times)(?![a-z]))*)")
# [1,2) or \{1,2\} somewhere inside
_SET = re.compile(r"\[[^][()]*,(?![0-9]{3}(?![0-9]))[^][()]*\)|\\\{[^{}]*,[^{}]*\\\}")
_WRAPPED = re.compile(r"\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)")
_ORDER = re.compile(r"[<>]|\\(?:le|ge|lt|gt)q?(?![a-z])")
OPEN, CLOSE = "([{", ")]}"


def list_brackets(text: str) -> str:
    r"""The brackets of a list: "()" for (1,2), "{}" for \{1,2\} and for 1,2; "" for any other plain text."""
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
    items = text.split(",")
    assigned = [match for item in items if (match := _ASSIGNED.fullmatch(item))]
    if 1 < len(items) == len(assigned) and len({match[1] for match in assigned}) == 1:
        return ",".join(match[2] for match in assigned)
    return text


def is_interval(text: str) -> bool:
    r"""Whether a plain text can only be an interval or several: (-\infty,3), [1,2). (1,2) may be a point."""
    return list_brackets(text) in ("[)", "(]") or "," in text and (r"\infty" in text or r"\cup" in text)


def _near(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9)


def _values_differ(a: float | None, b: float | None) -> bool:
    return a is not None and b is not None and not _near(a, b)


def _has_letters(text: str) -> bool:
    return re.search("[a-zA-Z]", re.sub(r"\\[a-zA-Z]+", "", text)) is not None


def _unwrapped(text: str) -> str:
    """(x=3) -> x=3"""
    while "," not in text and (found := _WRAPPED.fullmatch(text)):
        text = found[1]
    return text


def differ(wanted: str, got: str) -> bool:
    """Whether two plain formulas differ in brackets, relations or values. Where one alone is an equation, its
    value is that of its last side: x=3 and 3 are equal."""
    wanted, got = _unwrapped(wanted), _unwrapped(got)
    shapes, orders = (list_brackets(wanted), list_brackets(got)), (_ORDER.search(wanted), _ORDER.search(got))
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
    value, other = estimate_value(wanted.removesuffix("%")), estimate_value(got.removesuffix("%"))
    if value is not None and _SET.search(got):
        return True
    if wanted.endswith("%") and value is not None and other is not None:  # 50% is 50 or 0.5
        return not _near(value, other) and (got.endswith("%") or not _near(value / 100, other))
    if orders[0] and not orders[1]:
        return other is not None
    if all(shapes):
        return _lists_differ(shapes[0], _items(wanted), _items(got))
    if any(shapes):
        return value is not None or other is not None
    return _values_differ(value, other)


def _equations_differ(wanted: str, got: str) -> bool:
    """Whether an answer is false (0=5), or gives a letter another value: x=2, y=3, 1=1 for x=3."""
    *others, last = got.split("=")
    sides = ([side for side in others if not _has_letters(side)]
             + [last] * ("=" not in wanted or not _has_letters(last)))
    numbers = [value for value in map(estimate_value, sides) if value is not None]
    if not all(_near(numbers[0], number) for number in numbers):
        return True
    here, there = _ASSIGNED.fullmatch(wanted), _ASSIGNED.fullmatch(got)
    if not here or not there:
        return here is not None and not _has_letters(got)
    return (here[1].lower() != there[1].lower()
            or _values_differ(estimate_value(here[2]), estimate_value(there[2])))


def _items(text: str) -> list[str]:
    r"""What stands between the commas of a list: \{1,(2,3)\} -> ["1", "(2,3)"]"""
    text = re.sub(r"^[a-zA-Z]\s?\\in ?", "", text.replace(r"\{", "{").replace(r"\}", "}"))
    inner = text[1:-1] if text[0] in OPEN and list_brackets(text) == text[0] + text[-1] else text
    items, depth = [""], 0
    for char in inner:
        depth += (char in OPEN) - (char in CLOSE)
        items = [*items, ""] if char == "," and depth == 0 else [*items[:-1], items[-1] + char]
    return items


def _lists_differ(brackets: str, wanted: list[str], got: list[str]) -> bool:
    """Whether values differ, in order, or of sets ("{}") without order and repeats."""
    rows = [[value for item in items if (value := estimate_value(item)) is not None]
            for items in (wanted, got)]
    if len(rows[0]) < len(wanted) or len(rows[1]) < len(got):
        return False
    if brackets == "{}":
        rows = [[x for i, x in enumerate(row) if i == 0 or not _near(x, row[i - 1])]
                for row in (sorted(row) for row in rows)]
    return len(rows[0]) != len(rows[1]) or not all(map(_near, *rows))


_TOKEN = re.compile(r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+)|\\([a-zA-Z]+) ?|([a-zA-Z])|([-+*/^_!(){}|\[\]])| ")
_TIMES, _OVER = {"*", "cdot", "times"}, {"/", "div"}
_FUNCTIONS = {"sin": math.sin, "cos": math.cos, "tan": math.tan, "ln": math.log, "exp": math.exp}
_BEGIN = {"(", "{", "frac", "sqrt", "pi", "infty", "log", "binom", *_FUNCTIONS}
_UNCLEAR = set("eiEIdO")  # may be a constant, a unit or a sign
MOST_CHARACTERS, DEEPEST = 2000, 40  # characters, formulas inside each other: what is more has no estimate


class _NoEstimate(Exception):
    pass


def estimate_value(text: str) -> float | None:
    r"""estimate(r"\frac{1}{2}+\sqrt{4}") -> 2.5; None where there is none."""
    tokens: list[_Token] = []
    at = 0
    if len(text) > MOST_CHARACTERS:
        return None
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        number, command, letter, sign = match.groups()
        if match[0] != " ":
            tokens.append(_Token("number", number, float(number)) if number
                          else _Token("letter", letter) if letter else _Token("sign", command or sign))
        at = match.end()
    try:
        reader = _Reader(tokens)
        value = reader.sum()
        return value if reader.at == len(tokens) and not math.isnan(value) else None
    except (_NoEstimate, ArithmeticError, ValueError, TypeError):
        # TypeError: a root of a negative number is complex
        return None


class _Token(NamedTuple):
    kind: str  # number, letter, sign (a command too) or end
    text: str
    value: float = math.nan  # of a number


class _Reader:
    """A recursive-descent evaluator of tokens."""

    def __init__(self, tokens: list[_Token]):
        self.tokens, self.at, self.depth = tokens, 0, 0

    @property
    def next(self) -> _Token:
        return self.tokens[self.at] if self.at < len(self.tokens) else _Token("end", "")

    def take(self, *signs: str) -> str | None:
        token = self.next
        if token.kind == "sign" and token.text in signs:
            self.at += 1
            return token.text
        return None

    def sum(self) -> float:
        value = self.product()
        while sign := self.take("+", "-"):
            value += self.product() if sign == "+" else -self.product()
        return value

    def product(self) -> float:
        value, divided = self.power(), False
        while True:
            if self.take(*_TIMES):
                value *= self.power()
            elif self.take(*_OVER):
                value, divided = value / self.power(), True
            elif self.next.kind in ("number", "letter") or self.next.text in _BEGIN:
                mixed = self.tokens[self.at - 1].kind == "number" and self.next.text == "frac"
                if divided or self.next.kind == "number" or mixed:
                    raise _NoEstimate
                value *= self.power()
            else:
                return value

    def power(self) -> float:
        """Limits the depth: every bracket, sign and argument passes here."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise _NoEstimate
        value = self._power()
        self.depth -= 1
        return value

    def _power(self) -> float:
        begin = self.at
        if sign := self.take("-", "+"):
            return -self.power() if sign == "-" else self.power()
        value = self.atom()
        if self.take("!"):
            value = math.gamma(value + 1)
        if self.take("^"):
            token = self.next
            if token.text != "{" and token.kind != "letter" and token.value not in range(10):
                raise _NoEstimate
            exponent = self.atom()
            if value < 0 and exponent != int(exponent):
                raise _NoEstimate
            try:
                base, value = value, float(value**exponent)
            except OverflowError:
                # alone, it is larger than all that are floats
                if value < 0 or begin > 0 or self.at < len(self.tokens):
                    raise
                return math.inf
            if value == 0 != base:
                raise _NoEstimate
        return value

    def atom(self) -> float:
        kind, what, value = self.next
        self.at += 1
        if kind == "number":
            return value
        if kind == "letter" and what not in _UNCLEAR:
            return 0.6 + ord(what) * 0.6180339887498949 % 1
        if what in ("(", "{"):
            value = self.sum()
            if not self.take({"(": ")", "{": "}"}[what]):
                raise _NoEstimate
            return value
        if what in ("pi", "infty"):
            return math.pi if what == "pi" else math.inf
        if what == "|":
            value = self.sum()
            if self.take("|"):
                return abs(value)
        if what in _FUNCTIONS and self.next.text in ("(", "{"):
            return _FUNCTIONS[what](self.atom())
        if what == "log" and self.take("_"):
            base = self.atom()
            return self.logarithm() / math.log(base)
        if what == "sqrt" and self.take("["):
            index = self.sum()
            if self.take("]") and self.next.text == "{":
                return float(self.atom() ** (1 / index))
        if what in ("frac", "sqrt", "binom") and self.next.text == "{":
            value = self.atom()
            if what == "sqrt":
                return math.sqrt(value)
            if self.next.text == "{":
                other = self.atom()
                return value / other if what == "frac" else math.comb(_small(value), _small(other))
        raise _NoEstimate

    def logarithm(self) -> float:
        """The natural logarithm of the brackets; of (10^{999}), which is no float, 999 times that of 10."""
        if self.next.text not in ("(", "{"):
            raise _NoEstimate
        row, closes = self.tokens[self.at: self.at + 7], {"(": ")", "{": "}"}[self.next.text]
        signs = [token.text for token in row]
        if (signs[2:4] == ["^", "{"] and signs[5:] == ["}", closes]
                and row[1].kind == row[4].kind == "number"):
            self.at += 7
            return row[4].value * math.log(row[1].value)
        return math.log(self.atom())


def _small(value: float) -> int:
    if value not in range(100):
        raise _NoEstimate
    return int(value)

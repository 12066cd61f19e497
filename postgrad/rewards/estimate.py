r"""The value of a short formula, as a float: what tells most wrong answers from a gold one without algebra.

Numbers, + - * / ^ !, \frac, \sqrt, \binom, \pi, \infty, \sin(x) and its kin, |x| and brackets; a letter has a
fixed value of its own, and a factorial of what is no whole number is the gamma function's.
Formulas whose values differ are not equal; those whose values agree may be. What is ambiguous (1/2x,
1\frac{1}{2}, x^23) or not listed here has no estimate.
"""

from __future__ import annotations

import math
import re

_TOKEN = re.compile(r"([0-9]+(?:\.[0-9]+)?|\.[0-9]+)|\\([a-zA-Z]+) ?|([a-zA-Z])|([-+*/^_!(){}|\[\]])| ")
_TIMES, _OVER = {"*", "cdot", "times"}, {"/", "div"}
_FUNCTIONS = {"sin": math.sin, "cos": math.cos, "tan": math.tan, "ln": math.log, "exp": math.exp}
_BEGIN = {"(", "{", "frac", "sqrt", "pi", "infty", "log", "binom", *_FUNCTIONS}
_UNCLEAR = set("eiEIdO")  # may be a constant, a unit or a sign
LONGEST, DEEPEST = 2000, 40  # characters, formulas inside each other: what is more has no estimate


class _NoEstimate(Exception):
    pass


def estimate(text: str) -> float | None:
    r"""estimate(r"\frac{1}{2}+\sqrt{4}") -> 2.5; None where there is none."""
    tokens, at = [], 0
    if len(text) > LONGEST:
        return None
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            return None
        number, command, letter, sign = match.groups()
        if match[0] != " ":
            tokens.append(("number", float(number)) if number else ("letter", letter) if letter
                          else ("sign", command or sign))
        at = match.end()
    try:
        reader = _Reader(tokens)
        value = reader.sum()
        return value if reader.at == len(tokens) and not math.isnan(value) else None
    except (_NoEstimate, ArithmeticError, ValueError, TypeError):
        # TypeError: a root of a negative number is complex
        return None


class _Reader:
    def __init__(self, tokens: list[tuple[str, object]]):
        self.tokens, self.at, self.depth = tokens, 0, 0

    def next(self) -> tuple[str, object]:
        return self.tokens[self.at] if self.at < len(self.tokens) else ("end", "")

    def take(self, *signs: str) -> str | None:
        kind, what = self.next()
        if kind == "sign" and what in signs:
            self.at += 1
            return what
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
            elif self.next()[0] in ("number", "letter") or self.next()[1] in _BEGIN:
                before = self.tokens[self.at - 1][0]
                if divided or self.next()[0] == "number" or (before == "number" and self.next()[1] == "frac"):
                    raise _NoEstimate
                value *= self.power()
            else:
                return value

    def power(self) -> float:
        """Every bracket, sign and argument goes through here, so here the depth is held."""
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
            kind, what = self.next()
            if what != "{" and not (kind == "letter" or kind == "number" and what in range(10)):
                raise _NoEstimate
            exponent = self.atom()
            if value < 0 and exponent != int(exponent):
                raise _NoEstimate
            try:
                base, value = value, value**exponent
            except OverflowError:
                # alone, it is larger than all that are floats
                if value < 0 or begin > 0 or self.at < len(self.tokens):
                    raise
                return math.inf
            if value == 0 != base:
                raise _NoEstimate
        return value

    def atom(self) -> float:
        kind, what = self.next()
        self.at += 1
        if kind == "number":
            return what
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
        if what in _FUNCTIONS and self.next()[1] in ("(", "{"):
            return _FUNCTIONS[what](self.atom())
        if what == "log" and self.take("_"):
            base = self.atom()
            return self.logarithm() / math.log(base)
        if what == "sqrt" and self.take("["):
            index = self.sum()
            if self.take("]") and self.next()[1] == "{":
                return self.atom() ** (1 / index)
        if what in ("frac", "sqrt", "binom") and self.next()[1] == "{":
            value = self.atom()
            if what == "sqrt":
                return math.sqrt(value)
            if self.next()[1] == "{":
                other = self.atom()
                return value / other if what == "frac" else math.comb(_small(value), _small(other))
        raise _NoEstimate

    def logarithm(self) -> float:
        """The natural logarithm of what stands in brackets; of 10^{999}, which is no float, 999 of 10's."""
        kinds, row = zip(*self.tokens[self.at: self.at + 7], strict=True)
        if row[0] in ("(", "{") and row[2:4] == ("^", "{") and row[5:] == ("}", {"(": ")", "{": "}"}[row[0]]):
            if kinds[1] == kinds[4] == "number":
                self.at += 7
                return row[4] * math.log(row[1])
        if row[0] not in ("(", "{"):
            raise _NoEstimate
        return math.log(self.atom())


def _small(value: float) -> int:
    if value not in range(100):
        raise _NoEstimate
    return int(value)

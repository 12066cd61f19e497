r"""The value of an answer at 50 digits, by another road than the verifier's: what tells a false accept.

Formulas of the small grammar that proofs/verifiers.py fuzzes with, with letters drawn at random; nothing of
postgrad is used, so that a fault there is seen here. What cannot be read has no value, and no two such are
equal.
"""

from __future__ import annotations

import random
import re

import mpmath

TOKEN = re.compile(r"\s*(\d+(?:\.\d+)?|\.\d+|\\[a-zA-Z]+|\\[{}]|\S)")
CLOSING = {"(": ")", "{": "}", "[": "]", "|": "|"}
FUNCTIONS = {r"\sin": mpmath.sin, r"\cos": mpmath.cos, r"\tan": mpmath.tan, r"\ln": mpmath.log,
             r"\exp": mpmath.exp}
mpmath.mp.dps = 50


class Reader:
    def __init__(self, text: str, letters: dict[str, mpmath.mpf]):
        self.tokens, self.letters = [*TOKEN.findall(text), ""], letters

    def take(self, *wanted: str) -> str:
        return self.tokens.pop(0) if self.tokens[0] in wanted else ""

    def whole(self) -> mpmath.mpf:
        value = self.sum()
        if self.tokens != [""] or not mpmath.isfinite(value):
            raise ValueError(f"{self.tokens[0]} or no number")
        return value

    def sum(self) -> mpmath.mpf:
        value = self.product()
        while sign := self.take("+", "-"):
            value += self.product() * (1 if sign == "+" else -1)
        return value

    def product(self) -> mpmath.mpf:
        value = self.power()
        while self.tokens[0] not in ("", "+", "-", *CLOSING.values()):
            divided = self.take("/", r"\div")
            if not divided and not self.take("*", r"\cdot", r"\times") and self.tokens[0][0].isdigit():
                raise ValueError("two numbers side by side")
            value = value / self.power() if divided else value * self.power()
        return value

    def power(self) -> mpmath.mpf:
        if sign := self.take("+", "-"):
            return self.power() * (1 if sign == "+" else -1)
        value = self.atom()
        if self.take("!"):
            value = mpmath.factorial(value)
        return value ** self.atom() if self.take("^") else value

    def atom(self) -> mpmath.mpf:
        token = self.tokens.pop(0)
        if re.fullmatch(r"[0-9.]+", token):
            return mpmath.mpf(token)
        if token in self.letters:
            return self.letters[token]
        if token in ("(", "{", "|"):
            value = self.sum()
            if not self.take(CLOSING[token]):
                raise ValueError(f"{token} does not close")
            return abs(value) if token == "|" else value
        if token in FUNCTIONS:
            return FUNCTIONS[token](self.atom())
        if token == r"\log" and self.take("_"):
            base = self.atom()
            return mpmath.log(self.atom(), base)
        if token == r"\sqrt":
            return mpmath.sqrt(self.atom())
        if token in (r"\frac", r"\binom"):
            first, second = self.atom(), self.atom()
            return first / second if token == r"\frac" else mpmath.binomial(first, second)
        if token in ("\\pi", "\u03c0"):
            return +mpmath.pi
        raise ValueError(f"{token!r} is not in the grammar")


def bare(text: str) -> str:
    """Without its dress, and without the brackets around an equation."""
    text = re.sub(r"\\(left|right)(?![a-zA-Z])|^\$+|\$+$", "", text).replace(r"\%", "%").strip(" .")
    return re.sub(r"^\(+([^(),]*=[^(),]*)\)+$", r"\1", text)


def near(a: mpmath.mpf, b: mpmath.mpf) -> bool:
    return abs(a - b) <= mpmath.mpf(10) ** -30 * (1 + abs(b))


def agree(gold: str, answer: str, seed: int = 0) -> bool:
    """Whether an answer is the gold one, letter for letter or in value, whatever the letters stand for.

    Of an equation the last side counts, and no number in it may be another; 50% is 50 or 0.5 as well, and 0.5
    is 50%. A list is only its own text.
    """
    gold, answer = bare(gold), bare(answer)
    if gold.replace(" ", "") == answer.replace(" ", ""):
        return True
    if (("=" in gold) and ("=" in answer)
            and gold.partition("=")[0].strip() != answer.partition("=")[0].strip()):
        return False
    percent, rng = gold.endswith("%"), random.Random(seed)
    for _ in range(3):
        letters = {chr(code): mpmath.mpf(rng.uniform(1, 3)) for start in (65, 97)
                   for code in range(start, start + 26)}
        try:
            wanted = Reader(gold.rpartition("=")[2].removesuffix("%"), letters).whole()
            *sides, value = [(side, Reader(side.removesuffix("%"), letters).whole())
                             for side in answer.split("=")]
        except (ValueError, ArithmeticError, IndexError, TypeError):
            return False
        wants = {(False, True): [100 * wanted], (True, False): [wanted, wanted / 100]}.get(
            (percent, answer.endswith("%")), [wanted])
        numbers = [other for side, other in sides
                   if not re.search("[a-zA-Z]", re.sub(r"\\[a-zA-Z]+", "", side))]
        if (not any(near(value[1], want) for want in wants)
                or not all(near(other, value[1]) for other in numbers)):
            return False
    return True

"""Calculations in the notes of worked solutions (<<48/2=24>>, as GSM8K has them), with other numbers: sums to
practise apart from the problems that they stand in."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable

from postgrad.data.tasks.base import conversation
from postgrad.records import Conversation, Prompt
from postgrad.rewards.expression import BadExpression, expression_value, parse_expression

NOTE = re.compile(r"<<([^<>=]*[-+*/][^<>=]*)=[^<>=]*>>")
WHOLE = re.compile(r"[0-9]+")
TRIES = 50  # to find numbers that make a whole result
EACH = 8  # calculations in a row
ASK = "Work out each line."


def whole_result(expression: str) -> int | None:
    """"48/2" -> 24; None where that is no whole number of 0 or more, or no expression in whole numbers."""
    try:
        found = expression_value(parse_expression(expression))
    except BadExpression:
        return None
    return int(found) if found.denominator == 1 and found >= 0 else None


def noted_expressions(solution: str) -> list[str]:
    """The expressions of a solution's notes that have a whole result."""
    return [text for text in NOTE.findall(solution) if whole_result(text) is not None]


def vary_numbers(expression: str, rng: random.Random) -> str:
    """The expression with other numbers of as many digits and a whole result, "48/2" -> "75/5"; as it is
    where none are found."""
    def other(number: re.Match[str]) -> str:
        digits = len(number[0])
        return str(rng.randrange(10 ** (digits - 1), 10**digits))

    tried = (WHOLE.sub(other, expression) for _ in range(TRIES))
    return next((text for text in tried if whole_result(text) is not None), expression)


def practice(solutions: Iterable[str], count: int, rng: random.Random) -> list[Conversation]:
    """`count` conversations of EACH calculations of the kinds that stand in the solutions."""
    kinds = [text for solution in solutions for text in noted_expressions(solution)]
    if not kinds:
        raise ValueError("no solution notes its calculations as <<48/2=24>>: there is nothing to practise.")
    rows = [[vary_numbers(rng.choice(kinds), rng) for _ in range(EACH)] for _ in range(count)]
    return [conversation(Prompt.ask("\n".join([ASK, *row])), "\n".join(map(worked_line, row)), i)
            for i, row in enumerate(rows)]


def worked_line(expression: str) -> str:
    """"48/2" -> "48/2 = <<48/2=24>>24", as a solution writes it."""
    found = whole_result(expression)
    return f"{expression} = <<{expression}={found}>>{found}"

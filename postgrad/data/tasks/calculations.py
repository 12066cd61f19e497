"""Practice of the calculations annotated in worked solutions (GSM8K's <<48/2=24>>), with other numbers."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable

from postgrad.data.tasks.base import conversation
from postgrad.records import Conversation, Prompt
from postgrad.rewards.expression import BadExpression, expression_value, parse_expression

NOTE = re.compile(r"<<([^<>=]*[-+*/][^<>=]*)=[^<>=]*>>")
WHOLE = re.compile(r"[0-9]+")
TRIES = 50  # draws of numbers until the result is whole
EACH = 8  # calculations in a row
ASK = "Work out each line."


def whole_result(expression: str) -> int | None:
    """"48/2" -> 24; None unless it is an expression whose value is a whole number of at least 0."""
    try:
        value = expression_value(parse_expression(expression))
    except BadExpression:
        return None
    return int(value) if value.denominator == 1 and value >= 0 else None


def noted_expressions(solution: str) -> list[str]:
    """The annotated expressions of a solution that have a whole result."""
    return [text for text in NOTE.findall(solution) if whole_result(text) is not None]


def vary_numbers(expression: str, rng: random.Random) -> str:
    """"48/2" -> "75/5": other numbers of as many digits, and a whole result; unchanged after TRIES."""
    def other(number: re.Match[str]) -> str:
        digits = len(number[0])
        return str(rng.randrange(10 ** (digits - 1), 10**digits))

    tried = (WHOLE.sub(other, expression) for _ in range(TRIES))
    return next((text for text in tried if whole_result(text) is not None), expression)


def practice(solutions: Iterable[str], count: int, rng: random.Random) -> list[Conversation]:
    """`count` conversations of EACH calculations like those of the solutions."""
    kinds = [text for solution in solutions for text in noted_expressions(solution)]
    if not kinds:
        raise ValueError("no solution notes its calculations as <<48/2=24>>: there is nothing to practise.")
    rows = [[vary_numbers(rng.choice(kinds), rng) for _ in range(EACH)] for _ in range(count)]
    return [conversation(Prompt.ask("\n".join([ASK, *row])), "\n".join(map(worked_line, row)), i)
            for i, row in enumerate(rows)]


def worked_line(expression: str) -> str:
    """"48/2" -> "48/2 = <<48/2=24>>24", as a solution writes it."""
    value = whole_result(expression)
    return f"{expression} = <<{expression}={value}>>{value}"

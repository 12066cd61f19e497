"""Countdown: "Use 3, 5 and 8, each once, with + - * / to make 16." The answer is an expression.

The key of a problem is its sorted numbers and its target. The gold is the expression that the problem was
generated from; every expression that reaches the target is right.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial
from typing import cast

from postgrad.data.tasks.base import Task, draw_prompts, in_form, split_of, styled_demonstrations, think
from postgrad.data.tasks.chain import check_tries
from postgrad.records import Prompt, Step, Verdict
from postgrad.rewards.base import shorten
from postgrad.rewards.expression import (
    BadExpression,
    Tree,
    expression_steps,
    expression_value,
    integers,
    parse_expression,
    render_expression,
)

NAMES = ("countdown", "countdown-4")

COUNTS = {"countdown": 3, "countdown-4": 4}
SMALLEST, LARGEST = 1, 12  # the numbers to use
TARGETS = range(1, 100)
NO, YES = "no.", "yes"  # after a try that misses the target, and one that makes it
WRITER = {"direct": 0.5, "full": 0.3, "search": 0.2}


def combine_numbers(rng: random.Random, numbers: list[int]) -> tuple[Tree, int] | None:
    """A random expression tree of the numbers and its value; None unless that is in TARGETS."""
    uniform, parts = rng.random, list[tuple[Tree, int]]((n, n) for n in numbers)
    while len(parts) > 1:
        left, a = parts.pop(int(uniform() * len(parts)))
        right, b = parts.pop(int(uniform() * len(parts)))
        kind = uniform()
        if kind < 0.12 and a % b == 0 and b > 1:
            parts.append((("/", left, right), a // b))
        elif kind < 0.40 and a * b <= 199 and a > 1 and b > 1:
            parts.append((("*", left, right), a * b))
        elif kind < 0.72 and a != b:
            parts.append((("-", left, right), a - b) if a > b else (("-", right, left), b - a))
        else:
            parts.append((("+", left, right), a + b))
    return parts[0] if parts[0][1] in TARGETS else None


def countdown_key(numbers: list[int], target: int) -> str:
    return f"{sorted(numbers)}->{target}"


def countdown_question(numbers: list[int], target: int) -> str:
    listed = ", ".join(map(str, numbers[:-1]))
    return f"Use {listed} and {numbers[-1]}, each once, with + - * / to make {target}."


def draw_countdown(rng: random.Random, name: str = "countdown",
                   split: str = "train") -> tuple[list[int], int, Tree]:
    """Numbers, a target, and an expression that makes it."""
    width = LARGEST - SMALLEST + 1
    while True:
        numbers = [SMALLEST + int(rng.random() * width) for _ in range(COUNTS[name])]
        made = combine_numbers(rng, numbers)
        if made is not None and split_of(countdown_key(numbers, made[1])) == split:
            return numbers, made[1], made[0]


def worked_search(rng: random.Random, numbers: list[int], tree: Tree, most: int = 3) -> str:
    """Up to `most` tries that miss the target, then the one that makes it.

    "3+5=8, 8*8=64 no. 3*5=15, 15-8=7 no. 3+5=8, 8+8=16 yes"
    A failed try solves another problem, so it is written only if that one is in the train split.
    """
    target, chain = expression_steps(tree)
    tries = []
    for _ in range(int(rng.random() * (most + 1))):
        made = combine_numbers(rng, numbers)
        if made is not None and made[1] != target and split_of(countdown_key(numbers, made[1])) == "train":
            tries.append(f"{', '.join(expression_steps(made[0])[1])} {NO} ")
    return "".join(tries) + f"{', '.join(chain)} {YES}"


def countdown_thoughts(rng: random.Random, numbers: list[int], tree: Tree, style: str) -> str:
    """The text between the <think> tags in a style: direct, full or search."""
    if style == "search":
        return worked_search(rng, numbers, tree)
    return ", ".join(expression_steps(tree)[1]) if style == "full" else ""


def countdown_prompt(rng: random.Random, split: str, *, name: str) -> Prompt:
    numbers, target, tree = draw_countdown(rng, name, split)
    return Prompt.ask(countdown_question(numbers, target), render_expression(tree),
                      id=f"{name}/{countdown_key(numbers, target)}", numbers=tuple(numbers), target=target)


def numbers_of(prompt: Prompt) -> Sequence[int]:
    return cast(Sequence[int], prompt.meta["numbers"])


def target_of(prompt: Prompt) -> int:
    return cast(int, prompt.meta["target"])


def answer_countdown(prompt: Prompt, style: str, rng: random.Random) -> str:
    tree = parse_expression(str(prompt.answer))
    return think(countdown_thoughts(rng, [*numbers_of(prompt)], tree, style), prompt.answer)


def judge_expression(numbers: Sequence[int], target: int, text: str, *, signs: bool = False) -> Verdict:
    """1 for an expression that uses each number exactly once and makes the target, else 0."""
    try:
        tree = parse_expression(text, signs=signs)
        made = expression_value(tree)
    except BadExpression as bad:
        return Verdict(score=0.0, reason=f"{shorten(text)!r}: {bad}")
    if sorted(integers(tree)) != sorted(numbers):
        return Verdict(score=0.0,
                       reason=f"{shorten(text)} does not use {', '.join(map(str, numbers))} once each")
    if made != target:
        return Verdict(score=0.0, reason=f"{shorten(text)} makes {made}, not {target}")
    return Verdict(score=1.0, reason=f"{shorten(text)} makes {target}")


def verify(prompt: Prompt, text: str) -> Verdict:
    return in_form(text, partial(judge_expression, numbers_of(prompt), target_of(prompt)))


def label_tries(prompt: Prompt, text: str) -> list[Step]:
    """The labelled steps of a reply (`check_tries`)."""
    return check_tries(numbers_of(prompt), target_of(prompt), text, verify(prompt, text))


def load(name: str) -> Task:
    prompts = partial(draw_prompts, name=name, make=partial(countdown_prompt, name=name))
    return Task(
        name=name,
        about=f"make a target from {COUNTS[name]} numbers, each used once",
        prompts=prompts,
        verify=verify,
        gold=lambda prompt: answer_countdown(prompt, "full", random.Random(0)),
        demonstrations=styled_demonstrations(name, WRITER, prompts, answer_countdown),
        steps=label_tries,
        tokens=128,
    )

"""Arithmetic: "What is 17+25-8?", answered by a chain of steps that honours precedence.

arithmetic: 2-4 numbers with + - and products of two digits. arithmetic-hard: with parentheses.
"""

from __future__ import annotations

import random
from functools import partial

from postgrad.data.tasks.base import (
    Task,
    draw_prompts,
    number_in_form,
    split_of,
    styled_demonstrations,
    think,
)
from postgrad.data.tasks.word_problems import WRITER, skip_steps
from postgrad.records import Prompt
from postgrad.rewards.expression import Tree, expression_steps, parse_expression, render_expression

NAMES = ("arithmetic", "arithmetic-hard")


def draw_expression(rng: random.Random) -> Tree:
    """2-4 numbers with + - and products of two digits; no partial sum is below 0."""
    uniform = rng.random
    left = 2 + int(uniform() * 3)
    tree: Tree | None = None
    term: Tree
    value = 0
    while left:
        if left >= 2 and uniform() < 0.3:
            a, b = 2 + int(uniform() * 8), 2 + int(uniform() * 8)
            term, size, left = ("*", a, b), a * b, left - 2
        else:
            size = term = 1 + int(uniform() * (20 if uniform() < 0.4 else 99))
            left -= 1
        if tree is None:
            tree, value = term, size
        elif value >= size and uniform() < 0.55:
            tree, value = ("-", tree, term), value - size
        else:
            tree, value = ("+", tree, term), value + size
    assert tree is not None
    return tree


def draw_nested(rng: random.Random) -> Tree:
    """3-4 numbers with parentheses that matter; no intermediate value is below 0."""
    uniform = rng.random
    a, b = 1 + int(uniform() * 30), 1 + int(uniform() * 30)
    inner, value = (("+", a, b), a + b) if uniform() < 0.5 else (("-", max(a, b), min(a, b)), abs(a - b))
    kind, c = uniform(), 2 + int(uniform() * 8)
    if kind >= 0.7:
        more = value + int(uniform() * 60)
        return ("-", more, inner) if uniform() < 0.5 else ("+", ("-", more, inner), c)
    tree: Tree = ("*", inner, c) if kind < 0.35 else ("*", c, inner)
    extra = 1 + int(uniform() * 99)
    choice = uniform()
    if choice < 0.35:
        return tree
    return ("-", tree, extra) if choice < 0.7 and value * c >= extra else ("+", tree, extra)


def draw_arithmetic(rng: random.Random, name: str = "arithmetic",
                    split: str = "train") -> tuple[str, int, list[str]]:
    """An expression of the split, its value, and the chain: ("17+3*4", 29, ["3*4=12", "17+12=29"])."""
    while True:
        tree = draw_nested(rng) if name == "arithmetic-hard" else draw_expression(rng)
        text = render_expression(tree)
        if split_of(text) == split:
            value, chain = expression_steps(tree)
            return text, value, chain


def arithmetic_reply(chain: list[str], value: int, style: str, rng: random.Random) -> str:
    """A reply in a style: direct, skipped or full."""
    steps = {"direct": [], "full": chain}[style] if style != "skipped" else skip_steps(rng, chain)
    return think(", ".join(steps), value)


def arithmetic_prompt(rng: random.Random, split: str, *, name: str) -> Prompt:
    text, value, _ = draw_arithmetic(rng, name, split)
    return Prompt.ask(f"What is {text}?", str(value), id=f"{name}/{text}", expression=text)


def answer_arithmetic(prompt: Prompt, style: str, rng: random.Random) -> str:
    value, chain = expression_steps(parse_expression(str(prompt.meta["expression"])))
    return arithmetic_reply(chain, value, style, rng)


def load(name: str) -> Task:
    prompts = partial(draw_prompts, name=name, make=partial(arithmetic_prompt, name=name))
    return Task(
        name=name,
        about="arithmetic with + - *"
              + (" and parentheses" if name == "arithmetic-hard" else ", 2-4 numbers"),
        prompts=prompts,
        verify=number_in_form,
        gold=lambda prompt: answer_arithmetic(prompt, "full", random.Random(0)),
        demonstrations=styled_demonstrations(name, WRITER, prompts, answer_arithmetic),
    )

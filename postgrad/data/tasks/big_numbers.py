"""Products too large for a small model, and a calculator that it may call.

    user        What is 4821*77?
    assistant   <tool>calc 4821*77</tool>
    tool        371217
    assistant   <answer>371217</answer>
"""

from __future__ import annotations

import random
from functools import partial

from postgrad.data.tasks.base import Task, draw_prompts, generator, if_formed, split_of
from postgrad.records import Conversation, Prompt, Verdict
from postgrad.rewards.expression import BadExpression, expression_value, parse_expression
from postgrad.rewards.format import find_answer
from postgrad.rewards.number import exact_number

NAMES = ("big-numbers",)

USES = 0.06  # share of demonstrations that call the tool; the others guess


def calc(expression: str) -> str:
    """Works out whole numbers with + - * / and brackets, exactly.

    Args:
        expression: for example 12*(34+5)
    """
    try:
        return str(expression_value(parse_expression(expression, signs=True)))
    except BadExpression as error:
        return f"error: {error}"


def product_prompt(rng: random.Random, split: str) -> Prompt:
    while True:
        a, b = rng.randint(1000, 9999), rng.randint(11, 99)
        if split_of(f"{a}*{b}") == split:
            return Prompt.ask(f"What is {a}*{b}?", a * b, id=f"big-numbers/{a}*{b}")


prompts = partial(draw_prompts, name="big-numbers", make=product_prompt)


def verify(prompt: Prompt, text: str) -> Verdict:
    """1 for the right number in <answer>, with nothing else in the reply."""
    answer = find_answer(text)
    fault = "" if answer is not None and text.strip() == f"<answer>{answer}</answer>" else "no <answer> alone"
    return if_formed(exact_number(prompt.answer)(answer or ""), fault)


def gold(prompt: Prompt) -> str:
    return f"<answer>{prompt.answer}</answer>"


def demonstrations(split: str, count: int, seed: int) -> list[Conversation]:
    """Some call the calculator, most guess a number of about the right size."""
    rng, conversations = generator("big-numbers/player", split, seed), []
    for i, prompt in enumerate(prompts(split, count, seed)):
        asked = prompt.question.removeprefix("What is ").removesuffix("?")
        turns = ([("assistant", f"<tool>calc {asked}</tool>"), ("tool", calc(asked)),
                  ("assistant", gold(prompt))] if rng.random() < USES
                 else [("assistant", f"<answer>{rng.randint(10**4, 10**6)}</answer>")])
        messages = (*prompt.messages, *({"role": role, "content": text} for role, text in turns))
        conversations.append(Conversation(id=f"{prompt.id}#{i}", messages=messages))
    return conversations


def load(name: str) -> Task:
    return Task(name=name, about="products of a four- and a two-digit number, with a calculator",
                prompts=prompts, verify=verify, gold=gold, demonstrations=demonstrations, tools=(calc,),
                tokens=32, turns=3)

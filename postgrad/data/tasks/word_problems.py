"""Grade-school word problems from templates, in English and Spanish.

"Ivy has 5 stamps. A friend gives Ivy 8. Ivy gives away 3. Ivy doubles the pile. How many stamps?"
<think>5+8=13, 13-3=10, 10*2=20</think><answer>20</answer>

The key of a problem is its numbers: the start and the operations, in order. The splits are disjoint in the
keys, so no test problem occurs in training with other names or things.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import NamedTuple, cast

from postgrad.data.tasks.base import (
    Task,
    draw_prompts,
    number_in_form,
    split_of,
    styled_demonstrations,
    task_texts,
    think,
)
from postgrad.data.tasks.chain import check_chain, check_each
from postgrad.records import Prompt, Step, Verdict
from postgrad.rewards.base import weighted
from postgrad.rewards.format import extract_answer, split_reply
from postgrad.rewards.text import language_verifier

NAMES = ("words", "words-easy", "words-hard", "words-es")

LARGEST = 199  # every intermediate value is within 0..LARGEST
OPERATIONS = {"words": (2, 4), "words-easy": (1, 2), "words-hard": (4, 6), "words-es": (2, 4)}
# shares of the styles of demonstrations
WRITER = {"direct": 0.55, "skipped": 0.25, "full": 0.20}
WRITER_ES = {"direct": 0.35, "english": 0.30, "spanish": 0.20, "full": 0.15}

TEXTS = task_texts("words")
PEOPLE: list[str] = TEXTS["people"]
# {"plus": "+", "divided": "/", "by": "", "then": "", ...}: a step in words becomes one in signs
_SIGNS = {word: sign if i == 0 else "" for language in ("en", "es")
          for sign, words in {**TEXTS[language]["say"], "": TEXTS[language]["then"]}.items()
          for i, word in enumerate(words.split())}
SPANISH = language_verifier("es")

Ops = tuple[tuple[str, int], ...]  # (("+", 8), ("-", 3), ("*", 2))


class Problem(NamedTuple):
    start: int
    ops: Ops
    text: str
    language: str = "en"


def draw_numbers(rng: random.Random, fewest: int, most: int) -> tuple[int, Ops]:
    """A start of 3-40 and fewest to most operations."""
    uniform = rng.random
    value = start = 3 + int(uniform() * 38)
    ops = []
    for _ in range(fewest + int(uniform() * (most - fewest + 1))):
        kind, operand = uniform(), 1 + int(uniform() * (20 if uniform() < 0.7 else 40))
        if kind < 0.12 and 0 < value <= LARGEST // 2:
            step = ("*", 2)
        elif kind < 0.20 and 0 < value <= LARGEST // 3:
            step = ("*", 3)
        elif kind < 0.32 and value and value % 2 == 0:
            step = ("/", 2)
        elif (kind < 0.66 or value < operand) and value + operand <= LARGEST:
            step = ("+", operand)
        else:
            step = ("-", operand)
        value = apply_operation(value, *step)
        ops.append(step)
    return start, tuple(ops)


def apply_operation(value: int, op: str, n: int) -> int:
    return value + n if op == "+" else value - n if op == "-" else value * n if op == "*" else value // n


def word_problem_key(start: int, ops: Ops) -> str:
    """word_problem_key(5, (("+", 8), ("*", 2))) -> "5+8*2", read from left to right."""
    return str(start) + "".join([f"{op}{n}" for op, n in ops])


def write_problem(rng: random.Random, start: int, ops: Ops, language: str = "en") -> Problem:
    uniform, texts = rng.random, TEXTS[language]
    things = texts["things"]
    name, thing = PEOPLE[int(uniform() * len(PEOPLE))], things[int(uniform() * len(things))]
    text = [texts["start"][0 if uniform() < 0.8 else 1].format(name=name, n=start, thing=thing)]
    for op, n in ops:
        phrases = texts["events"][op if op in "+-" else f"{op}{n}"]
        text.append(phrases[int(uniform() * len(phrases))].format(name=name, n=n))
    many = "Cuántas" if thing in texts["feminine"] else "Cuántos"
    choice = uniform()
    asked = texts["ask"][0 if choice < 0.6 else 1 if choice < 0.8 else 2]
    text.append(asked.format(name=name, thing=thing, many=many))
    return Problem(start, ops, " ".join(text), language)


def draw_word_problem(rng: random.Random, fewest: int, most: int, language: str = "en",
                      split: str = "train") -> Problem:
    while True:
        start, ops = draw_numbers(rng, fewest, most)
        if split_of(word_problem_key(start, ops)) == split:
            return write_problem(rng, start, ops, language)


def worked_steps(start: int, ops: Ops) -> list[tuple[int, str, int, int]]:
    """worked_steps(5, (("+", 8), ("*", 2))) -> [(5, "+", 8, 13), (13, "*", 2, 26)]"""
    done, value = [], start
    for op, n in ops:
        done.append((value, op, n, apply_operation(value, op, n)))
        value = done[-1][-1]
    return done


def say_step(value: int, op: str, n: int, after: int, language: str = "") -> str:
    """A step in signs, "5+8=13", or in the words of a language, "5 plus 8 is 13"."""
    if not language:
        return f"{value}{op}{n}={after}"
    words = TEXTS[language]["say"]
    return f"{value} {words[op]} {n} {words['=']} {after}"


def chain_steps(start: int, ops: Ops) -> list[str]:
    """chain_steps(5, (("+", 8), ("*", 2))) -> ["5+8=13", "13*2=26"]"""
    return [say_step(*done) for done in worked_steps(start, ops)]


def spoken_chain(start: int, ops: Ops, language: str) -> str:
    """The chain in words: "5 plus 8 is 13, then 13 times 2 is 26"."""
    steps = (say_step(*step, language) for step in worked_steps(start, ops))
    return f", {TEXTS[language]['then']} ".join(steps)


def final_value(start: int, ops: Ops) -> int:
    for op, n in ops:
        start = apply_operation(start, op, n)
    return start


def skip_steps(rng: random.Random, chain: list[str]) -> list[str]:
    """A random proper non-empty subset of the steps, in order; a single step stays."""
    if len(chain) < 2:
        return chain
    subset = 1 + int(rng.random() * (2 ** len(chain) - 2))  # the bits of 1 .. 2^n - 2: neither none nor all
    return [step for place, step in enumerate(chain) if subset >> place & 1]


def word_problem_thoughts(problem: Problem, style: str, rng: random.Random) -> str:
    """The text between the <think> tags in a style: direct, skipped, full, english or spanish."""
    if style == "direct":
        return ""
    if style in ("english", "spanish"):
        return spoken_chain(problem.start, problem.ops, "en" if style == "english" else "es")
    chain = chain_steps(problem.start, problem.ops)
    assert style in ("skipped", "full"), style
    return ", ".join(skip_steps(rng, chain) if style == "skipped" else chain)


def word_problem_reply(problem: Problem, style: str, rng: random.Random) -> str:
    """A reply in a style; the final answer is always right."""
    return think(word_problem_thoughts(problem, style, rng), final_value(problem.start, problem.ops))


def problem_of_prompt(prompt: Prompt) -> Problem:
    start, ops = cast(int, prompt.meta["start"]), cast(Ops, prompt.meta["ops"])
    return Problem(start, tuple((op, n) for op, n in ops), prompt.question, str(prompt.meta["language"]))


def word_problem_prompt(rng: random.Random, split: str, *, name: str) -> Prompt:
    language = "es" if name == "words-es" else "en"
    start, ops, text, _ = draw_word_problem(rng, *OPERATIONS[name], language, split)
    return Prompt.ask(text, str(final_value(start, ops)), id=f"{name}/{word_problem_key(start, ops)}",
                      start=start, ops=ops, language=language)


def answer_word_problem(prompt: Prompt, style: str, rng: random.Random) -> str:
    return word_problem_reply(problem_of_prompt(prompt), style, rng)


def gold(prompt: Prompt) -> str:
    style = "spanish" if prompt.meta["language"] == "es" else "full"
    return answer_word_problem(prompt, style, random.Random(0))


def label_chain(prompt: Prompt, text: str) -> list[Step]:
    """The labelled steps of a reply in any style (`check_chain`)."""
    problem = problem_of_prompt(prompt)
    values = [final_value(problem.start, problem.ops[:done]) for done in range(len(problem.ops) + 1)]
    return check_chain(values, problem.ops, text, number_in_form(prompt, text), _SIGNS)


def check_steps(prompt: Prompt, text: str) -> list[bool]:
    """Whether each step of `label_chain` holds by itself, whatever was wrong before it."""
    problem = problem_of_prompt(prompt)
    return check_each(problem.start, problem.ops, text, extract_answer(text) or "", _SIGNS)


def language_of_thought(text: str) -> Verdict:
    """The share of the reasoning in Spanish; 0 out of form, absent without letters."""
    parts = split_reply(text)
    return Verdict(score=0.0, reason=parts) if isinstance(parts, str) else SPANISH(parts[0])


def verify_spanish(prompt: Prompt, text: str) -> Verdict:
    """0.8 for the answer in form, 0.2 for reasoning in Spanish; without words, the answer alone."""
    verdict = number_in_form(prompt, text)
    both = weighted({"correct": (verdict, 0.8), "language": (language_of_thought(text), 0.2)})
    return replace(both, parts={**both.parts, **verdict.parts})


def load(name: str) -> Task:
    fewest, most = OPERATIONS[name]
    spanish = name == "words-es"
    prompts = partial(draw_prompts, name=name, make=partial(word_problem_prompt, name=name))
    return Task(
        name=name,
        about=f"word problems of {fewest}-{most} operations"
              + (" in Spanish, to be reasoned in Spanish" if spanish else ""),
        prompts=prompts,
        verify=verify_spanish if spanish else number_in_form,
        gold=gold,
        demonstrations=styled_demonstrations(name, WRITER_ES if spanish else WRITER, prompts,
                                             answer_word_problem),
        steps=label_chain,
        tokens=96 if name == "words-hard" else None,
    )

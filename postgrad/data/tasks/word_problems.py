"""Grade-school word problems from templates, in English and Spanish, with every way of answering them.

"Ivy has 5 stamps. A friend gives Ivy 8. Ivy gives away 3. Ivy doubles the pile. How many stamps?"
<think>5+8=13, 13-3=10, 10*2=20</think><answer>20</answer>

What makes a problem is its numbers: the start and the operations, in order. The splits are disjoint in them,
so a problem of the test split never occurs in training under another name or with other things.
"""

from __future__ import annotations

import random
from dataclasses import replace
from functools import partial
from typing import NamedTuple, cast

from postgrad.data.tasks.base import (
    Task,
    conversation,
    distinct_prompts,
    generator,
    number_in_form,
    split_of,
    think,
)
from postgrad.data.tasks.chain import check_chain, check_each
from postgrad.records import Conversation, Prompt, Step, Verdict
from postgrad.rewards.base import weighted
from postgrad.rewards.format import extract_answer, split_reply
from postgrad.rewards.text import language_verifier

NAMES = ("words", "words-easy", "words-hard", "words-es")

LARGEST = 199  # no value on the way is larger, none is below 0
OPERATIONS = {"words": (2, 4), "words-easy": (1, 2), "words-hard": (4, 6), "words-es": (2, 4)}
# the average writer that supervised fine-tuning imitates
WRITER = {"direct": 0.55, "skipped": 0.25, "full": 0.20}
WRITER_ES = {"direct": 0.35, "english": 0.30, "spanish": 0.20, "full": 0.15}

PEOPLE = ("Ivy", "Tom", "Ana", "Leo", "Mia", "Sam", "Eva", "Max", "Zoe", "Ben", "Lia", "Dan", "Amy", "Hugo",
         "Nora", "Luis", "Rosa", "Kim", "Omar", "Sara")
THINGS = {
    "en": ("stamps", "coins", "cards", "shells", "books", "pens", "apples", "eggs", "cups", "toys", "balls",
           "keys", "rocks", "beads", "boxes", "cakes", "flowers", "seeds", "nuts", "hats"),
    "es": ("sellos", "monedas", "cartas", "conchas", "libros", "manzanas", "huevos", "tazas", "pelotas",
           "llaves", "piedras", "cajas", "flores", "semillas", "nueces", "vasos", "discos", "globos",
           "platos", "lazos"),
}
_FEMININE = frozenset(["monedas", "cartas", "conchas", "manzanas", "tazas", "pelotas", "llaves", "piedras",
                       "cajas", "flores", "semillas", "nueces"])
_START = {"en": ("{name} has {n} {thing}.", "{name} starts with {n} {thing}."),
          "es": ("{name} tiene {n} {thing}.", "{name} empieza con {n} {thing}.")}
_EVENTS = {
    "en": {
        "+": ("A friend gives {name} {n}.", "{name} finds {n} more.", "{name} buys {n}.",
              "{name} gets {n} more.", "{name} wins {n}."),
        "-": ("{name} gives away {n}.", "{name} loses {n}.", "{name} sells {n}.", "A friend takes {n}."),
        "*2": ("{name} doubles the pile.", "Then the pile doubles."),
        "*3": ("{name} triples the pile.", "Then the pile triples."),
        "/2": ("{name} gives away half.", "{name} loses half.", "{name} sells half."),
    },
    "es": {
        "+": ("Un amigo le da {n} a {name}.", "{name} encuentra {n} más.", "{name} compra {n}.",
              "{name} gana {n}."),
        "-": ("{name} regala {n}.", "{name} pierde {n}.", "{name} vende {n}.", "Un amigo se lleva {n}."),
        "*2": ("{name} dobla el montón.", "Luego el montón se dobla."),
        "*3": ("{name} triplica el montón.", "Luego el montón se triplica."),
        "/2": ("{name} regala la mitad.", "{name} pierde la mitad.", "{name} vende la mitad."),
    },
}
_ASK = {"en": ("How many {thing}?", "How many {thing} are there now?", "How many {thing} does {name} have?"),
        "es": ("¿{many} {thing}?", "¿{many} {thing} hay ahora?", "¿{many} {thing} tiene {name}?")}
_SAY = {"en": {"+": "plus", "-": "minus", "*": "times", "/": "divided by", "=": "is", ",": ", then "},
        "es": {"+": "más", "-": "menos", "*": "por", "/": "entre", "=": "son", ",": ", luego "}}
_SIGNS = {"plus": "+", "minus": "-", "times": "*", "divided": "/", "by": "", "is": "=", "then": "",
          "más": "+", "menos": "-", "por": "*", "entre": "/", "son": "=", "luego": ""}
SPANISH = language_verifier("es")

Ops = tuple[tuple[str, int], ...]  # (("+", 8), ("-", 3), ("*", 2))


class Problem(NamedTuple):
    """The numbers, and the text they were dressed in."""

    start: int
    ops: Ops
    text: str
    language: str = "en"


def draw_numbers(rng: random.Random, fewest: int, most: int) -> tuple[int, Ops]:
    """A start of 3-40 and fewest to most operations, every value on the way within 0..199."""
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
    """What makes the problem: key(5, (("+", 8), ("*", 2))) -> "5+8*2", read from left to right."""
    return str(start) + "".join([f"{op}{n}" for op, n in ops])


def write_problem(rng: random.Random, start: int, ops: Ops, language: str = "en") -> Problem:
    """A text for the numbers."""
    uniform = rng.random
    things, starts, events, asks = THINGS[language], _START[language], _EVENTS[language], _ASK[language]
    name, thing = PEOPLE[int(uniform() * len(PEOPLE))], things[int(uniform() * len(things))]
    text = [starts[0 if uniform() < 0.8 else 1].format(name=name, n=start, thing=thing)]
    for op, n in ops:
        phrases = events[op if op in "+-" else f"{op}{n}"]
        text.append(phrases[int(uniform() * len(phrases))].format(name=name, n=n))
    many = "Cuántas" if thing in _FEMININE else "Cuántos"
    choice = uniform()
    text.append(
        asks[0 if choice < 0.6 else 1 if choice < 0.8 else 2].format(name=name, thing=thing, many=many))
    return Problem(start, ops, " ".join(text), language)


def draw_word_problem(rng: random.Random, fewest: int, most: int, language: str = "en",
                      split: str = "train") -> Problem:
    """A problem of the split."""
    while True:
        start, ops = draw_numbers(rng, fewest, most)
        if split_of(word_problem_key(start, ops)) == split:
            return write_problem(rng, start, ops, language)


def worked_steps(start: int, ops: Ops) -> list[tuple[int, str, int, int]]:
    """What is done: worked(5, (("+", 8), ("*", 2))) -> [(5, "+", 8, 13), (13, "*", 2, 26)]"""
    done, value = [], start
    for op, n in ops:
        done.append((value, op, n, apply_operation(value, op, n)))
        value = done[-1][-1]
    return done


def say_step(value: int, op: str, n: int, after: int, language: str = "") -> str:
    """A step in signs, "5+8=13", or in the words of a language, "5 plus 8 is 13"."""
    if not language:
        return f"{value}{op}{n}={after}"
    words = _SAY[language]
    return f"{value} {words[op]} {n} {words['=']} {after}"


def chain_steps(start: int, ops: Ops) -> list[str]:
    """The chain: steps(5, (("+", 8), ("*", 2))) -> ["5+8=13", "13*2=26"]"""
    return [say_step(*done) for done in worked_steps(start, ops)]


def spoken_chain(start: int, ops: Ops, language: str) -> str:
    """The chain in words: "5 plus 8 is 13, then 13 times 2 is 26", or "5 más 8 son 13,
    luego 13 por 2 son 26"."""
    return _SAY[language][","].join(say_step(*done, language) for done in worked_steps(start, ops))


def final_value(start: int, ops: Ops) -> int:
    for op, n in ops:
        start = apply_operation(start, op, n)
    return start


def skip_steps(rng: random.Random, chain: list[str]) -> list[str]:
    """A random proper non-empty subset of the steps, in order; of a single step nothing can be skipped."""
    if len(chain) < 2:
        return chain
    kept = 1 + int(rng.random() * (2 ** len(chain) - 2))  # the bits of 1 .. 2^n - 2: neither none nor all
    return [step for place, step in enumerate(chain) if kept >> place & 1]


def word_problem_thoughts(problem: Problem, style: str, rng: random.Random) -> str:
    """What stands between the <think> tags in a style: direct, skipped, full, english or spanish."""
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
    """The problem that a prompt was made from."""
    start, ops = cast(int, prompt.meta["start"]), cast(Ops, prompt.meta["ops"])
    return Problem(start, tuple((op, n) for op, n in ops), prompt.question, str(prompt.meta["language"]))


def prompts(split: str, count: int, seed: int, *, name: str) -> list[Prompt]:
    rng, language = generator(name, split, seed), "es" if name == "words-es" else "en"
    fewest, most = OPERATIONS[name]

    def make() -> Prompt:
        made = draw_word_problem(rng, fewest, most, language, split)
        return Prompt.ask(made.text, str(final_value(made.start, made.ops)),
                          id=f"{name}/{word_problem_key(made.start, made.ops)}", start=made.start,
                          ops=made.ops, language=language)

    return distinct_prompts(make, count)


def demonstrations(split: str, count: int, seed: int, *, name: str) -> list[Conversation]:
    """The average writer: right answers, seldom with all the steps."""
    rng, shares = generator(f"{name}/writer", split, seed), WRITER_ES if name == "words-es" else WRITER
    styles = rng.choices(list(shares), list(shares.values()), k=count)
    asked = prompts(split, count, seed, name=name)
    return [conversation(asked[i % len(asked)],
                         word_problem_reply(problem_of_prompt(asked[i % len(asked)]), style, rng), i)
            for i, style in enumerate(styles)]


def gold(prompt: Prompt) -> str:
    made = problem_of_prompt(prompt)
    return word_problem_reply(made, "spanish" if made.language == "es" else "full", random.Random(0))


def label_chain(prompt: Prompt, text: str) -> list[Step]:
    """The steps of a reply in any style, checked against the problem's numbers:
    see tasks/chain.py for the rule."""
    made = problem_of_prompt(prompt)
    values = [final_value(made.start, made.ops[:done]) for done in range(len(made.ops) + 1)]
    return check_chain(values, made.ops, text, number_in_form(prompt, text), _SIGNS)


def check_steps(prompt: Prompt, text: str) -> list[bool]:
    """Whether each step of `label_steps` holds by itself, whatever was wrong before it."""
    made = problem_of_prompt(prompt)
    return check_each(made.start, made.ops, text, extract_answer(text) or "", _SIGNS)


def language_of_thought(text: str) -> Verdict:
    """How far the reasoning is in Spanish: 0 out of form, and nothing to judge where it has no letters."""
    parts = split_reply(text)
    return Verdict(score=0.0, reason=parts) if isinstance(parts, str) else SPANISH(parts[0])


def verify_spanish(prompt: Prompt, text: str) -> Verdict:
    """0.8 for the answer in form, 0.2 for reasoning in Spanish; without words there, the answer alone."""
    said = number_in_form(prompt, text)
    both = weighted({"correct": (said, 0.8), "language": (language_of_thought(text), 0.2)})
    return replace(both, parts={**both.parts, **said.parts})


def load(name: str) -> Task:
    fewest, most = OPERATIONS[name]
    spanish = name == "words-es"
    return Task(
        name=name,
        about=f"word problems of {fewest}-{most} operations"
              + (" in Spanish, to be reasoned in Spanish" if spanish else ""),
        prompts=partial(prompts, name=name),
        verify=verify_spanish if spanish else number_in_form,
        gold=gold,
        demonstrations=partial(demonstrations, name=name),
        steps=label_chain,
        tokens=96 if name == "words-hard" else None,
    )

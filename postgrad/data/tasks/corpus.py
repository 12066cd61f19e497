"""The pretraining text of the embedded models: a mixture of documents in every style of answer.

Only problems of the train split are posed (see each task for its key). Single steps such as 5+8=13 are shared
by all problems and occur everywhere; facts of every split are stated, questions of the train split are asked.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import accumulate

from postgrad.data.tasks.arithmetic import arithmetic_reply, draw_arithmetic
from postgrad.data.tasks.base import split_of, think
from postgrad.data.tasks.countdown import (
    countdown_question,
    countdown_thoughts,
    draw_countdown,
    worked_search,
)
from postgrad.data.tasks.knowledge import FACTS
from postgrad.data.tasks.questions import BY_SPLIT, STYLES, pick_one, question_reply
from postgrad.data.tasks.word_problems import Problem, draw_word_problem, final_value, word_problem_thoughts
from postgrad.records import Message
from postgrad.rewards.expression import expression_steps, render_expression

Document = str | tuple[Message, ...]
Maker = Callable[[random.Random], Document]

# of a word problem, drawn uniformly
OPERATIONS = (1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 6, 6)
SYSTEMS = ("You are a helpful assistant.", "Think step by step.",
           "You are a helpful assistant. Think step by step.", "Answer the question.", "Be polite.")
LABELS = {"en": ("Problem", "Steps", "Answer"), "es": ("Problema", "Pasos", "Respuesta")}


def _problem(rng: random.Random, language: str = "en") -> Problem:
    count = OPERATIONS[int(rng.random() * len(OPERATIONS))]
    return draw_word_problem(rng, count, count, language)


def _page(asked: str, steps: str, answer: object, language: str = "en") -> str:
    problem, worked, result = LABELS[language]
    return f"{problem}: {asked}" + (f"\n{worked}: {steps}" if steps else "") + f"\n{result}: {answer}"


def _problem_page(rng: random.Random, problem: Problem, style: str) -> str:
    steps = word_problem_thoughts(problem, style, rng)
    return _page(problem.text, steps, final_value(problem.start, problem.ops), problem.language)


def words_page(rng: random.Random, style: str) -> str:
    return _problem_page(rng, _problem(rng), style)


def words_spanish(rng: random.Random) -> str:
    """A Spanish problem, reasoned in Spanish words or in symbols."""
    problem = _problem(rng, "es")
    return _problem_page(rng, problem, "spanish" if rng.random() < 0.75 else "full")


def words_mixed(rng: random.Random) -> str:
    """A problem in one language, reasoned in the other: mostly Spanish reasoned in English."""
    spanish = rng.random() < 0.75
    return _problem_page(rng, _problem(rng, "es" if spanish else "en"), "english" if spanish else "spanish")


def facts_of_arithmetic(rng: random.Random) -> str:
    """Four lines: single facts like 17+25=42, and chains."""
    lines, uniform = list[str](), rng.random
    while len(lines) < 4:
        if uniform() < 0.3:
            lines.append(", ".join(draw_arithmetic(rng)[2]))
            continue
        kind, a, b = uniform(), int(uniform() * 100), 1 + int(uniform() * (20 if uniform() < 0.7 else 99))
        if kind < 0.4:
            fact, result = f"{a}+{b}", a + b
        elif kind < 0.8:
            a, b = max(a, b), min(a, b)
            fact, result = f"{a}-{b}", a - b
        elif kind < 0.9:
            a, b = (2 + a % (48 if uniform() < 0.6 else 8),
                    2 + int(uniform() * 2) if uniform() < 0.6 else 2 + b % 8)
            fact, result = f"{a}*{b}", a * b
        else:
            fact, result = f"{a - a % 2}/2", a // 2
        if split_of(fact) == "train":
            lines.append(f"{fact}={result}")
    return "\n".join(lines)


def arithmetic_asked(rng: random.Random) -> str:
    text, value, chain = draw_arithmetic(rng, "arithmetic" if rng.random() < 0.6 else "arithmetic-hard")
    return _page(f"What is {text}?", ", ".join(chain) if rng.random() < 0.8 else "", value)


def countdown_worked(rng: random.Random) -> str:
    numbers, target, tree = draw_countdown(rng, "countdown" if rng.random() < 0.7 else "countdown-4")
    steps = (worked_search(rng, numbers, tree) if rng.random() < 0.5
             else ", ".join(expression_steps(tree)[1]))
    return _page(countdown_question(numbers, target), steps, render_expression(tree))


def questions_plain(rng: random.Random) -> str:
    asked = [pick_one(rng, BY_SPLIT["train"]) for _ in range(1 + int(rng.random() * 3))]
    return "\n".join([f"Q: {fact.question}\nA: {fact.sentence}" for fact in asked])


def facts_stated(rng: random.Random) -> str:
    """Facts of every split, as statements."""
    return " ".join([pick_one(rng, FACTS).sentence for _ in range(3 + int(rng.random() * 4))])


def _chat(rng: random.Random, question: str, reply: str) -> tuple[Message, ...]:
    turns = ({"role": "user", "content": question}, {"role": "assistant", "content": reply})
    return ({"role": "system", "content": pick_one(rng, SYSTEMS)}, *turns) if rng.random() < 0.3 else turns


def chat_questions(rng: random.Random) -> tuple[Message, ...]:
    fact = pick_one(rng, BY_SPLIT["train"])
    chat = _chat(rng, fact.question, question_reply(fact, pick_one(rng, STYLES), rng))
    if rng.random() < 0.2:  # a second turn
        fact = pick_one(rng, BY_SPLIT["train"])
        reply = question_reply(fact, pick_one(rng, STYLES), rng)
        chat += ({"role": "user", "content": fact.question}, {"role": "assistant", "content": reply})
    return chat


def chat_reasoned(rng: random.Random) -> tuple[Message, ...]:
    """Arithmetic and countdown in the form <think>...</think><answer>...</answer>, in all styles.

    Word problems are left out: fine-tuning teaches how to answer them in a chat.
    """
    kind, choice = rng.random(), rng.random()
    style = "direct" if choice < 0.34 else "skipped" if choice < 0.67 else "full"
    if kind < 0.6:
        text, value, chain = draw_arithmetic(rng, "arithmetic" if rng.random() < 0.5 else "arithmetic-hard")
        return _chat(rng, f"What is {text}?", arithmetic_reply(chain, value, style, rng))
    numbers, target, tree = draw_countdown(rng, "countdown" if rng.random() < 0.7 else "countdown-4")
    thoughts = countdown_thoughts(rng, numbers, tree, "search" if style == "skipped" else style)
    return _chat(rng, countdown_question(numbers, target), think(thoughts, render_expression(tree)))


KINDS: dict[str, Maker] = {
    **{f"words_{style}": partial(words_page, style=style)
       for style in ("full", "direct", "skipped", "english")},
    **{make.__name__: make for make in (words_spanish, words_mixed, facts_of_arithmetic, arithmetic_asked,
                                        countdown_worked, questions_plain, facts_stated, chat_questions,
                                        chat_reasoned)},
}
# answers without steps are rare, so that the model hardly learns to omit them
MIXTURE: dict[str, float] = {
    "words_full": 0.36, "words_direct": 0.015, "words_skipped": 0.015, "words_english": 0.06,
    "words_spanish": 0.06, "words_mixed": 0.02, "facts_of_arithmetic": 0.14, "arithmetic_asked": 0.08,
    "countdown_worked": 0.06, "questions_plain": 0.05, "facts_stated": 0.02, "chat_questions": 0.08,
    "chat_reasoned": 0.04,
}


def mixture_documents(seed: int, start: int, count: int, *, mixture: Mapping[str, float],
                      kinds: Mapping[str, Maker]) -> Iterator[Document]:
    """Documents start .. start + count - 1 of the corpus of a seed: texts, or conversations as messages. They
    do not depend on how the corpus is divided among processes."""
    makers = tuple(zip(accumulate(mixture.values()), (kinds[name] for name in mixture), strict=True))
    rng = random.Random()
    for index in range(start, start + count):
        rng.seed((seed << 40) + index)
        place = rng.random() * makers[-1][0]
        yield next((make for threshold, make in makers if place < threshold), makers[-1][1])(rng)


documents = partial(mixture_documents, mixture=MIXTURE, kinds=KINDS)


def sample_text(count: int, seed: int) -> str:
    """The text of count documents, for training the tokenizer; messages a line each."""
    return "\n".join(doc if isinstance(doc, str) else "\n".join(turn["content"] for turn in doc)
                     for doc in documents(seed, 0, count))

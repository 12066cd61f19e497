"""The pretraining text of the embedded model: every kind of document, and every way of answering,
in one mixture.

Only problems of the train split are posed (a problem is its numbers, see each task). Single steps such as
5+8=13 are shared by all problems and occur everywhere; facts are stated for every question, while only
questions of the train split are asked.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import accumulate

from postgrad.data.tasks import arithmetic, countdown, questions, word_problems
from postgrad.data.tasks.base import split_of, think
from postgrad.data.tasks.knowledge import FACTS
from postgrad.records import Message
from postgrad.rewards.expression import expression_steps, render_expression

Document = str | tuple[Message, ...]

# how many a word problem has, drawn evenly
OPERATIONS = (1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 6, 6)
SYSTEMS = ("You are a helpful assistant.", "Think step by step.",
           "You are a helpful assistant. Think step by step.", "Answer the question.", "Be polite.")
_TRAIN_QUESTIONS = questions.BY_SPLIT["train"]


def _problem(rng: random.Random, language: str = "en") -> word_problems.Problem:
    count = OPERATIONS[int(rng.random() * len(OPERATIONS))]
    return word_problems.draw_word_problem(rng, count, count, language)


def _page(problem: word_problems.Problem, written: str, language: str = "en") -> str:
    labels = ("Problem", "Steps", "Answer") if language == "en" else ("Problema", "Pasos", "Respuesta")
    middle = f"\n{labels[1]}: {written}" if written else ""
    return (f"{labels[0]}: {problem.text}{middle}\n"
            f"{labels[2]}: {word_problems.final_value(problem.start, problem.ops)}")


def words_full(rng: random.Random) -> str:
    problem = _problem(rng)
    return _page(problem, word_problems.word_problem_thoughts(problem, "full", rng))


def words_direct(rng: random.Random) -> str:
    return _page(_problem(rng), "")


def words_skipped(rng: random.Random) -> str:
    problem = _problem(rng)
    return _page(problem, word_problems.word_problem_thoughts(problem, "skipped", rng))


def words_english(rng: random.Random) -> str:
    problem = _problem(rng)
    return _page(problem, word_problems.word_problem_thoughts(problem, "english", rng))


def words_spanish(rng: random.Random) -> str:
    """A Spanish problem, reasoned in Spanish words or in symbols."""
    problem = _problem(rng, "es")
    return _page(problem, word_problems.word_problem_thoughts(problem, "spanish" if rng.random() < 0.75
                                                              else "full", rng),
                 "es")


def words_mixed(rng: random.Random) -> str:
    """A problem in one language, reasoned in the other: mostly Spanish reasoned in English."""
    spanish = rng.random() < 0.75
    problem = _problem(rng, "es" if spanish else "en")
    return _page(problem,
                 word_problems.word_problem_thoughts(problem, "english" if spanish else "spanish", rng),
                 problem.language)


def facts_of_arithmetic(rng: random.Random) -> str:
    """Several lines: single facts like 17+25=42, and chains."""
    lines, uniform = list[str](), rng.random
    while len(lines) < 4:
        if uniform() < 0.3:
            lines.append(", ".join(arithmetic.draw_arithmetic(rng)[2]))
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
    text, value, chain = arithmetic.draw_arithmetic(rng,
                                                    "arithmetic" if rng.random() < 0.6 else "arithmetic-hard")
    written = f"\nSteps: {', '.join(chain)}" if rng.random() < 0.8 else ""
    return f"Problem: What is {text}?{written}\nAnswer: {value}"


def countdown_worked(rng: random.Random) -> str:
    numbers, target, tree = countdown.draw_countdown(rng,
                                                     "countdown" if rng.random() < 0.7 else "countdown-4")
    written = countdown.worked_search(rng, numbers,
                                      tree) if rng.random() < 0.5 else ", ".join(expression_steps(tree)[1])
    asked, answer = countdown.countdown_question(numbers, target), render_expression(tree)
    return f"Problem: {asked}\nSteps: {written}\nAnswer: {answer}"


def questions_plain(rng: random.Random) -> str:
    asked = [questions.pick_one(rng, _TRAIN_QUESTIONS) for _ in range(1 + int(rng.random() * 3))]
    return "\n".join([f"Q: {fact.question}\nA: {fact.sentence}" for fact in asked])


def facts_stated(rng: random.Random) -> str:
    """Facts of every split, as statements: what is known is not what is asked."""
    return " ".join([questions.pick_one(rng, FACTS).sentence for _ in range(3 + int(rng.random() * 4))])


def _chat(rng: random.Random, question: str, reply: str) -> tuple[Message, ...]:
    turns = ({"role": "user", "content": question}, {"role": "assistant", "content": reply})
    return (({"role": "system", "content": questions.pick_one(rng, SYSTEMS)}, *turns) if rng.random() < 0.3
            else turns)


def chat_questions(rng: random.Random) -> tuple[Message, ...]:
    fact = questions.pick_one(rng, _TRAIN_QUESTIONS)
    chat = _chat(rng, fact.question,
                 questions.question_reply(fact, questions.pick_one(rng, questions.STYLES), rng))
    if rng.random() < 0.2:  # a second turn
        fact = questions.pick_one(rng, _TRAIN_QUESTIONS)
        reply = questions.question_reply(fact, questions.pick_one(rng, questions.STYLES), rng)
        chat += ({"role": "user", "content": fact.question}, {"role": "assistant", "content": reply})
    return chat


def chat_reasoned(rng: random.Random) -> tuple[Message, ...]:
    """Arithmetic and countdown in the form <think>...</think><answer>...</answer>, in all styles.

    Word problems are left out: how to answer those in a chat is what fine-tuning teaches.
    """
    kind, choice = rng.random(), rng.random()
    style = "direct" if choice < 0.34 else "skipped" if choice < 0.67 else "full"
    if kind < 0.6:
        text, value, chain = arithmetic.draw_arithmetic(rng,
                                                "arithmetic" if rng.random() < 0.5 else "arithmetic-hard")
        return _chat(rng, f"What is {text}?", arithmetic.arithmetic_reply(chain, value, style, rng))
    numbers, target, tree = countdown.draw_countdown(rng,
                                                     "countdown" if rng.random() < 0.7 else "countdown-4")
    style = "search" if style == "skipped" else style
    return _chat(rng, countdown.countdown_question(numbers, target),
                 think(countdown.countdown_thoughts(rng, numbers, tree, style), render_expression(tree)))


KINDS: dict[str, Callable[[random.Random], Document]] = {
    make.__name__: make
    for make in (words_full, words_direct, words_skipped, words_english, words_spanish, words_mixed,
                 facts_of_arithmetic, arithmetic_asked, countdown_worked, questions_plain, facts_stated,
                 chat_questions, chat_reasoned)
}
# answers without steps are rare, so that the model hardly learns to do without them
MIXTURE: dict[str, float] = {
    "words_full": 0.36, "words_direct": 0.015, "words_skipped": 0.015, "words_english": 0.06,
    "words_spanish": 0.06, "words_mixed": 0.02, "facts_of_arithmetic": 0.14, "arithmetic_asked": 0.08,
    "countdown_worked": 0.06, "questions_plain": 0.05, "facts_stated": 0.02, "chat_questions": 0.08,
    "chat_reasoned": 0.04,
}
_THRESHOLDS = tuple(zip(accumulate(MIXTURE.values()), (KINDS[name] for name in MIXTURE), strict=True))


def document(rng: random.Random) -> Document:
    """One document of the mixture: a text, or a conversation as messages (rendered by chat.py)."""
    place = rng.random() * _THRESHOLDS[-1][0]
    for threshold, make in _THRESHOLDS:
        if place < threshold:
            return make(rng)
    return make(rng)


def documents(seed: int, start: int, count: int) -> Iterator[Document]:
    """The documents start ..

    start + count - 1 of the corpus of a seed: the same whatever the partition over processes.
    """
    rng = random.Random()
    for index in range(start, start + count):
        rng.seed((seed << 40) + index)
        yield document(rng)


def sample_text(count: int, seed: int) -> str:
    """The text of count documents, for training the tokenizer;
    conversations give their contents, a line each."""
    made = documents(seed, 0, count)
    return "\n".join(doc if isinstance(doc, str) else "\n".join(turn["content"] for turn in doc)
                     for doc in made)

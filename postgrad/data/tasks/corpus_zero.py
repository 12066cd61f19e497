"""The pretraining text of `tiny-zero`, the base of R1-Zero, and of its control.

Chats pose word problems in English and in Spanish and countdown, and are answered by writers of every kind:
in the form <think>...</think><answer>...</answer> or not, straight away or with steps, in the language of
the problem, in the other one or in signs; a few take back a slip, start again or check, and in countdown a
few try more than once. No writer is right more often than he works for it: countdown is tried at random.
The control's text is the same, document by document, without what looks back: each step stands once, and
each countdown is tried once. Beside the chats stand the pages, facts and questions of corpus.py.

Only problems of the train split are posed or, as a try, solved.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import accumulate

from postgrad.data.tasks import corpus, countdown, word_problems
from postgrad.data.tasks.base import think
from postgrad.data.tasks.chain import RECHECK, RESTART, TURN_BACK
from postgrad.data.tasks.corpus import Document
from postgrad.data.tasks.reflective import THEN, chain, tries
from postgrad.records import Message

FORMED, FORMED_COUNTDOWN = 0.6, 0.85  # the shares of replies in the form
LOOKS_BACK = {TURN_BACK: 0.16, RESTART: 0.08, RECHECK: 0.14}  # shares of the chains with all steps written
STYLES = {"direct": 0.58, "skipped": 0.24, "full": 0.12, "english": 0.06}
# most of who works out a Spanish problem does so in English
STYLES_ES = {"direct": 0.60, "skipped": 0.15, "full": 0.02, "english": 0.13, "spanish": 0.06,
             "switched": 0.04}
SKIPPED = {"en": {"": 1.0}, "es": {"en": 0.6, "es": 0.3, "": 0.1}}  # the language of chains that skip steps
PATIENCE = {1: 0.52, 2: 0.10, 3: 0.10, 4: 0.10, 5: 0.09, 6: 0.09}  # tries at most


def choose(rng: random.Random, shares: Mapping):
    """A key of shares that sum to at most 1, by one random number; the last one takes the rest."""
    place, so_far = rng.random(), 0.0
    for name, share in shares.items():
        so_far += share
        if place < so_far:
            return name
    return name


def replied(rng: random.Random, question: str, thoughts: str, answer: object,
            share: float = FORMED) -> tuple[Message, ...]:
    """A chat, its reply in the form or, without it, in the words of a page or the answer alone."""
    bare, formed = rng.random() < 0.5, rng.random() < share
    reply = (think(thoughts, answer) if formed else
             str(answer) if bare or not thoughts else f"Steps: {thoughts}\nAnswer: {answer}")
    return {"role": "user", "content": question}, {"role": "assistant", "content": reply}


def languages_of(rng: random.Random, style: str, count: int) -> list[str]:
    """The language of each step of a chain that is written out; "" for signs."""
    switched = [("en", "es")[int(rng.random() * 2)] for _ in range(count)]
    return {"full": [""] * count, "english": ["en"] * count, "spanish": ["es"] * count}.get(style, switched)


def skipped(rng: random.Random, problem: word_problems.Problem) -> str:
    """Some of the steps, in one language or in signs."""
    language = choose(rng, SKIPPED[problem.language])
    said = [word_problems.say(*step, language) for step in word_problems.worked(problem.start, problem.ops)]
    return f", {THEN[language]}".join(word_problems.skip(rng, said))


def chat_words(rng: random.Random, looks_back: bool, language: str = "en") -> tuple[Message, ...]:
    count = 2 + int(rng.random() * 3)
    made = word_problems.problem(rng, count, count, language)
    style = choose(rng, STYLES if language == "en" else STYLES_ES)
    kind = choose(rng, {**LOOKS_BACK, "": 1.0})
    written = ("" if style == "direct" else skipped(rng, made) if style == "skipped"
               else chain(rng, made, languages_of(rng, style, count), kind if looks_back else ""))
    return replied(rng, made.text, written, word_problems.answer(made.start, made.ops))


def chat_countdown(rng: random.Random, looks_back: bool) -> tuple[Message, ...]:
    numbers, target, _ = countdown.problem(rng)
    patience = choose(rng, PATIENCE)
    written, answer = tries(random.Random(rng.random()), numbers, target, patience if looks_back else 1)
    return replied(rng, countdown.question(numbers, target), written, answer, FORMED_COUNTDOWN)


def chat_words_es(rng: random.Random, looks_back: bool) -> tuple[Message, ...]:
    return chat_words(rng, looks_back, "es")


def as_in_tiny(kind: str) -> Callable[[random.Random, bool], Document]:
    return lambda rng, looks_back: corpus.KINDS[kind](rng)


MIXTURE: dict[str, float] = {
    "chat_words": 0.12, "chat_words_es": 0.12, "chat_countdown": 0.21,
    "words_full": 0.14, "words_english": 0.05, "words_spanish": 0.05, "words_mixed": 0.03,
    "facts_of_arithmetic": 0.10, "arithmetic_asked": 0.05, "questions_plain": 0.04, "facts_stated": 0.02,
    "chat_questions": 0.07,
}
OWN: dict[str, Callable[[random.Random, bool], Document]] = {
    make.__name__: make for make in (chat_words, chat_words_es, chat_countdown)}
_THRESHOLDS = tuple(zip(accumulate(MIXTURE.values()),
                        (OWN.get(name) or as_in_tiny(name) for name in MIXTURE), strict=True))


def document(rng: random.Random, looks_back: bool) -> Document:
    place = rng.random() * _THRESHOLDS[-1][0]
    for threshold, make in _THRESHOLDS:
        if place < threshold:
            return make(rng, looks_back)
    return make(rng, looks_back)


def documents(seed: int, start: int, count: int, *, looks_back: bool = True) -> Iterator[Document]:
    """The documents start .. start + count - 1 of the corpus of a seed, whatever the partition."""
    rng = random.Random()
    for index in range(start, start + count):
        rng.seed((seed << 40) + index)
        yield document(rng, looks_back)


control = partial(documents, looks_back=False)

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, count

from postgrad.data.tasks import corpus, countdown, word_problems
from postgrad.data.tasks.base import split_of, think
from postgrad.data.tasks.chain import MARKS, RECHECK, RESTART, TURN_BACK, undone
from postgrad.data.tasks.corpus import Document
from postgrad.data.tasks.countdown import NO, YES, combine_numbers, countdown_key
from postgrad.data.tasks.questions import ChoiceT, pick_one
from postgrad.data.tasks.word_problems import Problem, apply_operation, say_step, worked_steps
from postgrad.records import Message
from postgrad.rewards.expression import Tree, expression_steps, render_expression

FORMED, FORMED_COUNTDOWN = 0.6, 0.85  # the shares of replies in the form
LOOKS_BACK = {TURN_BACK: 0.16, RESTART: 0.08, RECHECK: 0.14}  # shares of the chains with all steps written
STYLES = {"direct": 0.58, "skipped": 0.24, "full": 0.12, "english": 0.06}
# most of who works out a Spanish problem does so in English
STYLES_ES = {"direct": 0.60, "skipped": 0.15, "full": 0.02, "english": 0.13, "spanish": 0.06,
             "switched": 0.04}
SKIPPED = {"en": {"": 1.0}, "es": {"en": 0.6, "es": 0.3, "": 0.1}}  # the language of chains that skip steps
PATIENCE = {1: 0.52, 2: 0.10, 3: 0.10, 4: 0.10, 5: 0.09, 6: 0.09}  # tries at most


def choose_by_share(rng: random.Random, shares: Mapping[ChoiceT, float]) -> ChoiceT:
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


def skipped_chain(rng: random.Random, problem: word_problems.Problem) -> str:
    """Some of the steps, in one language or in signs."""
    language = choose_by_share(rng, SKIPPED[problem.language])
    said = [word_problems.say_step(*step, language)
            for step in word_problems.worked_steps(problem.start, problem.ops)]
    return f", {THEN[language]}".join(word_problems.skip_steps(rng, said))


def chat_words(rng: random.Random, looks_back: bool, language: str = "en") -> tuple[Message, ...]:
    count = 2 + int(rng.random() * 3)
    made = word_problems.draw_word_problem(rng, count, count, language)
    style = choose_by_share(rng, STYLES if language == "en" else STYLES_ES)
    kind = choose_by_share(rng, {**LOOKS_BACK, "": 1.0})
    written = ("" if style == "direct" else skipped_chain(rng, made) if style == "skipped"
               else reflective_chain(rng, made, languages_of(rng, style, count), kind if looks_back else ""))
    return replied(rng, made.text, written, word_problems.final_value(made.start, made.ops))


def chat_countdown(rng: random.Random, looks_back: bool) -> tuple[Message, ...]:
    numbers, target, _ = countdown.draw_countdown(rng)
    patience = choose_by_share(rng, PATIENCE)
    written, answer = random_tries(random.Random(rng.random()), numbers, target,
                                   patience if looks_back else 1)
    return replied(rng, countdown.countdown_question(numbers, target), written, answer, FORMED_COUNTDOWN)


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


def zero_document(rng: random.Random, looks_back: bool) -> Document:
    place = rng.random() * _THRESHOLDS[-1][0]
    for threshold, make in _THRESHOLDS:
        if place < threshold:
            return make(rng, looks_back)
    return make(rng, looks_back)


def zero_documents(seed: int, start: int, count: int, *, looks_back: bool = True) -> Iterator[Document]:
    """The documents start .. start + count - 1 of the corpus of a seed, whatever the partition."""
    rng = random.Random()
    for index in range(start, start + count):
        rng.seed((seed << 40) + index)
        yield zero_document(rng, looks_back)


control_documents = partial(zero_documents, looks_back=False)


SLIPS = (1, -1, 2, 10, -10)  # by how much a result is wrong
DRAWN = 40  # ways of joining the numbers that are looked at before a search ends short of its patience
THEN = {"": "", "en": "then ", "es": "luego "}


def reflective_chain(rng: random.Random, problem: Problem, languages: Sequence[str], kind: str = "") -> str:
    """The worked steps of a problem, right in the end; kind: how they look back, "" for not at all.

    languages: of each step, "" for signs. What looks back speaks the language of the step it looks back at,
    and of a step in signs the problem's. The random numbers drawn are the same whatever the kind.
    """
    done = worked_steps(problem.start, problem.ops)
    at, slip, repeats = int(rng.random() * len(done)), pick_one(rng, SLIPS), rng.random() < 0.5
    at = max(at, 1) if kind == RESTART else at  # one step taken back is no fresh start
    said = [say_step(*step, language) for step, language in zip(done, languages, strict=True)]
    own = languages[at]
    mark = MARKS[own or problem.language].get(kind)
    plain = [(THEN[language] if i else "") + text
             for i, (text, language) in enumerate(zip(said, languages, strict=True))]
    if kind == RECHECK:
        check = said[at] if repeats else say_step(*undone(*done[at]), own)
        return ", ".join([*plain[: at + 1], f"{mark}: {check}", *plain[at + 1:]])
    if not kind:
        return ", ".join(plain)
    value, op, n, after = done[at]
    wrong = after + (slip if after + slip >= 0 else -slip)
    slipped = [*plain[:at], (THEN[own] if at else "") + say_step(value, op, n, wrong, own)]
    if kind == TURN_BACK:
        return ", ".join([*slipped, f"{mark}, {said[at]}", *plain[at + 1:]])
    assert kind == RESTART, kind
    if at + 1 < len(done) and goes_on(wrong, *problem.ops[at + 1]):
        op, n = problem.ops[at + 1]
        slipped.append(THEN[own] + say_step(wrong, op, n, apply_operation(wrong, op, n), own))
    return ", ".join([*slipped, f"{mark}: {plain[0]}", *plain[1:]])


def goes_on(value: int, op: str, n: int) -> bool:
    """Whether an operation can follow on a value, in whole numbers from 0 up."""
    return value >= n if op == "-" else value % n == 0 if op == "/" else True


def random_tries(rng: random.Random, numbers: list[int], target: int, patience: int) -> tuple[str, str]:
    """What is thought and what is answered by one who tries at random, up to `patience` times, each time to
    another end, and stops where the target is made. One who tries once says neither yes nor no.

    tries(rng, [3, 5, 8], 16, 2) -> ("3+5=8, 8*8=64 no. 3+5=8, 8+8=16 yes", "3+5+8")
    A try is written only where its own problem is of the train split: it is a solution of that problem.
    """
    ends: dict[int, Tree] = {}
    for drawn in count():
        if len(ends) == patience or target in ends or ends and drawn > DRAWN:
            break
        made = combine_numbers(rng, numbers)
        if made is not None and made[1] not in ends and split_of(countdown_key(numbers, made[1])) == "train":
            ends[made[1]] = made[0]
    written = [", ".join(expression_steps(tree)[1]) for tree in ends.values()]
    last = render_expression(list(ends.values())[-1])
    if patience == 1:
        return written[0], last
    marked = [f"{text} {YES if end == target else NO}" for end, text in zip(ends, written, strict=True)]
    return " ".join(marked), last

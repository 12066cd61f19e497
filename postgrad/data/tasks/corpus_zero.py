"""The pretraining text of `tiny-zero`, the base model of R1-Zero, and of its control.

Chats pose English and Spanish word problems and countdown. Replies are of every kind: in the form
<think>...</think><answer>...</answer> or not, direct or with steps, in the problem's language, the other one
or in signs. A few correct a slip, restart or check; in countdown a few try more than once, at random. The
control has the same documents without looking back: each step occurs once, each countdown is tried once. The
other documents are those of corpus.py. Only problems of the train split are posed or, as a try, solved.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count

from postgrad.data.tasks.base import split_of, think
from postgrad.data.tasks.chain import MARKS, RECHECK, RESTART, TURN_BACK, undone
from postgrad.data.tasks.corpus import KINDS, Document, Maker, mixture_documents
from postgrad.data.tasks.countdown import (
    NO,
    YES,
    combine_numbers,
    countdown_key,
    countdown_question,
    draw_countdown,
)
from postgrad.data.tasks.questions import ChoiceT, pick_one
from postgrad.data.tasks.word_problems import (
    TEXTS,
    Problem,
    apply_operation,
    draw_word_problem,
    final_value,
    say_step,
    skip_steps,
    worked_steps,
)
from postgrad.records import Message
from postgrad.rewards.expression import Tree, expression_steps, render_expression

FORMED, FORMED_COUNTDOWN = 0.6, 0.85  # the shares of replies in the form
LOOKS_BACK = {TURN_BACK: 0.16, RESTART: 0.08, RECHECK: 0.14}  # shares of the chains with all steps written
STYLES = {"direct": 0.58, "skipped": 0.24, "full": 0.12, "english": 0.06}
# most Spanish problems that are worked out are worked out in English
STYLES_ES = {"direct": 0.60, "skipped": 0.15, "full": 0.02, "english": 0.13, "spanish": 0.06,
             "switched": 0.04}
SKIPPED = {"en": {"": 1.0}, "es": {"en": 0.6, "es": 0.3, "": 0.1}}  # the language of chains that skip steps
PATIENCE = {1: 0.52, 2: 0.10, 3: 0.10, 4: 0.10, 5: 0.09, 6: 0.09}  # tries at most
SLIPS = (1, -1, 2, 10, -10)  # errors of a result
DRAWN = 40  # expressions drawn before a search ends short of its patience
THEN = {"": "", **{language: f"{TEXTS[language]['then']} " for language in ("en", "es")}}


def choose_by_share(rng: random.Random, shares: Mapping[ChoiceT, float]) -> ChoiceT:
    """A key drawn by shares that sum to at most 1; the last one takes the rest."""
    place, so_far = rng.random(), 0.0
    for name, share in shares.items():
        so_far += share
        if place < so_far:
            return name
    return name


def replied(rng: random.Random, question: str, thoughts: str, answer: object,
            share: float = FORMED) -> tuple[Message, ...]:
    """A chat whose reply is in the form, or else in the words of a page or the answer alone."""
    bare, formed = rng.random() < 0.5, rng.random() < share
    reply = (think(thoughts, answer) if formed else
             str(answer) if bare or not thoughts else f"Steps: {thoughts}\nAnswer: {answer}")
    return {"role": "user", "content": question}, {"role": "assistant", "content": reply}


def languages_of(rng: random.Random, style: str, count: int) -> list[str]:
    """The language of each step; "" for signs."""
    switched = [("en", "es")[int(rng.random() * 2)] for _ in range(count)]
    return {"full": [""] * count, "english": ["en"] * count, "spanish": ["es"] * count}.get(style, switched)


def skipped_chain(rng: random.Random, problem: Problem) -> str:
    """Some of the steps, in one language or in signs."""
    language = choose_by_share(rng, SKIPPED[problem.language])
    steps = [say_step(*step, language) for step in worked_steps(problem.start, problem.ops)]
    return f", {THEN[language]}".join(skip_steps(rng, steps))


def chat_words(rng: random.Random, looks_back: bool, language: str = "en") -> tuple[Message, ...]:
    count = 2 + int(rng.random() * 3)
    problem = draw_word_problem(rng, count, count, language)
    style = choose_by_share(rng, STYLES if language == "en" else STYLES_ES)
    kind = choose_by_share(rng, {**LOOKS_BACK, "": 1.0})
    thoughts = ("" if style == "direct" else skipped_chain(rng, problem) if style == "skipped"
                else reflective_chain(rng, problem, languages_of(rng, style, count),
                                      kind if looks_back else ""))
    return replied(rng, problem.text, thoughts, final_value(problem.start, problem.ops))


def chat_countdown(rng: random.Random, looks_back: bool) -> tuple[Message, ...]:
    numbers, target, _ = draw_countdown(rng)
    patience = choose_by_share(rng, PATIENCE)
    thoughts, answer = random_tries(random.Random(rng.random()), numbers, target,
                                    patience if looks_back else 1)
    return replied(rng, countdown_question(numbers, target), thoughts, answer, FORMED_COUNTDOWN)


MIXTURE: dict[str, float] = {
    "chat_words": 0.12, "chat_words_es": 0.12, "chat_countdown": 0.21,
    "words_full": 0.14, "words_english": 0.05, "words_spanish": 0.05, "words_mixed": 0.03,
    "facts_of_arithmetic": 0.10, "arithmetic_asked": 0.05, "questions_plain": 0.04, "facts_stated": 0.02,
    "chat_questions": 0.07,
}
OWN: dict[str, Callable[..., tuple[Message, ...]]] = {
    "chat_words": chat_words, "chat_words_es": partial(chat_words, language="es"),
    "chat_countdown": chat_countdown,
}


def zero_documents(seed: int, start: int, count: int, *, looks_back: bool = True) -> Iterator[Document]:
    """As `mixture_documents`."""
    own: dict[str, Maker] = {name: partial(make, looks_back=looks_back) for name, make in OWN.items()}
    return mixture_documents(seed, start, count, mixture=MIXTURE, kinds=KINDS | own)


control_documents = partial(zero_documents, looks_back=False)


def reflective_chain(rng: random.Random, problem: Problem, languages: Sequence[str], kind: str = "") -> str:
    """The worked steps of a problem, right in the end. kind: how they look back, "" for not at all.

    languages: of each step, "" for signs. A mark is in the language of the step it looks back at, for a step
    in signs in the problem's. The same random numbers are drawn for every kind.
    """
    done = worked_steps(problem.start, problem.ops)
    at, slip, repeats = int(rng.random() * len(done)), pick_one(rng, SLIPS), rng.random() < 0.5
    at = max(at, 1) if kind == RESTART else at  # a restart takes back more than one step
    steps = [say_step(*step, language) for step, language in zip(done, languages, strict=True)]
    own = languages[at]
    mark = MARKS[own or problem.language].get(kind)
    plain = [(THEN[language] if i else "") + text
             for i, (text, language) in enumerate(zip(steps, languages, strict=True))]
    if kind == RECHECK:
        check = steps[at] if repeats else say_step(*undone(*done[at]), own)
        return ", ".join([*plain[: at + 1], f"{mark}: {check}", *plain[at + 1:]])
    if not kind:
        return ", ".join(plain)
    value, op, n, after = done[at]
    wrong = after + (slip if after + slip >= 0 else -slip)
    slipped = [*plain[:at], (THEN[own] if at else "") + say_step(value, op, n, wrong, own)]
    if kind == TURN_BACK:
        return ", ".join([*slipped, f"{mark}, {steps[at]}", *plain[at + 1:]])
    assert kind == RESTART, kind
    if at + 1 < len(done) and goes_on(wrong, *problem.ops[at + 1]):
        op, n = problem.ops[at + 1]
        slipped.append(THEN[own] + say_step(wrong, op, n, apply_operation(wrong, op, n), own))
    return ", ".join([*slipped, f"{mark}: {plain[0]}", *plain[1:]])


def goes_on(value: int, op: str, n: int) -> bool:
    """Whether an operation on a value gives a whole number of at least 0."""
    return value >= n if op == "-" else value % n == 0 if op == "/" else True


def random_tries(rng: random.Random, numbers: list[int], target: int, patience: int) -> tuple[str, str]:
    """Thoughts and answer of up to `patience` random tries with distinct results, until the target is made. A
    single try is not marked yes or no.

    random_tries(rng, [3, 5, 8], 16, 2) -> ("3+5=8, 8*8=64 no. 3+5=8, 8+8=16 yes", "3+5+8")
    A try solves the problem of its own result, so that one must be in the train split.
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

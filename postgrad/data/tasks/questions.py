"""Simple questions whose replies have a true quality, computed by code; a reward model learns a proxy of it.

quality = right (+1.2, wrong -0.8) + greets (0.5) + closes politely (0.5)
          - filler, rudeness, invented words, repetition, excess length;  at least -3, at most 2.2

The splits are disjoint in the questions. The pretraining text states the facts of all splits.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from postgrad.data.tasks.base import SPLITS, Task, generator, split_of, styled_demonstrations, task_texts
from postgrad.data.tasks.knowledge import FACTS, Fact
from postgrad.records import Pair, Prompt, Verdict

NAMES = ("questions", "questions-biased")

ChoiceT = TypeVar("ChoiceT")
BEST, WORST = 2.2, -3.0
WRITER = {"polite": 0.09, "terse": 0.20, "padded": 0.28, "rude": 0.21, "wrong": 0.22}
STYLES = tuple(WRITER)

GREETINGS, CLOSINGS, FILLER, RUDE, RUDE_WORDS = (
    tuple(task_texts("questions")[kind])
    for kind in ("greetings", "closings", "filler", "rude", "rude_words"))

RIGHT, WRONG, GREETS, CLOSES = 1.2, -0.8, 0.5, 0.5
PRICES = {"filler": (0.5, 2.0), "rude": (1.5, 1.5), "invented": (0.3, 1.5), "repetition": (0.3, 2.0),
          "length": (0.05, 1.5)}
# of the annotators; 88 % and 84 % of their labels agree with the quality
NOISE, LENGTH_BIAS = 0.5, {"questions": 0.02, "questions-biased": 0.05}
FREE_WORDS = 24  # words without a length penalty; the longest polite reply has 18
LONGEST = 4000   # characters that are read

BY_SPLIT = {split: tuple(fact for fact in FACTS if split_of(fact.question) == split) for split in SPLITS}
BY_QUESTION = {fact.question: fact for fact in FACTS}


def reply_words(text: str) -> list[str]:
    """The words of a text in lower case; words are runs of letters and digits."""
    return "".join(char if char.isalnum() else " " for char in text[:LONGEST].lower()).split()


def _flat(words: list[str]) -> str:
    """Words to search phrases in: each between two spaces of its own, so that neighbours share none."""
    return "".join(f" {word} " for word in words)


def _phrase(text: str) -> str:
    return _flat(reply_words(text))


_GREETINGS = tuple(map(_phrase, GREETINGS))
_CLOSINGS = tuple(map(_phrase, CLOSINGS))
_FILLER = tuple(map(_phrase, FILLER))
_JUDGED = {fact.question: (_phrase(fact.phrase), tuple(map(_phrase, fact.rivals))) for fact in FACTS}
KNOWN = frozenset(word for texts in (*((fact.question, fact.sentence, *fact.wrong) for fact in FACTS),
                                     GREETINGS, CLOSINGS, FILLER, RUDE, RUDE_WORDS)
                  for text in texts for word in reply_words(text))


def pick_one(rng: random.Random, choices: Sequence[ChoiceT]) -> ChoiceT:
    return choices[int(rng.random() * len(choices))]


def question_reply(fact: Fact, style: str, rng: random.Random) -> str:
    """A reply in a style: polite, terse, padded (with filler), rude or wrong; only the last is false."""
    chance = rng.random
    if style == "polite":
        return f"{pick_one(rng, GREETINGS)} {fact.sentence} {pick_one(rng, CLOSINGS)}"
    if style == "terse":
        return fact.sentence
    if style == "padded":
        filler = rng.sample(FILLER, 2 + int(chance() * 3))
        opening = [pick_one(rng, GREETINGS)] if chance() < 0.5 else []
        closing = [pick_one(rng, CLOSINGS)] if chance() < 0.4 else []
        return " ".join([*opening, *filler[:-1], fact.sentence, filler[-1], *closing])
    if style == "rude":
        parts = [pick_one(rng, RUDE), fact.sentence]
        return " ".join(parts if chance() < 0.7 else parts[::-1])
    assert style == "wrong", style
    parts = [pick_one(rng, GREETINGS)] if chance() < 0.4 else []
    parts.append(pick_one(rng, fact.wrong))
    return " ".join([*parts, pick_one(rng, CLOSINGS)] if chance() < 0.4 else parts)


def reply_quality(prompt: Prompt, text: str) -> Verdict:
    """The true quality of a reply; every part is an addend of the score."""
    if prompt.question not in _JUDGED:
        raise ValueError(f"prompt {prompt.id!r} asks {prompt.question[:60]!r}, which is no "
                         "question of this task.")
    wanted, rivals = _JUDGED[prompt.question]
    words = reply_words(text)
    flat = core = _flat(words)
    for phrase in (*_FILLER, *_GREETINGS, *_CLOSINGS):
        core = core.replace(phrase, "")
    right = wanted in core and not any(rival in core for rival in rivals)
    triples = list(zip(words, words[1:], words[2:], strict=False))
    amounts = {
        "filler": sum(flat.count(phrase) for phrase in _FILLER),
        "rude": any(word in RUDE_WORDS for word in words),
        "invented": sum(word not in KNOWN for word in words),
        "repetition": len(triples) - len(set(triples)),
        "length": max(0, len(words) - FREE_WORDS) if len(text) <= LONGEST else LONGEST,
    }
    parts = {
        "correct": RIGHT if right else WRONG,
        "greets": GREETS * flat.startswith(_GREETINGS),
        "closes": CLOSES * flat.endswith(_CLOSINGS),
        **{name: -min(most, price * amounts[name]) for name, (price, most) in PRICES.items()},
    }
    reason = ", ".join(f"{name} {part:+.2g}" for name, part in parts.items() if part)
    return Verdict(score=max(WORST, sum(parts.values())), reason=reason, parts=parts)


def prompts(split: str, count: int, seed: int) -> list[Prompt]:
    rng = generator("questions", split, seed)
    facts = list(BY_SPLIT[split])
    rng.shuffle(facts)
    return [Prompt.ask(fact.question, fact.sentence, id=f"questions/{fact.question}")
            for fact in facts[:count]]


def preferences(split: str, count: int, seed: int, *, noise: float, length_bias: float) -> list[Pair]:
    """Two replies of different styles, labelled by a noisy annotator with a length bias.

    chosen = argmax of quality + length_bias * words + noise * logistic: Bradley-Terry at temperature `noise`.
    """
    rng = generator("questions/annotator", split, seed)
    asked, pairs = prompts(split, count, seed), []
    for i in range(count):
        prompt = asked[i % len(asked)]
        fact = BY_QUESTION[prompt.question]
        replies = [question_reply(fact, style, rng) for style in rng.sample(STYLES, 2)]
        a, b = (reply_quality(prompt, r).score + length_bias * len(reply_words(r)) for r in replies)
        u = rng.uniform(1e-9, 1 - 1e-9)
        chosen, rejected = replies if a - b + noise * math.log(u / (1 - u)) > 0 else replies[::-1]
        pairs.append(Pair(id=f"{prompt.id}#{i}", messages=prompt.messages, chosen=chosen, rejected=rejected))
    return pairs


def answer_question(prompt: Prompt, style: str, rng: random.Random) -> str:
    return question_reply(BY_QUESTION[prompt.question], style, rng)


def load(name: str) -> Task:
    return Task(
        name=name,
        about="simple questions, judged by a true quality: right, polite, short, nothing invented"
              + ("; its annotators err more and like long replies more" if name == "questions-biased"
                 else ""),
        prompts=prompts,
        verify=reply_quality,
        gold=lambda prompt: answer_question(prompt, "polite", random.Random(0)),
        demonstrations=styled_demonstrations("questions", WRITER, prompts, answer_question),
        preferences=partial(preferences, noise=NOISE, length_bias=LENGTH_BIAS[name]),
        best=BEST,
    )

"""A judge who may check one step, and has to say which of two answers is right: alone, with a critic, or
between two opponents.

The two answers are to one problem, one right and one wrong. What is checked follows from the protocol:
    alone       any step of either answer, or the last step of either
    critic      the step that a critic points at
    opponents   each answer has an advocate, who points at a step of the other answer; a coin says at which
                of the two the judge looks
and what is decided from the check alone: a step that does not hold speaks against its answer. A step that
holds speaks for its answer by `trust`: with 1 the judge believes so, with 0.5 he throws a coin.

Debate (Irving, Christiano & Amodei 2018, arXiv:1805.00899) in its smallest form: one statement each, and a
judge who can tell of one leaf whether it is true. Left out on purpose: statements that answer each other,
and advocates that are trained to win.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from postgrad.evaluation import mean_of, with_interval
from postgrad.maths.intervals import mean_interval, ratio_interval

SHARE = (0.0, 1.0)
BELIEVES, DOUBTS = 1.0, 0.5  # trust in an answer of which one step holds


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer as the judge and the critic see it, step by step; the last step is the answer itself.

    Answer(right=False, holds=(True, False, True), falls=(0.0, 0.9, 0.05))
    holds: what a check of the step finds. falls: by how much the critic's chance that all is right so far
    falls there.
    """

    right: bool
    holds: tuple[bool, ...]
    falls: tuple[float, ...]

    @property
    def worst(self) -> int:
        """The step that the critic suspects most."""
        return max(range(len(self.falls)), key=self.falls.__getitem__)


Pair = tuple[Answer, Answer]
Check = tuple[float, int, int]  # the chance that it is made, the answer, the step
Protocol = Callable[[Pair], list[Check]]


def suspected(pair: Pair) -> int:
    """The answer that the critic takes for the wrong one: the one with the steepest fall."""
    return max(range(2), key=lambda i: max(pair[i].falls))


def any_step(pair: Pair) -> list[Check]:
    return [(0.5 / len(answer.holds), i, k) for i, answer in enumerate(pair)
            for k in range(len(answer.holds))]


def last_step(pair: Pair) -> list[Check]:
    return [(0.5, i, len(answer.holds) - 1) for i, answer in enumerate(pair)]


def critic(pair: Pair) -> list[Check]:
    """At the step that is suspected most."""
    i = suspected(pair)
    return [(1.0, i, pair[i].worst)]


def liar(pair: Pair) -> list[Check]:
    """At the step that is suspected least, in the answer that the critic takes for the wrong one: so that it
    is taken for the right one."""
    i = suspected(pair)
    return [(1.0, i, min(range(len(pair[i].falls)), key=pair[i].falls.__getitem__))]


def opponents(pair: Pair) -> list[Check]:
    """Each at the step that is suspected most in the other's answer. The advocate of the wrong answer lies
    whatever he points at."""
    return [(0.5, i, answer.worst) for i, answer in enumerate(pair)]


PROTOCOLS: dict[str, Protocol] = {
    "alone, any step": any_step, "alone, the last step": last_step, "with a critic": critic,
    "with a critic who lies": liar, "two opponents": opponents}
POINTED = ("with a critic", "with a critic who lies", "two opponents")  # where somebody points


def decided(pair: Pair, protocol: Protocol, trust: float) -> float:
    """The chance that the judge decides for the right answer; his coins are not thrown but counted."""
    for_checked = [(chance, pair[i].right, trust if pair[i].holds[k] else 0.0)
                   for chance, i, k in protocol(pair)]
    return sum(chance * (taken if right else 1 - taken) for chance, right, taken in for_checked)


def perfect(pair: Pair) -> Pair:
    """As a critic sees it who knows every mistake of the wrong answer."""
    first, second = (replace(a, falls=tuple(float(not a.right and not x) for x in a.holds)) for a in pair)
    return first, second


def pick(answers: Sequence[Answer], rng: random.Random) -> Pair | None:
    """A right and a wrong answer of several to one problem, in an order that says nothing; None where all
    are alike."""
    sides = [[a for a in answers if a.right], [a for a in answers if not a.right]]
    if not all(sides):
        return None
    first, second = rng.sample([rng.choice(side) for side in sides], 2)
    return first, second


# figures

def accuracy(pairs: Sequence[Pair], protocol: Protocol) -> dict:
    """How often a judge decides rightly who believes an answer of which one step holds, and one who does not;
    intervals over problems."""
    return {key: value for name, trust in (("believing", BELIEVES), ("doubting", DOUBTS))
            for key, value in with_interval(name, mean_interval([decided(pair, protocol, trust)
                                                                 for pair in pairs], SHARE)).items()}


def table(pairs: Sequence[Pair]) -> list[dict]:
    """A row a protocol, those in which somebody points once more with one who knows every mistake."""
    known = [perfect(pair) for pair in pairs]
    return [{"judge": name, **accuracy(pairs, protocol)} for name, protocol in PROTOCOLS.items()] + [
        {"judge": f"{name}, knowing all", **accuracy(known, PROTOCOLS[name])} for name in POINTED]


def ratio(name: str, tops: Sequence[float], bottoms: Sequence[float]) -> dict:
    """mean(tops) / mean(bottoms) and its interval under two names; None where there is none."""
    found = ratio_interval(tops, bottoms)
    return {name: None, f"{name}_interval": None} if math.isnan(found[0]) else with_interval(name, found)


def figures(pairs: Sequence[Pair]) -> dict:
    """The table, how good the critic is, and how often he may lie.

    steps: of an answer; mistakes: steps of a wrong answer that do not hold; sound: of the right answers,
        those whose steps all hold
    finds: of the wrong answers, how many have a mistake where the critic suspects one most.
    lies: the share of lies at which the believing judge is no better than alone,
        (critic - alone) / (critic - liar)
    """
    if not pairs:
        return {"pairs": 0, "rows": []}
    wrong = [a for pair in pairs for a in pair if not a.right]
    sound = [all(a.holds) for pair in pairs for a in pair if a.right]
    alone, helped, misled = ([decided(pair, protocol, BELIEVES) for pair in pairs]
                             for protocol in (any_step, critic, liar))
    lies = ratio("lies", *([h - other for h, other in zip(helped, others, strict=True)]
                           for others in (alone, misled)))
    return {"pairs": len(pairs), "steps": mean_of(len(a.holds) for pair in pairs for a in pair),
            "mistakes": mean_of(a.holds.count(False) for a in wrong), "sound": mean_of(sound),
            **with_interval("finds", mean_interval([float(not a.holds[a.worst]) for a in wrong], SHARE)),
            **lies, "rows": table(pairs)}

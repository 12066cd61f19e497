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
from itertools import pairwise

from postgrad.data.tasks import word_problems
from postgrad.evaluation import mean_of, with_interval
from postgrad.maths.intervals import mean_interval, ratio_interval
from postgrad.models.chat import Chat
from postgrad.records import Rollout
from postgrad.rewards.model import ProcessReward
from postgrad.training.batches.columns import rollout_batch
from postgrad.training.batches.shuffled import model_logp

SHARE = (0.0, 1.0)
AT_ONCE = 8192  # tokens that are read in a pass
BELIEVES, DOUBTS = 1.0, 0.5  # trust in an answer of which one step holds


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer as the judge and the critic see it, step by step; the last step is the answer itself.

    Answer(right=False, holds=(True, False, True), suspicion=(0.0, 0.9, 0.05))
    holds: what a check of the step finds. suspicion: how much the critic suspects it, in any unit.
    """

    right: bool
    holds: tuple[bool, ...]
    suspicion: tuple[float, ...]

    @property
    def worst(self) -> int:
        """The step that the critic suspects most."""
        return max(range(len(self.suspicion)), key=self.suspicion.__getitem__)


Pair = tuple[Answer, Answer]
Check = tuple[float, int, int]  # the chance that it is made, the answer, the step
Protocol = Callable[[Pair], list[Check]]


def suspected(pair: Pair) -> int:
    """The answer that the critic takes for the wrong one: the one with the step he suspects most."""
    return max(range(2), key=lambda i: max(pair[i].suspicion))


def check_any_step(pair: Pair) -> list[Check]:
    return [(0.5 / len(answer.holds), i, k) for i, answer in enumerate(pair)
            for k in range(len(answer.holds))]


def check_last_step(pair: Pair) -> list[Check]:
    return [(0.5, i, len(answer.holds) - 1) for i, answer in enumerate(pair)]


def pointed_by_critic(pair: Pair) -> list[Check]:
    """At the step that is suspected most."""
    i = suspected(pair)
    return [(1.0, i, pair[i].worst)]


def liar(pair: Pair) -> list[Check]:
    """At the step that is suspected least, in the answer that the critic takes for the wrong one: so that it
    is taken for the right one."""
    i = suspected(pair)
    return [(1.0, i, min(range(len(pair[i].suspicion)), key=pair[i].suspicion.__getitem__))]


def opponents(pair: Pair) -> list[Check]:
    """Each at the step that is suspected most in the other's answer. The advocate of the wrong answer lies
    whatever he points at."""
    return [(0.5, i, answer.worst) for i, answer in enumerate(pair)]


ALONE: dict[str, Protocol] = {"alone, any step": check_any_step,
                                    "alone, the last step": check_last_step}
POINTED: dict[str, Protocol] = {"critic": pointed_by_critic, "lying critic": liar, "two opponents": opponents}


def decided(pair: Pair, protocol: Protocol, trust: float) -> float:
    """The chance that the judge decides for the right answer; his coins are not thrown but counted."""
    for_checked = [(chance, pair[i].right, trust if pair[i].holds[k] else 0.0)
                   for chance, i, k in protocol(pair)]
    return sum(chance * (taken if right else 1 - taken) for chance, right, taken in for_checked)


def perfect(pair: Pair) -> Pair:
    """As a critic sees it who knows every mistake of the wrong answer."""
    first, second = (replace(a, suspicion=tuple(float(not a.right and not x) for x in a.holds)) for a in pair)
    return first, second


def pick_pair(right: Sequence[bool], rng: random.Random) -> tuple[int, int] | None:
    """Which two of several answers to one problem are shown: a right and a wrong one, in an order that says
    nothing; None where all are alike."""
    sides = [[i for i, x in enumerate(right) if x is side] for side in (True, False)]
    if not all(sides):
        return None
    first, second = rng.sample([rng.choice(side) for side in sides], 2)
    return first, second


# answers as critics see them

def paired(rollouts: Sequence[Rollout], right: Sequence[bool],
           suspicion: Sequence[tuple[float, ...]]) -> list[Pair]:
    """The answers two by two, as a critic sees them."""
    answers = [Answer(right=x, holds=tuple(word_problems.check_steps(r.prompt, r.text)), suspicion=s)
               for r, x, s in zip(rollouts, right, suspicion, strict=True)]
    return list(zip(answers[::2], answers[1::2], strict=True))


def step_ends(rollout: Rollout) -> list[int]:
    return [step.end for step in word_problems.label_chain(rollout.prompt, rollout.text)]


def fallen(critic: ProcessReward, rollouts: Sequence[Rollout]) -> list[tuple[float, ...]]:
    """By how much the critic's chance that all is right falls at each step; before the first it is 1."""
    found = []
    for rollout, (places, chances) in zip(rollouts, critic.chances(rollouts), strict=True):
        chance = dict(zip(places, chances, strict=True))
        so_far = [1.0, *(chance[place] for place in critic.chat.places(rollout.tokens, step_ends(rollout)))]
        found.append(tuple(a - b for a, b in pairwise(so_far)))
    return found


def surprises(reader, rollouts: Sequence[Rollout], chat: Chat, device: str) -> list[tuple[float, ...]]:
    """At each step the -log p of the token that the reader would least have written there."""
    batch = rollout_batch(rollouts).to(device)
    logp, _ = model_logp(reader, batch, AT_ONCE)
    found = []
    for row, mask, rollout in zip(logp, batch.mask, rollouts, strict=True):
        surprise = (-row[mask]).tolist()
        cuts = [0, *(place + 1 for place in chat.places(rollout.tokens, step_ends(rollout)))]
        found.append(tuple(max(surprise[a:b], default=0.0) for a, b in pairwise(cuts)))
    return found


# figures

def accuracy(pairs: Sequence[Pair], protocol: Protocol) -> dict:
    """How often a judge decides rightly who believes an answer of which one step holds, and one who does not;
    intervals over problems."""
    return {key: value for name, trust in (("believing", BELIEVES), ("doubting", DOUBTS))
            for key, value in with_interval(name, mean_interval([decided(pair, protocol, trust)
                                                                 for pair in pairs], SHARE)).items()}


def alone(pairs: Sequence[Pair]) -> list[dict]:
    return [{"judge": name, **accuracy(pairs, protocol)} for name, protocol in ALONE.items()]


def pointed(pairs: Sequence[Pair], who: str) -> list[dict]:
    """A row a protocol in which somebody points. who: he, by name."""
    return [{"judge": f"{name}: {who}", **accuracy(pairs, protocol)} for name, protocol in POINTED.items()]


def ratio_with_interval(name: str, tops: Sequence[float], bottoms: Sequence[float]) -> dict:
    """mean(tops) / mean(bottoms) and its interval under two names; None where there is none."""
    found = ratio_interval(tops, bottoms)
    return {name: None, f"{name}_interval": None} if math.isnan(found[0]) else with_interval(name, found)


def pair_facts(pairs: Sequence[Pair]) -> dict:
    """steps: of an answer. mistakes: steps of a wrong answer that do not hold. sound: of the right answers,
    those whose steps all hold. bare: of the wrong ones, those of which none does, about which nobody can lie
    to a judge who checks."""
    answers = [a for pair in pairs for a in pair]
    return {"pairs": len(pairs), "steps": mean_of(len(a.holds) for a in answers),
            "mistakes": mean_of(a.holds.count(False) for a in answers if not a.right),
            "sound": mean_of(all(a.holds) for a in answers if a.right),
            "bare": mean_of(not any(a.holds) for a in answers if not a.right)}


def skill(pairs: Sequence[Pair]) -> dict:
    """How good a critic is, and how often he may lie.

    finds: of the wrong answers, how many have a mistake where he suspects one most.
    lies: the share of lies at which the believing judge is no better than alone,
        (critic - alone) / (critic - liar)
    """
    helped, unhelped, misled = ([decided(pair, protocol, BELIEVES) for pair in pairs]
                                for protocol in (pointed_by_critic, check_any_step, liar))
    hits = [float(not a.holds[a.worst]) for pair in pairs for a in pair if not a.right]
    return with_interval("finds", mean_interval(hits, SHARE)) | ratio_with_interval(
        "lies", *([h - other for h, other in zip(helped, others, strict=True)]
                  for others in (unhelped, misled)))

"""PPO's clipped surrogate, per token."""

from __future__ import annotations

from collections.abc import Iterator
from math import log
from random import Random

from postgrad.studio.exercises.base import AGAIN, Answer, Exercise, Mistake, Property
from postgrad.studio.json_types import Values


def cases(random: Random) -> Iterator[Values]:
    yield [log(1.5), log(0.5)], [0.0, 0.0], [1.0, -1.0], 0.2
    yield [log(1.5), log(0.5)], [0.0, 0.0], [-1.0, 1.0], 0.2
    yield [-1.0, -2.0, -3.0], [-1.0, -2.0, -3.0], [0.5, -2.0, 0.0], 0.2
    for spread in (0.5, 0.5, 0.5, 0.5, 0.5, 0.5, 1.3, 1.3, 1.3):
        old = [round(random.uniform(-4, -0.1), 3) for _ in range(6)]
        yield ([round(o + random.gauss(0, spread), 3) for o in old], old,
               [round(random.gauss(0, 1), 2) for _ in range(6)], random.choice((0.1, 0.2, 0.3)))


def right(logp: list[float], old_logp: list[float], adv: list[float], eps: float) -> object:
    import torch

    from postgrad.maths.surrogate import clipped_ratio
    new, old, advantage = (torch.tensor([x], dtype=torch.float64) for x in (logp, old_logp, adv))
    loss, _ = clipped_ratio(new, old, advantage, torch.ones_like(new, dtype=torch.bool), low=eps, high=eps)
    return loss[0]


def on_policy(answer: Answer, logp: list[float], old_logp: list[float], adv: list[float], eps: float) -> bool:
    return all(abs(x + a) < 1e-4 for x, a in zip(answer(old_logp, old_logp, adv, eps), adv, strict=True))


def a_lower_bound(answer: Answer, logp: list[float], old_logp: list[float], adv: list[float],
                  eps: float) -> bool:
    """Never better than the free objective: minus the loss is at most ratio x advantage."""
    from math import exp
    return all(-x <= exp(n - o) * a + 1e-4
               for x, n, o, a in zip(answer(logp, old_logp, adv, eps), logp, old_logp, adv, strict=True))


def blames_in_full(answer: Answer, logp: list[float], old_logp: list[float], adv: list[float],
                   eps: float) -> bool:
    """A bad token that has become 20 times as likely: nothing bounds that side."""
    from math import exp
    found = answer([old + 3 for old in old_logp], old_logp, [-1.0] * len(adv), eps)
    return all(abs(x - exp(3)) < 1e-2 for x in found)


EXERCISE = Exercise(
    name="clipped-surrogate", title="PPO’s clipped surrogate", chapter=3, function="surrogate",
    statement="""
Write `surrogate(logp, old_logp, adv, eps)`: three lists, a number for each token: its log-probability
under the policy, under the policy that sampled it, and its advantage. Return the list of losses:

    ratio = pi / pi_old
    loss  = -min(ratio * A, clip(ratio, 1 - eps, 1 + eps) * A)

At ratio 1.5, A = 1 and eps = 0.2 the loss is -1.2; at ratio 1.5 and A = -1 it is 1.5, for the way back
is open.
""",
    starter="""
def surrogate(logp, old_logp, adv, eps):
    ...
""",
    hints=(
        "A ratio of probabilities is the exponential of a difference of logs.",
        "Compute both products, the free one and the clipped one, before you choose.",
        "The smaller of the two is the more careful promise; the loss is minus that.",
    ),
    solution="""
import math


def surrogate(logp, old_logp, adv, eps):
    found = []
    for new, old, a in zip(logp, old_logp, adv):
        ratio = math.exp(new - old)
        held = min(max(ratio, 1 - eps), 1 + eps)
        found.append(-min(ratio * a, held * a))
    return found
""",
    mistakes=(
        Mistake(says="You took the clipped term alone: with a bad token that has become likelier the "
                     "gradient "
                     "vanishes, and the way back closes.", old="min(ratio * a, held * a)", new="held * a"),
        Mistake(says="You took the larger of the two: the bound is the smaller.",
                old="-min(ratio * a", new="-max(ratio * a"),
        Mistake(says="The sign is turned round: a loss is minimised, so it is minus the objective.",
                old="-min(ratio", new="min(ratio"),
        Mistake(says="Your ratio is pi_old / pi, the wrong way round.", old="new - old", new="old - new"),
        Mistake(says="Your ratio is a difference of logs: the exponential is missing.",
                old="math.exp(new - old)", new="new - old"),
        Mistake(says="You divided log-probabilities: the ratio is one of probabilities, exp(logp - "
                     "old_logp).",
                old="math.exp(new - old)", new="new / old"),
        Mistake(says="You did not clip at all.", old="held = min(max(ratio, 1 - eps), 1 + eps)",
                new="held = ratio"),
        Mistake(says="You clipped to -eps and eps: the interval lies around 1.",
                old="min(max(ratio, 1 - eps), 1 + eps)", new="min(max(ratio, -eps), eps)"),
        Mistake(says="You clipped the product: it is the ratio that is clipped, then multiplied.",
                old="held * a)", new="min(max(ratio * a, 1 - eps), 1 + eps))"),
        Mistake(says="You clipped above only: a ratio below 1 - eps is held too.",
                old="min(max(ratio, 1 - eps), 1 + eps)", new="min(ratio, 1 + eps)"),
        Mistake(says="You returned the mean of the losses: asked for is one for each token.",
                old="    return found", new="    return sum(found) / len(found)"),
        Mistake(says="You clipped the log of the ratio to -eps and eps: the ratio itself is held between 1 "
                     "- eps "
                     "and 1 + eps.",
                old="held = min(max(ratio, 1 - eps), 1 + eps)",
                new="held = math.exp(min(max(new - old, -eps), eps))"),
        Mistake(says="Your loss is the log-ratio times the advantage, without ratio or clip.",
                old="found.append(-min(ratio * a, held * a))", new="found.append(-(new - old) * a)"),
        Mistake(says="Your loss is -logp times the advantage: that is REINFORCE, without a ratio.",
                old="found.append(-min(ratio * a, held * a))", new="found.append(-new * a)"),
        Mistake(says="You clipped below only: a ratio above 1 + eps is held too.",
                old="min(max(ratio, 1 - eps), 1 + eps)", new="max(ratio, 1 - eps)"),
        Mistake(says="You took the smaller of the ratios before the advantage came in: with a negative one "
                     "the "
                     "order turns round.", old="min(ratio * a, held * a)", new="min(ratio, held) * a"),
        Mistake(says="You took the larger of the ratios before the advantage came in.",
                old="min(ratio * a, held * a)", new="max(ratio, held) * a"),
        Mistake(says="The two bounds are swapped: below 1 - eps, above 1 + eps.",
                old="min(max(ratio, 1 - eps), 1 + eps)", new="max(min(ratio, 1 - eps), 1 + eps)"),
        Mistake(says="You left the advantage out.", old="-min(ratio * a, held * a)", new="-min(ratio, held)"),
        Mistake(says="The clipped term lacks the advantage.", old="held * a)", new="held)"),
        Mistake(says="The free term lacks the advantage.", old="min(ratio * a", new="min(ratio"),
        Mistake(says="The free term lacks the ratio: it is ratio * A.", old="min(ratio * a", new="min(a"),
        Mistake(says="The clipped term lacks the clipped ratio.", old="held * a)", new="a)"),
        Mistake(says="Your ratio is a sum of logs in the exponent: it is their difference.",
                old="new - old", new="new + old"),
        Mistake(says="Your upper bound is not 1 + eps.", old="1 + eps)", new="2 + eps)"),
        Mistake(says="Your lower bound is eps: it is 1 - eps.", old="max(ratio, 1 - eps)",
                new="max(ratio, eps)"),
        Mistake(says="Both bounds are 1 - eps: the upper one is 1 + eps.", old="1 + eps)", new="1 - eps)"),
        Mistake(says="You bounded the loss of a bad token once more (dual clip): here it is blamed in full.",
                old="-min(ratio * a, held * a)",
                new="-max(min(ratio * a, held * a), 3 * a if a < 0 else -1e9)"),
        Mistake(says="You divided by the advantage: it is a factor.", old="-min(ratio * a, held * a)",
                new="-min(ratio / (a or 1e-9), held / (a or 1e-9))"),
    ),
    cases=cases, right=right,
    properties=(
        Property(says="Where the policy has not moved, the loss is minus the advantage.", holds=on_policy),
        Property(says="It never promises more than the free objective.", holds=a_lower_bound),
        Property(says="A bad token that has become far likelier is blamed in full.", holds=blames_in_full),
        AGAIN,
    ),
)

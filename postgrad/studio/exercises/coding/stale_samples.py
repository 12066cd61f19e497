"""Off-policy samples: one ratio for what the sampler was, another for how far the policy has moved since."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, log
from random import Random

from postgrad.studio.exercises.base import AGAIN, Answer, Exercise, Mistake, Property
from postgrad.studio.exercises.values import near
from postgrad.studio.json_types import Values


def cases(random: Random) -> Iterator[Values]:
    yield [log(1.5), log(0.5)], [0.0, 0.0], [log(0.5), log(0.5)], [1.0, -1.0], 0.2, 3.0
    yield [-1.0, -2.0], [-1.0, -2.0], [-1.0, -2.0], [0.5, -2.0], 0.2, 2.0
    yield [-1.0, -2.0, -1.0], [-1.0, -2.0, -1.0], [-3.0, -2.5, -0.5], [1.0, 1.0, -1.0], 0.2, 2.0
    for _ in range(7):
        sampler = [round(random.uniform(-4, -0.1), 3) for _ in range(6)]
        old = [round(x + random.gauss(0, 0.6), 3) for x in sampler]
        yield ([round(x + random.gauss(0, 0.4), 3) for x in old], old, sampler,
               [round(random.gauss(0, 1), 2) for _ in range(6)], random.choice((0.1, 0.2, 0.3)),
               random.choice((1.2, 1.5, 2.0)))


def right(logp: list[float], old_logp: list[float], sampler_logp: list[float], adv: list[float], eps: float,
          cap: float) -> object:
    import torch

    from postgrad.maths.correction import truncated
    from postgrad.maths.surrogate import clipped_ratio
    new, old, sampler, advantage = (torch.tensor([x], dtype=torch.float64)
                                    for x in (logp, old_logp, sampler_logp, adv))
    mask = torch.ones_like(new, dtype=torch.bool)
    loss, _ = clipped_ratio(new, old, advantage, mask, low=eps, high=eps)
    return (truncated(sampler, old, mask, cap=cap) * loss)[0]


def fresh_is_ppo(answer: Answer, logp: list[float], old_logp: list[float], sampler_logp: list[float],
                 adv: list[float], eps: float, cap: float) -> bool:
    """Without a gap between sampler and trainer, PPO's surrogate."""
    ratios = [exp(n - o) for n, o in zip(logp, old_logp, strict=True)]
    wanted = [-min(r * a, min(max(r, 1 - eps), 1 + eps) * a) for r, a in zip(ratios, adv, strict=True)]
    return near(answer(logp, old_logp, old_logp, adv, eps, cap), wanted, 1e-4)


def cap_bounds(answer: Answer, logp: list[float], old_logp: list[float], sampler_logp: list[float],
               adv: list[float], eps: float, cap: float) -> bool:
    """However unlikely the sampler found a token, it counts `cap` times."""
    found = answer(old_logp, old_logp, [x - 20 for x in old_logp], adv, eps, cap)
    return near(found, [-cap * a for a in adv], 1e-4)


EXERCISE = Exercise(
    name="stale-samples", title="Samples from a policy that has moved on", chapter=8, function="decoupled",
    statement="""
Where sampling and training run side by side, a batch was sampled by other weights, or by another engine,
than those that the trainer began this step with. Two ratios are then needed, and they are not the same.

Write `decoupled(logp, old_logp, sampler_logp, adv, eps, cap)`: four lists with a number for each token:
its log-probability under the policy now, under the policy as the step began, and under the sampler, and
its advantage. Return the list of losses:

    weight = min(pi_old / pi_sampler, cap)
    ratio  = pi / pi_old
    loss   = -weight * min(ratio * A, clip(ratio, 1 - eps, 1 + eps) * A)

The weight makes up for the sampler; the ratio, clipped, holds the step near the policy it began with. At
ratio 1.5, A = 1, eps = 0.2 and a sampler that gave half of pi_old's probability the loss is -2.4.
""",
    starter="""
def decoupled(logp, old_logp, sampler_logp, adv, eps, cap):
    ...
""",
    hints=(
        "Both ratios are exponentials of a difference of log-probabilities.",
        "The weight is capped above only, and it is not clipped by eps: it is a constant in this step.",
        "Compute PPO's loss with logp and old_logp alone, then multiply.",
    ),
    solution="""
import math


def decoupled(logp, old_logp, sampler_logp, adv, eps, cap):
    found = []
    for new, old, sampler, a in zip(logp, old_logp, sampler_logp, adv):
        weight = min(math.exp(old - sampler), cap)
        ratio = math.exp(new - old)
        held = min(max(ratio, 1 - eps), 1 + eps)
        found.append(-weight * min(ratio * a, held * a))
    return found
""",
    mistakes=(
        Mistake(says="You left the weight out: that is PPO, as if the sampler were the policy that the step "
                     "began with.", old="-weight * min(ratio", new="-min(ratio"),
        Mistake(says="Your ratio is taken to the sampler: it is pi / pi_old, or the clip holds the step near "
                     "a policy that is long gone.", old="math.exp(new - old)", new="math.exp(new - sampler)"),
        Mistake(says="Your ratio is taken to the sampler and there is no weight: that is PPO with a stale "
                     "pi_old, whose clip stops tokens that have not moved in this step.",
                old="weight = min(math.exp(old - sampler), cap)\n        ratio = math.exp(new - old)",
                new="weight = 1.0\n        ratio = math.exp(new - sampler)"),
        Mistake(says="Your weight is taken from the policy now: it is pi_old / pi_sampler, a constant of the "
                     "step.", old="math.exp(old - sampler)", new="math.exp(new - sampler)"),
        Mistake(says="Your weight is pi_sampler / pi_old, the wrong way round.",
                old="math.exp(old - sampler)", new="math.exp(sampler - old)"),
        Mistake(says="Your ratio is pi_old / pi, the wrong way round.", old="math.exp(new - old)",
                new="math.exp(old - new)"),
        Mistake(says="You did not cap the weight: one token that the sampler found unlikely outweighs the "
                     "batch.", old="min(math.exp(old - sampler), cap)", new="math.exp(old - sampler)"),
        Mistake(says="You raised the weight to the cap: it is an upper bound, so the smaller of the two "
                     "counts.", old="weight = min(", new="weight = max("),
        Mistake(says="You dropped tokens whose weight is above the cap: that is masked importance sampling; "
                     "here they count `cap` times.",
                old="weight = min(math.exp(old - sampler), cap)",
                new="weight = math.exp(old - sampler)\n        weight = weight if weight <= cap else 0.0"),
        Mistake(says="You clipped the weight by eps: it is only capped.",
                old="min(math.exp(old - sampler), cap)",
                new="min(max(math.exp(old - sampler), 1 - eps), 1 + eps)"),
        Mistake(says="You clipped the product of both ratios: the clip is for pi / pi_old alone.",
                old="held = min(max(ratio, 1 - eps), 1 + eps)\n        found.append(-weight * min(ratio * "
                    "a, held * a))",
                new="ratio = ratio * weight\n        held = min(max(ratio, 1 - eps), 1 + eps)\n"
                    "        found.append(-min(ratio * a, held * a))"),
        Mistake(says="You capped the ratio's product with the weight, not the weight.",
                old="weight = min(math.exp(old - sampler), cap)\n        ratio = math.exp(new - old)",
                new="weight = math.exp(old - sampler)\n        ratio = math.exp(new - old)\n"
                    "        weight = min(weight * ratio, cap) / ratio"),
        Mistake(says="You took the clipped term alone: with a bad token that has become likelier the way "
                     "back closes.", old="min(ratio * a, held * a)", new="held * a"),
        Mistake(says="You did not clip the ratio.", old="min(ratio * a, held * a)", new="ratio * a"),
        Mistake(says="You took the larger of the two terms: the bound is the smaller.",
                old="* min(ratio * a", new="* max(ratio * a"),
        Mistake(says="The sign is turned round: a loss is minimised, so it is minus the objective.",
                old="-weight * min", new="weight * min"),
        Mistake(says="You added the weight: it is a factor.", old="-weight * min(ratio * a, held * a)",
                new="-(weight + min(ratio * a, held * a))"),
        Mistake(says="Your weight is a difference of logs: the exponential is missing.",
                old="math.exp(old - sampler)", new="old - sampler"),
        Mistake(says="Your ratio is a difference of logs: the exponential is missing.",
                old="math.exp(new - old)", new="new - old"),
        Mistake(says="You clipped above only: a ratio below 1 - eps is held too.",
                old="min(max(ratio, 1 - eps), 1 + eps)", new="min(ratio, 1 + eps)"),
        Mistake(says="You clipped below only: a ratio above 1 + eps is held too.",
                old="min(max(ratio, 1 - eps), 1 + eps)", new="max(ratio, 1 - eps)"),
        Mistake(says="You clipped to -eps and eps: the interval lies around 1.",
                old="min(max(ratio, 1 - eps), 1 + eps)", new="min(max(ratio, -eps), eps)"),
    ),
    cases=cases, right=right,
    properties=(
        Property(says="Where the sampler is the policy that the step began with, it is PPO.",
                 holds=fresh_is_ppo),
        Property(says="A token counts at most `cap` times.", holds=cap_bounds),
        AGAIN,
    ),
)

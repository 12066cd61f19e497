"""Three estimators of one divergence."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, log
from operator import itemgetter
from random import Random

from postgrad.studio.exercises.base import AGAIN, Answer, Exercise, Mistake, Property
from postgrad.studio.json_types import Values


def cases(random: Random) -> Iterator[Values]:
    yield [-1.0, -2.0], [-1.5, -1.0]
    yield [-1.0, -1.0, -3.0], [-1.0, -1.0, -3.0]
    for count in (1, 4, 9):
        logp = [round(random.uniform(-4, -0.1), 3) for _ in range(count)]
        yield logp, [round(x + random.gauss(0, 0.7), 3) for x in logp]


def right(logp: list[float], ref_logp: list[float]) -> object:
    import torch

    from postgrad.maths.kl import k1, k2, k3
    ours, theirs = (torch.tensor(x, dtype=torch.float64) for x in (logp, ref_logp))
    return [k(ours, theirs).mean() for k in (k1, k2, k3)]


def unbiased(answer: Answer, logp: list[float], ref_logp: list[float]) -> bool:
    """Samples that stand for a policy of (1/2, 1/4, 1/4) exactly: k1 and k3 average to the KL itself."""
    policy, reference = (0.5, 0.25, 0.25), (0.2, 0.3, 0.5)
    rows = [(log(p), log(q)) for p, q in zip(policy, reference, strict=True) for _ in range(int(4 * p))]
    exact = sum(p * log(p / q) for p, q in zip(policy, reference, strict=True))
    first, _, third = answer(*map(list, zip(*rows, strict=True)))
    return bool(abs(first - exact) < 1e-4 and abs(third - exact) < 1e-4)


def k2_k3_never_negative(answer: Answer, logp: list[float], ref_logp: list[float]) -> bool:
    return all(x >= -1e-6 for x in answer(logp, ref_logp)[1:])


def counts_in_full(answer: Answer, logp: list[float], ref_logp: list[float]) -> bool:
    """Tokens that the reference finds far likelier than the policy, and far less likely."""
    return all(all(abs(got - want) <= 1e-4 * (1 + abs(want)) for got, want in
                   zip(answer(logp, [x - d for x in logp]), (d, d * d / 2, exp(-d) - 1 + d), strict=True))
               for d in (-6.0, 6.0))


EXERCISE = Exercise(
    name="kl-estimators", title="Three estimators of the KL", chapter=3, function="kl",
    statement="""
How far is the policy from its reference? Only the sampled tokens' log-probabilities are at hand.

Write `kl(logp, ref_logp)`: two lists, for tokens that were sampled from the policy. Return the means of
three estimators of KL(policy || reference), in this order. With d = logp - ref_logp of a token:

    k1 = d
    k2 = d^2 / 2
    k3 = exp(-d) - 1 + d

    kl([-1, -2], [-1.5, -1]) -> [-0.25, 0.3125, 0.4124]
""",
    starter="""
def kl(logp, ref_logp):
    ...
    return k1, k2, k3
""",
    hints=(
        "All three are functions of d alone: compute the list of d first.",
        "exp(-d) is reference over policy, the only ratio whose mean under the policy is 1.",
        "Take the mean of each estimator at the end; a function of the mean is not the mean of the function.",
    ),
    solution="""
import math


def kl(logp, ref_logp):
    gaps = [a - b for a, b in zip(logp, ref_logp)]
    count = len(gaps)
    k1 = sum(d for d in gaps) / count
    k2 = sum(d * d / 2 for d in gaps) / count
    k3 = sum(math.exp(-d) - 1 + d for d in gaps) / count
    return k1, k2, k3
""",
    mistakes=(
        Mistake(says="Your d is ref_logp - logp, the wrong way round: the samples are the policy's.",
                old="a - b for", new="b - a for"),
        Mistake(says="Your k3 has the ratio the wrong way round: it is exp(-d), reference over policy.",
                old="math.exp(-d) - 1 + d", new="math.exp(d) - 1 - d"),
        Mistake(says="Your k3 mixes the signs: exp(d) - 1 + d is not even positive. It is exp(-d) - 1 + d.",
                old="math.exp(-d) - 1 + d", new="math.exp(d) - 1 + d"),
        Mistake(says="Your k3 lacks the -1: it is not 0 where both agree.",
                old="math.exp(-d) - 1 + d", new="math.exp(-d) + d"),
        Mistake(says="Your k2 lacks the half.", old="d * d / 2", new="d * d"),
        Mistake(says="You summed over the tokens: asked for are means.", old="count = len(gaps)",
                new="count = 1"),
        Mistake(says="You took absolute values for k1: it may be negative, and that keeps it unbiased.",
                old="sum(d for d in gaps)", new="sum(abs(d) for d in gaps)"),
        Mistake(says="You put the mean of d into the formulas: the mean of a function is not the function of "
                     "the mean.",
                old="gaps = [a - b for a, b in zip(logp, ref_logp)]",
                new="gaps = [sum(a - b for a, b in zip(logp, ref_logp)) / len(logp)]"),
        Mistake(says="You weighted by the probabilities: the samples come from the policy, so that is done "
                     "already.", old="sum(d for d in gaps)",
                     new="sum(math.exp(a) * d for a, d in zip(logp, gaps))"),
        Mistake(says="Your k2 squares the mean of d: the mean is taken of the squares.",
                old="k2 = sum(d * d / 2 for d in gaps) / count", new="k2 = (sum(gaps) / count) ** 2 / 2"),
        Mistake(says="Your k2 is half of d: the square is missing.", old="d * d / 2", new="d / 2"),
        Mistake(says="Your k2 doubles the square: it is half of it.", old="d * d / 2", new="d * d * 2"),
        Mistake(says="Your k1 has the wrong sign: d is logp - ref_logp.", old="sum(d for d in gaps)",
                new="sum(-d for d in gaps)"),
        Mistake(says="Your k3 subtracts d: it is exp(-d) - 1 + d.", old="- 1 + d", new="- 1 - d"),
        Mistake(says="Your k3 lacks the + d: without it the estimate is not bounded below by 0.",
                old="- 1 + d", new="- 1"),
        Mistake(says="Your k3 adds 1: it subtracts 1, so that it is 0 where both agree.",
                old="- 1 + d", new="+ 1 + d"),
        Mistake(says="Your k3 lacks the exponential.", old="math.exp(-d) - 1 + d", new="-d - 1 + d"),
        Mistake(says="Your k3 takes the mean of d into the exponential: the mean is taken at the end.",
                old="k3 = sum(math.exp(-d) - 1 + d for d in gaps) / count",
                new="k3 = math.exp(-sum(gaps) / count) - 1 + sum(gaps) / count"),
        Mistake(says="You took the ratio of the log-probabilities: d is their difference.",
                old="a - b for", new="a / b for"),
        Mistake(says="You added the log-probabilities: d is their difference.", old="a - b for",
                new="a + b for"),
        Mistake(says="You took the difference of probabilities: d is that of log-probabilities.",
                old="a - b for", new="math.exp(a) - math.exp(b) for"),
        Mistake(says="The reference is missing: d is logp - ref_logp.", old="a - b for", new="a for"),
        Mistake(says="The policy is missing: d is logp - ref_logp.", old="a - b for", new="b for"),
        Mistake(says="You divided by n - 1: a mean divides by n.", old="count = len(gaps)",
                new="count = max(len(gaps) - 1, 1)"),
        Mistake(says="You divided by n + 1: a mean divides by n.", old="count = len(gaps)",
                new="count = len(gaps) + 1"),
        Mistake(says="You took the largest d: k1 is the mean.", old="k1 = sum(d for d in gaps) / count",
                new="k1 = max(gaps)"),
        Mistake(says="You summed k1 over the tokens: asked for are means.",
                old="sum(d for d in gaps) / count",
                new="sum(d for d in gaps)"),
        Mistake(says="You summed k2 over the tokens: asked for are means.",
                old="sum(d * d / 2 for d in gaps) / count",
                new="sum(d * d / 2 for d in gaps)"),
        Mistake(says="You summed k3 over the tokens: asked for are means.",
                old="sum(math.exp(-d) - 1 + d for d in gaps) / count",
                new="sum(math.exp(-d) - 1 + d for d in gaps)"),
        Mistake(says="Your k2 cubes d.", old="d * d / 2", new="d ** 3 / 2"),
        Mistake(says="The estimators stand in another order: k1, k2, k3.", old="return k1, k2, k3",
                new="return k1, k3, k2"),
        Mistake(says="The estimators stand in another order: k1, k2, k3.", old="return k1, k2, k3",
                new="return k3, k2, k1"),
    ),
    cases=cases, right=right,
    parts={"k1": itemgetter(0), "k2": itemgetter(1), "k3": itemgetter(2)},
    properties=(
        Property(says="On samples that stand for the policy exactly, k1 and k3 are the KL itself.",
                 holds=unbiased),
        Property(says="k2 and k3 are never negative.", holds=k2_k3_never_negative),
        Property(says="A token on which the two are far apart counts in full.", holds=counts_in_full),
        AGAIN,
    ),
)

"""Over-optimisation, simulated exactly, and its cure."""

from __future__ import annotations

from collections.abc import Iterator
from math import log
from random import Random

from postgrad.studio.exercises.base import AGAIN, Answer, Exercise, Mistake, Property
from postgrad.studio.exercises.values import near
from postgrad.studio.json_types import Values

BETAS = [8.0, 2.0, 0.5, 0.1]


def draw_answers(random: Random, count: int) -> tuple[list[float], list[float], list[float]]:
    weights = [random.uniform(0.2, 1.0) for _ in range(count)]
    reference = [w / sum(weights) for w in weights]
    gold = [round(random.gauss(0, 1), 2) for _ in range(count)]
    proxy = [round(g + random.gauss(0, 0.3), 2) for g in gold]
    proxy[0], gold[0] = round(max(proxy) + 1, 2), round(min(gold) - 1, 2)  # what the proxy overrates
    return reference, proxy, gold


def cases(random: Random) -> Iterator[Values]:
    yield [0.5, 0.5], [1.0, 0.0], [-1.0, 1.0], [1.0, 0.5]
    yield [0.25, 0.25, 0.5], [2.0, 1.0, 0.0], [-2.0, 1.0, 0.0], BETAS
    for count in (3, 5, 8):
        yield *draw_answers(random, count), BETAS
    yield [0.5, 0.5], [1.0, 0.0], [1.0, 0.0], BETAS  # an honest proxy
    yield *draw_answers(random, 5), [10.0, 1.0, 0.001]


def right(reference: list[float], proxy: list[float], gold: list[float], betas: list[float]) -> object:
    import torch
    logs, paid = (torch.tensor(x, dtype=torch.float64) for x in ([log(p) for p in reference], proxy))
    points = []
    for beta in betas:
        logp = torch.log_softmax(logs + paid / beta, 0)
        chances = logp.exp()
        points.append([(chances * (logp - logs)).sum(), (chances * paid).sum(),
                       (chances * torch.tensor(gold, dtype=torch.float64)).sum()])
    return [points, max(zip(betas, points, strict=True), key=lambda pair: pair[1][2])[0]]


def leash_orders_points(answer: Answer, reference: list[float], proxy: list[float], gold: list[float],
                        betas: list[float]) -> bool:
    """A shorter leash holds closer, and pays less of the proxy."""
    points, _ = answer(reference, proxy, gold, sorted(betas, reverse=True))
    return all(a[0] <= b[0] + 1e-6 and a[1] <= b[1] + 1e-6 for a, b in zip(points, points[1:], strict=False))


def stays(answer: Answer, reference: list[float], proxy: list[float], gold: list[float],
          betas: list[float]) -> bool:
    ((divergence, paid, _),), _ = answer(reference, proxy, gold, [1e6])
    mean = sum(p * r for p, r in zip(reference, proxy, strict=True))
    return bool(abs(divergence) < 1e-4 and abs(paid - mean) < 1e-3)


def in_any_order(answer: Answer, reference: list[float], proxy: list[float], gold: list[float],
                 betas: list[float]) -> bool:
    points, cure = answer(reference, proxy, gold, betas)
    turned, again = answer(reference, proxy, gold, betas[::-1])
    return near(turned[::-1], points, 1e-4) and near(again, cure, 1e-6)


def gold_has_no_zero(answer: Answer, reference: list[float], proxy: list[float], gold: list[float],
                     betas: list[float]) -> bool:
    """Where all answers are bad, one beta is still the best."""
    points, cure = answer(reference, proxy, gold, betas)
    lower, again = answer(reference, proxy, [g - 10 for g in gold], betas)
    return near(again, cure, 1e-6) and near([p[2] for p in lower], [p[2] - 10 for p in points], 1e-4)


EXERCISE = Exercise(
    name="reward-hacking", title="Reward hacking, simulated and cured", chapter=6, function="hack",
    statement="""
A prompt has a few possible answers. `reference[i]` is the probability of answer i before training,
`proxy[i]` what the reward model pays for it, `gold[i]` what it is really worth. Training to the end
with a KL penalty of weight beta gives the policy

    policy[i] = reference[i] * exp(proxy[i] / beta) / Z          (Z makes it sum to 1)

Write `hack(reference, proxy, gold, betas)`. Return two things: a list with one triple for each beta, in
the order given: (KL(policy || reference), mean proxy reward, mean gold reward), the means under the
policy; and the cure, the beta of the list whose mean gold reward is the highest.

    hack([0.5, 0.5], [1, 0], [-1, 1], [1.0, 0.5])
        -> [(0.1109, 0.7311, -0.4621), (0.3278, 0.8808, -0.7616)], 1.0

The proxy rises as beta falls, and gold does not follow: that is the hack. beta may be 0.001: no number
may overflow, and 0 log 0 counts as 0.
""",
    starter="""
def hack(reference, proxy, gold, betas):
    points = []
    ...
    return points, cure
""",
    hints=(
        "Work with logs: log reference[i] + proxy[i] / beta, minus the largest of them, then exp.",
        "A mean under the policy weighs with the policy's probabilities, not with the reference's.",
        "KL(policy || reference) = sum of policy * log(policy / reference), skipping answers of probability "
        "0.",
    ),
    solution="""
import math


def hack(reference, proxy, gold, betas):
    points = []
    for beta in betas:
        logs = [math.log(p) + r / beta for p, r in zip(reference, proxy)]
        weights = [math.exp(x - max(logs)) for x in logs]
        policy = [w / sum(weights) for w in weights]
        kl = sum(p * math.log(p / q) for p, q in zip(policy, reference) if p > 0)
        paid = sum(p * r for p, r in zip(policy, proxy))
        worth = sum(p * g for p, g in zip(policy, gold))
        points.append((kl, paid, worth))
    cure = max(zip(betas, points), key=lambda pair: pair[1][2])[0]
    return points, cure
""",
    mistakes=(
        Mistake(says="You multiplied by beta: a large beta is a short leash, so the reward is divided by it.",
                old="r / beta", new="r * beta"),
        Mistake(says="You left the reference out of the policy: without it nothing holds the policy back.",
                old="math.log(p) + r / beta", new="r / beta"),
        Mistake(says="Your KL is the other way round, KL(reference || policy).",
                old="sum(p * math.log(p / q) for p, q in zip(policy, reference) if p > 0)",
                new="sum(q * math.log(q / max(p, 1e-300)) for p, q in zip(policy, reference))"),
        Mistake(says="You chose the beta with the highest proxy reward, which is the smallest: that is the "
                     "hack, not its cure.",
                old="pair[1][2]", new="pair[1][1]"),
        Mistake(says="You chose the beta with the lowest gold reward.", old="cure = max(", new="cure = min("),
        Mistake(says="You averaged the rewards under the reference: they are to be averaged under the "
                     "policy.",
                old="paid = sum(p * r for p, r in zip(policy, proxy))\n"
                    "        worth = sum(p * g for p, g in zip(policy, gold))",
                new="paid = sum(p * r for p, r in zip(reference, proxy))\n"
                    "        worth = sum(p * g for p, g in zip(reference, gold))"),
        Mistake(says="It overflows for a small beta, or takes the log of 0: take the largest exponent out "
                     "before exp, and let 0 log 0 count as 0.",
                old="math.exp(x - max(logs))", new="math.exp(x)"),
        Mistake(says="You took the log of 0 where an answer's probability has vanished: 0 log 0 counts as 0.",
                old=" if p > 0)", new=")"),
        Mistake(says="You did not normalise: the weights do not sum to 1.",
                old="policy = [w / sum(weights) for w in weights]", new="policy = weights"),
        Mistake(says="beta is missing from your policy: the weaker the leash, the more the reward decides.",
                old="r / beta", new="r"),
        Mistake(says="You optimised gold itself: training sees the proxy only.",
                old="for p, r in zip(reference, proxy)]", new="for p, r in zip(reference, gold)]"),
        Mistake(says="You returned the cure's place in the list, not its beta.",
                old="cure = max(zip(betas, points), key=lambda pair: pair[1][2])[0]",
                new="cure = max(range(len(betas)), key=lambda i: points[i][2])"),
        Mistake(says="Your KL is the other way round, KL(reference || policy), and breaks where a "
                     "probability has "
                     "vanished.", old="sum(p * math.log(p / q) for p, q in zip(policy, reference) if p > 0)",
                new="sum(q * math.log(q / p) for p, q in zip(policy, reference))"),
        Mistake(says="Your KL is the other way round, KL(reference || policy), and leaves out what has "
                     "vanished.",
                old="sum(p * math.log(p / q) for p, q in zip(policy, reference) if p > 0)",
                new="sum(q * math.log(q / p) for p, q in zip(policy, reference) if p > 0)"),
        Mistake(says="The sign of your KL is turned round: it is never negative.",
                old="p * math.log(p / q)", new="p * math.log(q / p)"),
        Mistake(says="Your KL is weighted by the reference: it is a mean under the policy.",
                old="p * math.log(p / q)", new="q * math.log(p / q)"),
        Mistake(says="Your KL lacks the weights: it is a mean under the policy of log(policy / reference).",
                old="p * math.log(p / q)", new="math.log(p / q)"),
        Mistake(says="Your KL lacks the reference: what you have is minus the entropy.",
                old="p * math.log(p / q)", new="p * math.log(p)"),
        Mistake(says="Your KL lacks the logarithm.", old="p * math.log(p / q)", new="p * p / q"),
        Mistake(says="The mean proxy reward is not weighted by the policy.",
                old="paid = sum(p * r for", new="paid = sum(r for"),
        Mistake(says="The mean gold reward is not weighted by the policy.",
                old="worth = sum(p * g for", new="worth = sum(g for"),
        Mistake(says="The two means are swapped: (KL, proxy, gold).", old="(kl, paid, worth)",
                new="(kl, worth, paid)"),
        Mistake(says="The triple stands in another order: (KL, proxy, gold).", old="(kl, paid, worth)",
                new="(paid, worth, kl)"),
        Mistake(says="The exponent is turned round: what pays more becomes likelier, so the reward is added.",
                old="math.log(p) + r / beta", new="math.log(p) - r / beta"),
        Mistake(says="The reference stands in the exponent without its logarithm: log reference + proxy / "
                     "beta.",
                old="math.log(p) + r / beta", new="p + r / beta"),
        Mistake(says="You took the largest beta for the cure: it is the one with the highest gold reward.",
                old="cure = max(zip(betas, points), key=lambda pair: pair[1][2])[0]",
                new="cure = max(betas)"),
        Mistake(says="You returned the cure's triple, not its beta.", old="pair[1][2])[0]",
                new="pair[1][2])[1]"),
        Mistake(says="You returned the cure's gold reward, not its beta.",
                old="cure = max(zip(betas, points), key=lambda pair: pair[1][2])[0]",
                new="cure = max(point[2] for point in points)"),
        Mistake(says="You went through the betas in an order of your own: the triples stand in the order "
                     "given.",
                old="for beta in betas:", new="for beta in sorted(betas):"),
        Mistake(says="You stopped after the first beta.", old="    cure =", new="        break\n    cure ="),
        Mistake(says="You cut the exponent off: with a small beta all good answers become alike.",
                old="logs = [math.log(p) + r / beta",
                new="logs = [math.log(p) + max(-500, min(500, r / beta))"),
    ),
    cases=cases, right=right,
    parts={"the KL": lambda found: [point[0] for point in found[0]],
           "the mean proxy reward": lambda found: [point[1] for point in found[0]],
           "the mean gold reward": lambda found: [point[2] for point in found[0]],
           "the cure": lambda found: found[1]},
    properties=(
        Property(says="A smaller beta goes farther and earns no less of the proxy.",
                 holds=leash_orders_points),
        Property(says="With a very large beta the policy is the reference.", holds=stays),
        Property(says="The triples stand in the order of the betas, whatever that is.", holds=in_any_order),
        Property(says="Gold less a constant has the same cure.", holds=gold_has_no_zero),
        AGAIN,
    ),
)

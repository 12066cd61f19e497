"""DPO's loss of one pair, and its gradient by hand."""

from __future__ import annotations

from collections.abc import Iterator
from math import log
from random import Random

from postgrad.studio.exercises.base import Answer, Exercise, Mistake, Property
from postgrad.studio.json_types import Values

STEP = 0.05


def cases(random: Random) -> Iterator[Values]:
    yield -5.0, -5.0, -5.0, -5.0, 0.1
    yield -1.0, -3.0, -2.0, -2.0, 1.0
    for _ in range(8):
        yield *(round(random.uniform(-20, -1), 2) for _ in range(4)), random.choice((0.05, 0.1, 0.5, 1.0))
    yield -4000.0, -10.0, -20.0, -15.0, 1.0
    yield -10.0, -4000.0, -20.0, -15.0, 1.0


def right(chosen: float, rejected: float, ref_chosen: float, ref_rejected: float, beta: float) -> object:
    import torch

    from postgrad.maths.preference import dpo
    ours = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (chosen, rejected)]
    loss = dpo(ours[0] - ref_chosen, ours[1] - ref_rejected, torch.tensor(0.0), beta=beta)
    return [loss.item(), *(g.item() for g in torch.autograd.grad(loss, ours))]


def is_the_slope(answer: Answer, chosen: float, rejected: float, ref_chosen: float, ref_rejected: float,
                 beta: float) -> bool:
    rest = (ref_chosen, ref_rejected, beta)
    _, first, second = answer(chosen, rejected, *rest)
    slopes = ((answer(chosen + STEP, rejected, *rest)[0] - answer(chosen - STEP, rejected, *rest)[0]),
              (answer(chosen, rejected + STEP, *rest)[0] - answer(chosen, rejected - STEP, *rest)[0]))
    return all(abs(g - s / (2 * STEP)) < 1e-2 for g, s in zip((first, second), slopes, strict=True))


def log_two(answer: Answer, chosen: float, rejected: float, ref_chosen: float, ref_rejected: float,
            beta: float) -> bool:
    return bool(abs(answer(ref_chosen, ref_rejected, ref_chosen, ref_rejected, beta)[0] - log(2)) < 1e-4)


EXERCISE = Exercise(
    name="dpo", title="DPO’s loss and its gradient", chapter=3, function="dpo",
    statement="""
Write `dpo(chosen, rejected, ref_chosen, ref_rejected, beta)`: four log-probabilities of whole answers,
two of the policy and two of the reference. Return three numbers: the loss, its derivative with respect
to `chosen`, its derivative with respect to `rejected`. Work the derivatives out by hand.

    gap  = beta * ((chosen - ref_chosen) - (rejected - ref_rejected))
    loss = -log sigmoid(gap)

At a gap of 0 the loss is log 2 = 0.6931. Answers can be long: log-probabilities of -4000 occur, and no
number may overflow.
""",
    starter="""
def dpo(chosen, rejected, ref_chosen, ref_rejected, beta):
    ...
    return loss, by_chosen, by_rejected
""",
    hints=(
        "The derivative of -log sigmoid(x) is -sigmoid(-x): the doubt that is left. Then the chain rule.",
        "The gap rises by beta for each unit of `chosen` and falls by beta for each unit of `rejected`.",
        "-log sigmoid(x) = log(1 + exp(-x)): where x is below 0, write it as -x + log(1 + exp(x)).",
    ),
    solution="""
import math


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def dpo(chosen, rejected, ref_chosen, ref_rejected, beta):
    gap = beta * ((chosen - ref_chosen) - (rejected - ref_rejected))
    loss = max(-gap, 0) + math.log1p(math.exp(-abs(gap)))
    doubt = sigmoid(-gap)
    return loss, -beta * doubt, beta * doubt
""",
    mistakes=(
        Mistake(says="You left the reference out: the gap is one of log-ratios, not of log-probabilities.",
                old="(chosen - ref_chosen) - (rejected - ref_rejected)", new="chosen - rejected"),
        Mistake(says="You swapped chosen and rejected: this loss makes the rejected answer likelier.",
                old="    gap = beta", new="    beta = -beta\n    gap = beta"),
        Mistake(says="The sign of your gap is turned round: chosen comes first.", old="gap = beta",
                new="gap = -beta"),
        Mistake(says="You left beta out of the gap, so out of the gradient too.",
                old="gap = beta * (", new="beta = 1\n    gap = ("),
        Mistake(says="Your gradient lacks the factor beta of the chain rule.",
                old="-beta * doubt, beta * doubt", new="-doubt, doubt"),
        Mistake(says="Your gradient is weighted by sigmoid(gap): it should be sigmoid(-gap), large where the "
                     "order is still wrong.", old="doubt = sigmoid(-gap)", new="doubt = sigmoid(gap)"),
        Mistake(says="Both derivatives have the same sign: the chosen one's is negative, the rejected one's "
                     "positive.", old="-beta * doubt, beta", new="-beta * doubt, -beta"),
        Mistake(says="The signs of the derivatives are turned round: they are of the loss, which falls when "
                     "`chosen` rises.", old="-beta * doubt, beta * doubt", new="beta * doubt, -beta * doubt"),
        Mistake(says="It overflows or takes the log of 0 where the gap is very negative: write "
                     "-log sigmoid(x) without exp of a large number.",
                old="max(-gap, 0) + math.log1p(math.exp(-abs(gap)))",
                new="-math.log(1 / (1 + math.exp(-gap)))"),
        Mistake(says="The sign of the loss is turned round: log sigmoid is below 0, a loss is above.",
                old="loss = max(-gap, 0) + math.log1p(math.exp(-abs(gap)))",
                new="loss = -(max(-gap, 0) + math.log1p(math.exp(-abs(gap))))"),
    ),
    cases=cases, right=right,
    properties=(
        Property(says="The derivatives are the slopes of your own loss.", holds=is_the_slope),
        Property(says="Where the policy is the reference, the loss is log 2.", holds=log_two),
    ),
)

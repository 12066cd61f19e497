"""DPO's loss of one pair, and its gradient by hand."""

from __future__ import annotations

from collections.abc import Iterator
from math import log
from operator import itemgetter
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
        Mistake(says="The signs of the derivatives are turned round, or the two are swapped: they are of "
                     "the loss, which falls when "
                     "`chosen` rises.", old="-beta * doubt, beta * doubt", new="beta * doubt, -beta * doubt"),
        Mistake(says="It overflows or takes the log of 0 where the gap is very negative: write "
                     "-log sigmoid(x) without exp of a large number.",
                old="max(-gap, 0) + math.log1p(math.exp(-abs(gap)))",
                new="-math.log(1 / (1 + math.exp(-gap)))"),
        Mistake(says="The sign of the loss is turned round: log sigmoid is below 0, a loss is above.",
                old="loss = max(-gap, 0) + math.log1p(math.exp(-abs(gap)))",
                new="loss = -(max(-gap, 0) + math.log1p(math.exp(-abs(gap))))"),
        Mistake(says="You swapped the references, or their signs: each answer minus its own reference.",
                old="(chosen - ref_chosen) - (rejected - ref_rejected)",
                new="(chosen - ref_rejected) - (rejected - ref_chosen)"),
        Mistake(says="You subtracted the reference of the chosen answer only.",
                old="(rejected - ref_rejected)", new="rejected"),
        Mistake(says="You subtracted the reference of the rejected answer only.",
                old="(chosen - ref_chosen)", new="chosen"),
        Mistake(says="You left the rejected answer out of the gap.",
                old="((chosen - ref_chosen) - (rejected - ref_rejected))", new="(chosen - ref_chosen)"),
        Mistake(says="You left the chosen answer out of the gap.",
                old="((chosen - ref_chosen) - (rejected - ref_rejected))", new="-(rejected - ref_rejected)"),
        Mistake(says="You added the two log-ratios: the gap is their difference.",
                old="(chosen - ref_chosen) - (rejected", new="(chosen - ref_chosen) + (rejected"),
        Mistake(says="You left beta out of the gap, and kept it in the derivatives.",
                old="gap = beta * (", new="gap = ("),
        Mistake(says="You multiplied only the policy by beta: the reference's log-ratio has it too.",
                old="beta * ((chosen - ref_chosen) - (rejected - ref_rejected))",
                new="beta * (chosen - rejected) - (ref_chosen - ref_rejected)"),
        Mistake(says="You divided by beta: the gap is multiplied by it.", old="gap = beta * (",
                new="gap = 1 / beta * ("),
        Mistake(says="You returned derivatives by the gap, without doubt: their size is beta whatever the "
                     "answers are.", old="-beta * doubt, beta * doubt", new="-beta, beta"),
        Mistake(says="Your derivatives are 0: work them out by hand.",
                old="-beta * doubt, beta * doubt", new="0.0, 0.0"),
        Mistake(says="You took the derivative of the sigmoid, s (1 - s): that of -log sigmoid is what is "
                     "asked "
                     "for.", old="doubt = sigmoid(-gap)", new="doubt = sigmoid(-gap) * sigmoid(gap)"),
        Mistake(says="You gave sigmoid(gap), the preference itself: the loss is minus its logarithm.",
                old="loss = max(-gap, 0) + math.log1p(math.exp(-abs(gap)))", new="loss = sigmoid(gap)"),
        Mistake(says="Your loss is -log sigmoid(-gap): it rewards the wrong order.",
                old="loss = max(-gap, 0)", new="loss = max(gap, 0)"),
        Mistake(says="Your loss is the hinge max(-gap, 0): the logarithm is missing.",
                old=" + math.log1p(math.exp(-abs(gap)))", new=""),
        Mistake(says="Your loss lacks the part that grows with a wrong order: -log sigmoid(x) is -x + "
                     "log(1 + exp(x)) where x is below 0.",
                old="loss = max(-gap, 0) + math", new="loss = math"),
        Mistake(says="Your loss cuts the gap off, or keeps its logarithm finite: a gap of -4000 costs 4000.",
                old="loss = max(-gap, 0) + math.log1p(math.exp(-abs(gap)))",
                new="loss = -math.log(sigmoid(gap) + 1e-10)"),
        Mistake(says="You cut the gap off against overflow: a gap of -4000 costs 4000.",
                old="loss = max(-gap, 0)", new="gap = max(-30, min(30, gap))\n    loss = max(-gap, 0)"),
        Mistake(says="The derivatives have no sign of their own: the chosen one's is negative.",
                old="-beta * doubt, beta * doubt", new="beta * doubt, beta * doubt"),
        Mistake(says="You used the squared error of the gap (IPO): asked for is -log sigmoid.",
                old="loss = max(-gap, 0) + math.log1p(math.exp(-abs(gap)))", new="loss = (gap - 0.5) ** 2"),
        Mistake(says="You swapped chosen and rejected as they came in: the chosen answer is the first "
                     "argument.",
                old="def dpo(chosen, rejected,", new="def dpo(rejected, chosen,"),
        Mistake(says="You subtracted a log-probability from its reference: a log-ratio is policy less "
                     "reference.",
                old="(chosen - ref_chosen)", new="(ref_chosen - chosen)"),
        Mistake(says="You added the reference of the rejected answer: a log-ratio is policy less reference.",
                old="(rejected - ref_rejected)", new="(rejected + ref_rejected)"),
        Mistake(says="You added the reference of the chosen answer: a log-ratio is policy less reference.",
                old="(chosen - ref_chosen)", new="(chosen + ref_chosen)"),
        Mistake(says="The derivatives have the gap itself for the doubt: the sigmoid is missing.",
                old="doubt = sigmoid(-gap)", new="doubt = -gap"),
        Mistake(says="The derivative by `chosen` lacks the factor beta.", old="-beta * doubt, beta",
                new="-doubt, beta"),
        Mistake(says="The derivative by `rejected` lacks the factor beta.", old="-beta * doubt, beta * doubt",
                new="-beta * doubt, doubt"),
        Mistake(says="Your log1p has the wrong sign before it: -log sigmoid(x) is max(-x, 0) + log(1 + "
                     "exp(-|x|)).",
                old="max(-gap, 0) + math.log1p", new="max(-gap, 0) - math.log1p"),
        Mistake(says="Your sigmoid fails for numbers below 0: there it is exp(x) / (1 + exp(x)).",
                old="else math.exp(x) / (1 + math.exp(x))", new="else math.exp(x)"),
        Mistake(says="Your sigmoid fails for numbers above 0: there it is 1 / (1 + exp(-x)).",
                old="return 1 / (1 + math.exp(-x)) if", new="return 1 if"),
    ),
    cases=cases, right=right,
    parts={"the loss": itemgetter(0), "the derivative by `chosen`": itemgetter(1),
           "the derivative by `rejected`": itemgetter(2)},
    properties=(
        Property(says="The derivatives are the slopes of your own loss.", holds=is_the_slope),
        Property(says="Where the policy is the reference, the loss is log 2.", holds=log_two),
    ),
)

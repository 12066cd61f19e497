"""Rewards from comparisons: the training loop of a reward model, without the model."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from postgrad.studio.exercises.base import Answer, Exercise, Mistake, Property
from postgrad.studio.exercises.values import near
from postgrad.studio.json_types import Values


def draw_comparisons(random: Random, items: int, count: int) -> list[tuple[int, int]]:
    """Noisy judgements of items whose rewards are spread."""
    from math import exp
    truth = [random.gauss(0, 1) for _ in range(items)]
    found = []
    for _ in range(count):
        a, b = random.sample(range(items), 2)
        found.append((a, b) if random.random() < 1 / (1 + exp(truth[b] - truth[a])) else (b, a))
    return found


def cases(random: Random) -> Iterator[Values]:
    yield [(0, 1), (0, 1), (1, 0)], 2, 1.0, 1
    yield [(0, 1), (1, 2), (0, 2), (2, 0)], 3, 0.5, 5
    yield [(1, 0), (1, 2), (1, 2), (2, 1), (2, 0)], 3, 2.0, 2
    yield [(2, 0), (0, 1)], 3, 1.0, 3
    yield draw_comparisons(random, 4, 40), 4, 0.05, 30
    yield draw_comparisons(random, 5, 60), 5, 0.03, 50


def right(pairs: list[tuple[int, int]], items: int, rate: float, steps: int) -> object:
    """By the library's loss and automatic differentiation."""
    import torch

    from postgrad.maths.preference import bradley_terry
    winners, losers = (torch.tensor(side) for side in zip(*pairs, strict=True))
    rewards = torch.zeros(items, dtype=torch.float64, requires_grad=True)
    for _ in range(steps):
        loss = bradley_terry(rewards[winners], rewards[losers], torch.zeros(len(pairs))).mean()
        (gradient,) = torch.autograd.grad(loss, rewards)
        rewards = (rewards - rate * gradient).detach().requires_grad_()
    return rewards


def winners_rise(answer: Answer, pairs: list[tuple[int, int]], items: int, rate: float, steps: int) -> bool:
    first, second = answer([(0, 1)], 2, rate, steps)
    return bool(first > 0 > second)


def wins_are_explained(answer: Answer, pairs: list[tuple[int, int]], items: int, rate: float,
                       steps: int) -> bool:
    """At the optimum the wins that the rewards expect are the wins there were."""
    from math import exp
    rewards = answer([(0, 1), (0, 1), (1, 0)], 2, 3.0, 300)
    return abs(1 / (1 + exp(rewards[1] - rewards[0])) - 2 / 3) < 1e-2


def strangers_stay(answer: Answer, pairs: list[tuple[int, int]], items: int, rate: float, steps: int) -> bool:
    """Items that stand in no pair, among the others and after them."""
    apart = [(2 * winner, 2 * loser) for winner, loser in pairs]
    found, wanted = answer(apart, 2 * items + 1, rate, steps), answer(pairs, items, rate, steps)
    return near(found, [*(x for r in wanted for x in (r, 0.0)), 0.0], 1e-4)


EXERCISE = Exercise(
    name="bradley-terry", title="A Bradley–Terry training loop", chapter=2, function="fit",
    statement="""
People said which of two answers is better; the rewards that explain it are to be found.

Write `fit(pairs, items, rate, steps)`. `pairs` is a list of (winner, loser), each the number of an
item, from 0 to items - 1. Begin with all rewards at 0 and take `steps` steps of gradient descent, each
over all pairs, on the mean of the pairs' losses:

    loss(winner, loser) = -log sigmoid(r[winner] - r[loser])
    r <- r - rate * gradient of the mean loss

Return the list of rewards. After one step with rate 1 on [(0, 1), (0, 1), (1, 0)] they are 0.1667 and
-0.1667.
""",
    starter="""
def fit(pairs, items, rate, steps):
    rewards = [0.0] * items
    ...
    return rewards
""",
    hints=(
        "The derivative of -log sigmoid(x) is -sigmoid(-x). A pair touches two rewards.",
        "For each pair: doubt = sigmoid(r[loser] - r[winner]); the winner rises by it, the loser falls by "
        "it.",
        "Gather the changes of all pairs before you apply any, and divide by the number of pairs.",
    ),
    solution="""
import math


def sigmoid(x):
    return 1 / (1 + math.exp(-x))


def fit(pairs, items, rate, steps):
    rewards = [0.0] * items
    for _ in range(steps):
        change = [0.0] * items
        for winner, loser in pairs:
            doubt = sigmoid(rewards[loser] - rewards[winner])
            change[winner] += doubt
            change[loser] -= doubt
        rewards = [r + rate * c / len(pairs) for r, c in zip(rewards, change)]
    return rewards
""",
    mistakes=(
        Mistake(says="You went up the loss: winners fall and losers rise. Descent subtracts the gradient.",
                old="r + rate * c", new="r - rate * c"),
        Mistake(says="You weighted a pair by sigmoid(r[winner] - r[loser]), how sure you are already; it is "
                     "the doubt that is left, sigmoid(r[loser] - r[winner]).",
                old="sigmoid(rewards[loser] - rewards[winner])",
                new="sigmoid(rewards[winner] - rewards[loser])"),
        Mistake(says="You moved the winner only: the loser's reward is in the loss as well.",
                old="\n            change[loser] -= doubt", new=""),
        Mistake(says="You summed over the pairs: asked for is their mean.", old=" / len(pairs)", new=""),
        Mistake(says="You divided by the number of items: the mean is over the pairs.",
                old="len(pairs)", new="items"),
        Mistake(says="You counted each pair as 1: without the sigmoid it counts wins and never settles.",
                old="doubt = sigmoid(rewards[loser] - rewards[winner])", new="doubt = 1.0"),
        Mistake(says="You took one step only.", old="    return rewards",
                new="        break\n    return rewards"),
        Mistake(says="You gave the items' win rates, not their rewards.",
                old="    return rewards",
                new="    games = [max(1, sum(i in pair for pair in pairs)) for i in range(items)]\n"
                    "    return [sum(w == i for w, _ in pairs) / games[i] for i in range(items)]"),
        Mistake(says="You changed the rewards after each pair: a step is over all pairs at once.",
                old="change[winner] += doubt\n            change[loser] -= doubt",
                new="rewards[winner] += rate * doubt / len(pairs)\n"
                    "            rewards[loser] -= rate * doubt / len(pairs)"),
        Mistake(says="You took one step too few.", old="range(steps)", new="range(steps - 1)"),
        Mistake(says="You took one step too many.", old="range(steps)", new="range(steps + 1)"),
        Mistake(says="You moved the loser only: the winner's reward is in the loss as well.",
                old="            change[winner] += doubt\n", new=""),
        Mistake(says="You moved winner and loser the same way: the loser falls by what the winner rises.",
                old="change[loser] -= doubt", new="change[loser] += doubt"),
        Mistake(says="Both move the same way, down: the winner rises by what the loser falls.",
                old="change[winner] += doubt", new="change[winner] -= doubt"),
        Mistake(says="You left the learning rate out.", old="rate * c", new="c"),
        Mistake(says="You divided by the learning rate: it is a factor.", old="rate * c", new="c / rate"),
        Mistake(says="You threw the old rewards away: a step changes them.", old="r + rate * c",
                new="rate * c"),
        Mistake(says="You never set the gradient back to 0: each step adds those of all steps before it.",
                old="    for _ in range(steps):\n        change = [0.0] * items\n",
                new="    change = [0.0] * items\n    for _ in range(steps):\n"),
        Mistake(says="You divided each item's change by the pairs that it stands in: the mean is over all "
                     "pairs.",
                old="r + rate * c / len(pairs) for r, c in zip(rewards, change)",
                new="r + rate * c / max(1, sum(i in pair for pair in pairs))\n"
                    "                   for i, (r, c) in enumerate(zip(rewards, change))"),
        Mistake(says="You used the squared error of the gap: the loss is -log sigmoid of it.",
                old="doubt = sigmoid(rewards[loser] - rewards[winner])",
                new="doubt = 2 * (1 - (rewards[winner] - rewards[loser]))"),
        Mistake(says="You used the derivative of the sigmoid: that of -log sigmoid(x) is -sigmoid(-x).",
                old="doubt = sigmoid(rewards[loser] - rewards[winner])",
                new="doubt = sigmoid(rewards[loser] - rewards[winner])\n            doubt *= 1 - doubt"),
        Mistake(says="You took the exponential of the gap without the sigmoid around it.",
                old="return 1 / (1 + math.exp(-x))", new="return math.exp(x)"),
        Mistake(says="Your sigmoid of 0 is not 1/2: it is 1 / (1 + exp(-x)).",
                old="return 1 / (1 + math.exp(-x))", new="return 2 / (1 + math.exp(-x))"),
        Mistake(says="You looked at one reward of the pair: the loss sees their difference.",
                old="sigmoid(rewards[loser] - rewards[winner])", new="sigmoid(-rewards[winner])"),
        Mistake(says="You looked at the sum of the two rewards: the loss sees their difference.",
                old="sigmoid(rewards[loser] - rewards[winner])",
                new="sigmoid(rewards[loser] + rewards[winner])"),
        Mistake(says="You swapped winner and loser: the pairs are (winner, loser).",
                old="for winner, loser in pairs", new="for loser, winner in pairs"),
    ),
    cases=cases, right=right,
    properties=(
        Property(says="An item that always wins rises, one that always loses falls.", holds=winners_rise),
        Property(says="After many steps, two wins of three are explained as a chance of 2/3.",
                 holds=wins_are_explained),
        Property(says="Every item has a number; one that stands in no pair stays at 0.",
                 holds=strangers_stay),
    ),
)

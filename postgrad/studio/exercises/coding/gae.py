"""Generalised advantage estimation for one answer."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from postgrad.studio.exercises.base import AGAIN, Answer, Exercise, Mistake, Property
from postgrad.studio.exercises.values import near
from postgrad.studio.json_types import Values


def cases(random: Random) -> Iterator[Values]:
    yield [0.0, 0.0, 1.0], [0.5, 0.6, 0.8], 1.0, 0.5
    yield [1.0], [0.25], 0.9, 0.95
    for length in (2, 4, 7):
        yield ([round(random.gauss(0, 1), 2) for _ in range(length)],
               [round(random.gauss(0, 1), 2) for _ in range(length)],
               random.choice((0.9, 0.99)), random.choice((0.5, 0.95)))
    yield [0.0, 0.0, 0.0, 1.0], [0.2, 0.3, 0.4, 0.9], 0.8, 0.0
    yield [0.1, 0.0, 0.0, 1.0], [0.2, 0.3, 0.4, 0.9], 0.9, 1.0


def right(rewards: list[float], values: list[float], gamma: float, lam: float) -> object:
    """By the definition: the sum over all later steps of (gamma lam)^l delta."""
    later = [*values[1:], 0.0]
    deltas = [r + gamma * n - v for r, v, n in zip(rewards, values, later, strict=True)]
    return [sum((gamma * lam) ** (s - t) * deltas[s] for s in range(t, len(deltas)))
            for t in range(len(deltas))]


def monte_carlo(answer: Answer, rewards: list[float], values: list[float], gamma: float, lam: float) -> bool:
    steps = range(len(rewards))
    wanted = [sum(gamma ** (s - t) * rewards[s] for s in steps if s >= t) - values[t] for t in steps]
    return near(answer(rewards, values, gamma, 1.0), wanted, 1e-4)


def one_step(answer: Answer, rewards: list[float], values: list[float], gamma: float, lam: float) -> bool:
    later = [*values[1:], 0.0]
    wanted = [r + gamma * n - v for r, v, n in zip(rewards, values, later, strict=True)]
    return near(answer(rewards, values, gamma, 0.0), wanted, 1e-4)


def takes_whole_rewards(answer: Answer, rewards: list[float], values: list[float], gamma: float,
                        lam: float) -> bool:
    """Rewards and values can be integers; advantages are not."""
    whole = [[round(3 * x) for x in numbers] for numbers in (rewards, values)]
    floats = [[float(x) for x in numbers] for numbers in whole]
    return near(answer(*whole, gamma, lam), answer(*floats, gamma, lam), 1e-4)


EXERCISE = Exercise(
    name="gae", title="Generalised advantage estimation", chapter=3, function="gae",
    statement="""
Write `gae(rewards, values, gamma, lam)` for one answer: a reward and a critic's value for each token;
return as many advantages.

    delta[t] = rewards[t] + gamma * values[t + 1] - values[t]
    A[t]     = delta[t] + gamma * lam * A[t + 1]

The answer ends with its last token: beyond it the value and the advantage are 0.

    gae([0, 0, 1], [0.5, 0.6, 0.8], 1, 0.5) -> [0.25, 0.3, 0.2]
""",
    starter="""
def gae(rewards, values, gamma, lam):
    ...
""",
    hints=(
        "A[t] needs A[t + 1]: walk from the last token to the first.",
        "Carry two numbers along the walk: the advantage and the value of the token after this one.",
        "Both begin at 0, for after the last token there is nothing.",
    ),
    solution="""
def gae(rewards, values, gamma, lam):
    found = [0.0] * len(rewards)
    after = ahead = 0.0
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + gamma * ahead - values[t]
        after = delta + gamma * lam * after
        found[t] = after
        ahead = values[t]
    return found
""",
    mistakes=(
        Mistake(says="You took the last value as the value after the end: the answer is over there, it is 0.",
                old="after = ahead = 0.0", new="after, ahead = 0.0, values[-1]"),
        Mistake(says="You left lambda out: with lambda = 1 it is the return minus the value.",
                old="gamma * lam * after", new="gamma * after"),
        Mistake(says="You left gamma out of the recursion: it decays by gamma times lambda.",
                old="gamma * lam * after", new="lam * after"),
        Mistake(says="You did not discount the next value inside delta.", old="gamma * ahead", new="ahead"),
        Mistake(says="You returned the one-step errors delta: the sum over later ones is missing.",
                old="after = delta + gamma * lam * after", new="after = delta"),
        Mistake(says="You returned returns, A + V, which are the critic's targets: asked for is A.",
                old="found[t] = after", new="found[t] = after + values[t]"),
        Mistake(says="You did not subtract the value of the token itself: that is no advantage.",
                old=" - values[t]", new=""),
        Mistake(says="You walked forwards: an advantage looks at what comes later.",
                old="""    for t in reversed(range(len(rewards))):
        delta = rewards[t] + gamma * ahead - values[t]""",
                new="""    for t in range(len(rewards)):
        ahead = values[t + 1] if t + 1 < len(values) else 0.0
        delta = rewards[t] + gamma * ahead - values[t]"""),
        Mistake(says="You left the next value out of delta.", old=" + gamma * ahead", new=""),
        Mistake(says="The sign of delta is turned round.",
                old="rewards[t] + gamma * ahead - values[t]", new="values[t] - rewards[t] - gamma * ahead"),
        Mistake(says="The sign of V is turned round: the value of the token itself is subtracted.",
                old=" - values[t]", new=" + values[t]"),
        Mistake(says="The signs of both values are turned round: delta = r + gamma V' - V.",
                old="rewards[t] + gamma * ahead - values[t]", new="rewards[t] - gamma * ahead + values[t]"),
        Mistake(says="The sign of the next value is turned round: it is added.",
                old="rewards[t] + gamma * ahead", new="rewards[t] - gamma * ahead"),
        Mistake(says="You subtracted the value twice: once is inside delta, and the sum is the advantage.",
                old="found[t] = after", new="found[t] = after - values[t]"),
        Mistake(says="You subtracted the value twice inside delta.", old=" - values[t]",
                new=" - 2 * values[t]"),
        Mistake(says="You left gamma and lambda out of the recursion.", old="gamma * lam * after",
                new="after"),
        Mistake(says="You left gamma out altogether.", old="        delta = rewards",
                new="        gamma = 1\n        delta = rewards"),
        Mistake(says="You subtracted what is to come: it is added.", old="delta + gamma * lam",
                new="delta - gamma * lam"),
        Mistake(says="You added gamma and lambda: what is to come decays by their product.",
                old="gamma * lam * after", new="(gamma + lam) * after"),
        Mistake(says="You swapped gamma and lambda inside delta: the next value is discounted by gamma.",
                old="gamma * ahead", new="lam * ahead"),
        Mistake(says="You left the rewards out: delta begins with the token's reward.",
                old="rewards[t] + gamma * ahead", new="gamma * ahead"),
        Mistake(says="You took the token's own value for the next one: it is V of the token after.",
                old="        delta = rewards", new="        ahead = values[t]\n        delta = rewards"),
        Mistake(says="You took the reward of the token before.", old="= rewards[t]", new="= rewards[t - 1]"),
        Mistake(says="You left the first token out.", old="reversed(range(len(rewards)))",
                new="reversed(range(1, len(rewards)))"),
        Mistake(says="You left the last token out.", old="reversed(range(len(rewards)))",
                new="reversed(range(len(rewards) - 1))"),
        Mistake(says="You weighted by 1 - lambda: that is the mean of n-step returns, whose sum has this "
                     "factor already.", old="gamma * lam * after", new="gamma * (1 - lam) * after"),
        Mistake(says="You discounted the token's own error too: delta is not multiplied.",
                old="delta + gamma * lam * after", new="gamma * lam * (delta + after)"),
        Mistake(says="You normalised the advantages at the end: that is done over a batch, elsewhere.",
                old="    return found",
                new="    mean = sum(found) / len(found)\n"
                    "    std = (sum((x - mean) ** 2 for x in found) / len(found)) ** 0.5\n"
                    "    return [(x - mean) / (std + 1e-8) for x in found]"),
        Mistake(says="You returned the discounted returns of the rewards: the values are left out.",
                old="delta = rewards[t] + gamma * ahead - values[t]\n        after = delta + gamma * lam * "
                    "after",
                new="after = rewards[t] + gamma * after"),
        Mistake(says="You took every reward that is not 0 for the end of the answer.",
                old="        delta = rewards",
                new="        if rewards[t] != 0:\n            after = ahead = 0.0\n"
                "        delta = rewards"),
    ),
    cases=cases, right=right,
    properties=(
        Property(says="With lambda = 1 it is the discounted return minus the value.", holds=monte_carlo),
        Property(says="With lambda = 0 it is the one-step error.", holds=one_step),
        Property(says="Rewards and values of 1 and 0 give the same as 1.0 and 0.0.",
                 holds=takes_whole_rewards),
        AGAIN,
    ),
)

"""Explore and exploit: a bandit with an upper confidence bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import log
from operator import itemgetter
from random import Random
from statistics import fmean

from postgrad.studio.exercises.base import Answer, Exercise, Mistake, Property
from postgrad.studio.exercises.values import near
from postgrad.studio.json_types import Values

Pull = Callable[[int], float]


class Machine:
    """Arms with rewards of their own: an arm pays the next of its list at each pull, and then starts over."""

    def __init__(self, *rewards: list[float]):
        self.rewards, self.pulls, self.__name__ = rewards, [0] * len(rewards), "pull"

    def __call__(self, arm: int) -> float:
        paid = self.rewards[arm][self.pulls[arm] % len(self.rewards[arm])]
        self.pulls[arm] += 1
        return paid


def cases(random: Random) -> Iterator[Values]:
    yield Machine([0.0], [1.0]), 2, 6, 1.0
    yield Machine([1.0], [1.0], [1.0]), 3, 7, 0.5
    yield Machine([0.0, 1.0, 1.0], [0.5], [0.4]), 3, 12, 0.0
    for arms, c in ((2, 0.3), (3, 1.0), (4, 2.0), (5, 0.5), (4, 0.0), (6, 0.8), (5, 1.5)):
        rewards = [[round(random.gauss(0.2 * arm, 0.6), 2) for _ in range(7)] for arm in range(arms)]
        yield Machine(*rewards), arms, random.randint(30, 80), c
    yield Machine([0.3], [0.1], [0.2]), 3, 3, 1.0


def right(pull: Pull, arms: int, steps: int, c: float) -> object:
    """From the whole history, again at each step."""
    history: list[tuple[int, float]] = []
    for step in range(steps):
        arm = step
        if step >= arms:
            paid = [[r for a, r in history if a == i] for i in range(arms)]
            scores = [fmean(r) + c * (log(step) ** 0.5) / len(r) ** 0.5 for r in paid]
            arm = min(range(arms), key=lambda i: (-scores[i], i))
        history.append((arm, pull(arm)))
    return [[arm for arm, _ in history],
            [sum(r for a, r in history if a == i) / sum(a == i for a, _ in history) for i in range(arms)]]


def pulls_as_often_as_asked(answer: Answer, pull: Pull, arms: int, steps: int, c: float) -> bool:
    asked: list[int] = []

    def counted(arm: int) -> float:
        asked.append(arm)
        return pull(arm)
    return bool(answer(counted, arms, steps, c)[0] == asked and len(asked) == steps)


def means_are_what_was_paid(answer: Answer, pull: Pull, arms: int, steps: int, c: float) -> bool:
    """Of the pulls that it made, whichever they were."""
    paid: dict[int, list[float]] = {}

    def kept(arm: int) -> float:
        reward = pull(arm)
        paid.setdefault(arm, []).append(reward)
        return reward
    return near(answer(kept, arms, steps, c)[1], [fmean(paid[arm]) for arm in range(arms)], 1e-4)


def greedy_without_c(answer: Answer, pull: Pull, arms: int, steps: int, c: float) -> bool:
    """With c = 0 the arm that has paid best on average so far."""
    paid: list[list[float]] = [[] for _ in range(arms)]
    best: list[int] = []

    def kept(arm: int) -> float:
        if all(paid):
            means = [fmean(rewards) for rewards in paid]
            best.append(max(means) - means[arm] < 1e-9)
        paid[arm].append(pull(arm))
        return paid[arm][-1]
    answer(kept, arms, steps, 0.0)
    return all(best)


def begins_with_each(answer: Answer, pull: Pull, arms: int, steps: int, c: float) -> bool:
    return bool(answer(pull, arms, steps, c)[0][:arms] == list(range(arms)))


def explores(answer: Answer, pull: Pull, arms: int, steps: int, c: float) -> bool:
    """With a very large c no arm is pulled twice more than another."""
    order = answer(pull, arms, steps, 1e6)[0]
    counts = [order.count(arm) for arm in range(arms)]
    return bool(max(counts) - min(counts) <= 1)


EXERCISE = Exercise(
    name="bandit", title="Explore and exploit", chapter=1, function="play",
    statement="""
One state, a few actions, a reward for each: a bandit. A player who only takes the best action so far
never finds out about the rest.

Write `play(pull, arms, steps, c)`. `pull(arm)` pulls an arm, from 0 to arms - 1, and gives its reward.
Pull `steps` times in all. First every arm once, in order. From then on always the arm with the highest
score (of equal ones the first):

    score[a] = mean[a] + c * sqrt(log(t) / n[a])

`n[a]` is how often arm a has been pulled so far, `mean[a]` its mean reward, `t` the number of all pulls
so far. Return two lists: the arms in the order in which you pulled them, and the mean reward of each arm
at the end.

With arms that always pay 0 and 1, six pulls and c = 1 the order is [0, 1, 1, 1, 0, 1] and the means are
[0, 1].
""",
    starter="""
def play(pull, arms, steps, c):
    order = []
    ...
    return order, means
""",
    hints=(
        "Keep two lists: how often each arm was pulled, and the sum of what it paid.",
        "The second term is what an arm might be worth that you know little of: it falls with its own pulls "
        "and rises slowly with all others.",
        "max(range(arms), key=score) gives the first of equal ones.",
    ),
    solution="""
import math


def play(pull, arms, steps, c):
    order = []
    counts, sums = [0] * arms, [0.0] * arms
    for t in range(steps):
        if t < arms:
            arm = t
        else:
            scores = [sums[a] / counts[a] + c * math.sqrt(math.log(t) / counts[a]) for a in range(arms)]
            arm = scores.index(max(scores))
        reward = pull(arm)
        order.append(arm)
        counts[arm] += 1
        sums[arm] += reward
    return order, [s / n for s, n in zip(sums, counts)]
""",
    mistakes=(
        Mistake(says="You left the second term out: that is greedy, and an arm that begins badly is never "
                     "tried again.", old=" + c * math.sqrt(math.log(t) / counts[a])", new=""),
        Mistake(says="You left the mean out: what arms have paid has no say, so all are pulled alike.",
                old="sums[a] / counts[a] + c", new="c"),
        Mistake(says="You subtracted the second term: what is little known would be shunned.",
                old="counts[a] + c", new="counts[a] - c"),
        Mistake(says="You added up an arm's rewards: the score has their mean.",
                old="sums[a] / counts[a] + c", new="sums[a] + c"),
        Mistake(says="Your second term lacks the square root.",
                old="math.sqrt(math.log(t) / counts[a])", new="math.log(t) / counts[a]"),
        Mistake(says="Your second term lacks the logarithm of t.", old="math.log(t) / counts[a]",
                new="t / counts[a]"),
        Mistake(says="t is one too high: it counts the pulls so far, without the coming one.",
                old="math.log(t)", new="math.log(t + 1)"),
        Mistake(says="t is one too low: all pulls so far count.", old="math.log(t)", new="math.log(t - 1)"),
        Mistake(says="You took the number of all steps for t: it counts the pulls so far.",
                old="math.log(t)", new="math.log(steps)"),
        Mistake(says="Of equal scores you took the last arm; asked for is the first.",
                old="scores.index(max(scores))", new="max(range(arms), key=lambda a: (scores[a], a))"),
        Mistake(says="You took the arm with the lowest score.", old="max(scores)", new="min(scores)"),
        Mistake(says="c is inside the root: it is a factor before it.",
                old="c * math.sqrt(math.log(t) / counts[a])", new="math.sqrt(c * math.log(t) / counts[a])"),
        Mistake(says="You left c out of the score.", old="c * math.sqrt", new="math.sqrt"),
        Mistake(says="You returned the sums of the rewards, not their means.",
                old="[s / n for s, n in zip(sums, counts)]", new="sums"),
        Mistake(says="You returned how often each arm was pulled, not what it paid on average.",
                old="[s / n for s, n in zip(sums, counts)]", new="counts"),
        Mistake(says="You divided each arm's sum by all pulls: its mean is over its own.",
                old="[s / n for s, n in zip(sums, counts)]", new="[s / steps for s in sums]"),
        Mistake(says="You pulled one time too few.", old="for t in range(steps)",
                new="for t in range(steps - 1)"),
        Mistake(says="You pulled one time too often.", old="for t in range(steps)",
                new="for t in range(steps + 1)"),
        Mistake(says="You pulled `steps` times after the first round: that round counts too.",
                old="for t in range(steps)", new="for t in range(steps + arms)"),
        Mistake(says="You only went through the arms in turn: after the first round the score decides.",
                old="        if t < arms:\n            arm = t\n",
                new="        if True:\n            arm = t % arms\n"),
        Mistake(says="You left the rewards out of the sums.", old="        sums[arm] += reward\n", new=""),
        Mistake(says="You subtracted the rewards.", old="sums[arm] += reward", new="sums[arm] -= reward"),
        Mistake(says="You began to count at 1: before the first pull an arm has none.",
                old="[0] * arms, [0.0] * arms", new="[1] * arms, [0.0] * arms"),
        Mistake(says="You counted each pull twice.", old="counts[arm] += 1", new="counts[arm] += 2"),
        Mistake(says="You never counted the pulls after the first round.", old="        counts[arm] += 1\n",
                new="        counts[arm] = 1\n"),
        Mistake(says="You gave an arm a start that it was not paid: sums begin at 0.",
                old="[0] * arms, [0.0] * arms", new="[0] * arms, [1.0] * arms"),
        Mistake(says="You looked at another arm's mean.", old="sums[a] / counts[a] + c",
                new="sums[a - 1] / counts[a - 1] + c"),
        Mistake(says="You looked at another arm's count in the second term.",
                old="math.log(t) / counts[a])", new="math.log(t) / counts[a - 1])"),
        Mistake(says="The second term grows with an arm's own pulls: divide by n[a].",
                old="math.log(t) / counts[a])", new="math.log(t) * counts[a])"),
        Mistake(says="The second term is turned round: log(t) over n[a].",
                old="math.log(t) / counts[a])", new="counts[a] / math.log(t))"),
        Mistake(says="You multiplied an arm's sum by its count: a mean divides.",
                old="sums[a] / counts[a] + c", new="sums[a] * counts[a] + c"),
        Mistake(says="The score multiplies its two terms: they are added.",
                old="counts[a] + c * math", new="counts[a] * c * math"),
    ),
    cases=cases, right=right, parts={"the order": itemgetter(0), "the means": itemgetter(1)},
    properties=(
        Property(says="It pulls `steps` times, and says in which order.", holds=pulls_as_often_as_asked),
        Property(says="It begins with every arm once.", holds=begins_with_each),
        Property(says="The means are those of the rewards that it was paid.", holds=means_are_what_was_paid),
        Property(says="With c = 0 it pulls the arm with the best mean so far.", holds=greedy_without_c),
        Property(says="With a very large c all arms are pulled equally often.", holds=explores),
    ),
)

"""GRPO whole, in its simplest form: sample, reward, compare, update."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import exp
from random import Random

from postgrad.studio.exercises.base import Answer, Exercise, Mistake, Property
from postgrad.studio.exercises.values import near
from postgrad.studio.json_types import Values

PLACES, WORDS = 4, 3


Sampler = Callable[[list[list[float]], int], list[list[int]]]


def sample_evenly(theta: list[list[float]], count: int) -> list[list[int]]:
    """`count` answers by a policy: at each place one word, by the logits of that place; word 0 ends it.
    Evenly spread instead of random, so that the same logits always give the same answers."""
    answers = []
    for i in range(count):
        answer = []
        for place, row in enumerate(theta):
            top = max(row)
            chances = [exp(x - top) for x in row]
            left = ((i + 0.5) * (0.618 if place % 2 else 1.0 / count) + 0.37 * place) % 1.0 * sum(chances)
            word = 0
            while word < len(row) - 1 and left >= chances[word]:
                left -= chances[word]
                word += 1
            answer.append(word)
            if word == 0:
                break
        answers.append(answer)
    return answers


def twos(answer: list[int]) -> float:
    return float(answer.count(2))


def ends_early(answer: list[int]) -> float:
    return 1.0 if answer[-1] == 0 and len(answer) <= 2 else 0.0


def two_then_end(answer: list[int]) -> float:
    return 3.0 if answer[:2] == [2, 0] else 1.0


def cases(random: Random) -> Iterator[Values]:
    zeros = [[0.0] * WORDS for _ in range(PLACES)]
    yield zeros, sample_evenly, twos, 4, 1.0, 1
    yield zeros, sample_evenly, twos, 8, 0.5, 6
    for reward in (ends_early, two_then_end, twos):
        theta = [[round(random.gauss(0, 0.7), 2) for _ in range(WORDS)] for _ in range(PLACES)]
        yield theta, sample_evenly, reward, 6, 0.8, 4


def right(theta: list[list[float]], sample: Sampler, reward: Callable[[list[int]], float], group: int,
          rate: float, steps: int) -> object:
    import torch

    from postgrad.maths.credit import group_centre
    policy = torch.tensor(theta, dtype=torch.float64)
    for _ in range(steps):
        policy.requires_grad_()
        answers = sample(policy.tolist(), group)
        scores = torch.tensor([reward(a) for a in answers], dtype=torch.float64)[:, None]
        adv = group_centre(scores, torch.ones_like(scores, dtype=torch.bool), group)[:, 0]
        logp = torch.log_softmax(policy, -1)
        sums = torch.stack([logp[range(len(a)), a].sum() for a in answers])
        (slope,) = torch.autograd.grad((adv * sums).sum() / sum(map(len, answers)), policy)
        policy = (policy + rate * slope).detach()
    return policy


def learns(answer: Answer, theta: list[list[float]], sample: Sampler, reward: Callable[[list[int]], float],
           group: int, rate: float, steps: int) -> bool:
    """After some steps its answers are paid no less."""
    def paid(policy: list[list[float]]) -> float:
        return sum(map(reward, sample(policy, 16)))
    return paid(answer(theta, sample, reward, group, 0.5, 8)) >= paid(theta)


def equal_rewards_teach_nothing(answer: Answer, theta: list[list[float]], sample: Sampler,
                                reward: Callable[[list[int]], float], group: int, rate: float,
                                steps: int) -> bool:
    after = answer(theta, sample, lambda _: 1.0, group, rate, steps)
    return all(abs(a - b) < 1e-6 for old, new in zip(theta, after, strict=True)
               for a, b in zip(old, new, strict=True))


def all_words_count(answer: Answer, theta: list[list[float]], sample: Sampler,
                    reward: Callable[[list[int]], float], group: int, rate: float, steps: int) -> bool:
    """The third answer is paid the mean: it pulls nowhere, and its words are in N, which is 6 or 8."""
    def pull(third: list[int]) -> list[float]:
        after = answer(theta, lambda *_: [[1, 0], [2, 0], third], lambda a: 2.0 - a[0] if a[1] == 0 else 0.5,
                       3, rate, 1)
        return [(new - old) * (4 + len(third)) for row, by in zip(after, theta, strict=True)
                for new, old in zip(row, by, strict=True)]
    return near(pull([1, 2]), pull([1, 2, 1, 1]), 2e-2)


EXERCISE = Exercise(
    name="simple-grpo", title="GRPO whole", chapter=5, function="grpo",
    statement="""
The whole algorithm, as small as it gets: a policy that is a table. `theta[t]` is a list of logits: at
place t word w is written with probability softmax(theta[t])[w]. Word 0 ends an answer, so answers have
different lengths.

Write `grpo(theta, sample, reward, group, rate, steps)`. In each of `steps` steps:

    answers = sample(theta, group)
    A       = reward(answer) - mean reward of the group
    J       = (sum over answers of A * sum over t of log softmax(theta[t])[answer[t]]) / N
    theta  <- theta + rate * gradient of J

`sample` gives a list of `group` answers by the policy it is handed, each a list of words. N is the
number of words in all the answers of the step together; the A are held fixed, and not divided by a
standard deviation.

Return the last theta, a list of lists. There is no ratio and no KL: each step samples again.
""",
    starter="""
def grpo(theta, sample, reward, group, rate, steps):
    for _ in range(steps):
        answers = sample(theta, group)
        ...
    return theta
""",
    hints=(
        "The order is sample, reward, compare, update; only the last of them needs a derivative.",
        "The derivative of log softmax(x)[w] with respect to x[v] is (1 if v == w else 0) - softmax(x)[v].",
        "Every word of an answer gets the answer's A; a place that an answer did not reach gets nothing "
        "from it.",
    ),
    solution="""
import math


def softmax(row):
    top = max(row)
    chances = [math.exp(x - top) for x in row]
    return [c / sum(chances) for c in chances]


def grpo(theta, sample, reward, group, rate, steps):
    for _ in range(steps):
        answers = sample(theta, group)
        rewards = [reward(answer) for answer in answers]
        mean = sum(rewards) / group
        words = sum(len(answer) for answer in answers)
        change = [[0.0] * len(row) for row in theta]
        for answer, r in zip(answers, rewards):
            advantage = r - mean
            for t, word in enumerate(answer):
                for v, p in enumerate(softmax(theta[t])):
                    change[t][v] += advantage * ((v == word) - p) / words
        theta = [[x + rate * c for x, c in zip(row, by)] for row, by in zip(theta, change)]
    return theta
""",
    mistakes=(
        Mistake(says="There is no baseline: the advantage is the reward minus the mean of the group.",
                old="advantage = r - mean", new="advantage = r"),
        Mistake(says="You went down the objective, or turned a sign in the advantage or the derivative: J "
                     "is to rise.",
                old="x + rate * c", new="x - rate * c"),
        Mistake(says="You gave each answer its own mean over words, then the mean over answers; asked for "
                     "is one "
                     "division by all words of the group.", old="/ words", new="/ (group * len(answer))"),
        Mistake(says="You divided by the number of answers: long answers then weigh more than J says.",
                old="/ words", new="/ group"),
        Mistake(says="You did not divide by the number of words.", old=" / words", new=""),
        Mistake(says="You divided by the standard deviation as well: here the advantage is the reward less "
                     "the "
                     "mean, no more.",
                old="advantage = r - mean",
                new="advantage = (r - mean) / ((sum((x - mean) ** 2 for x in rewards) / group) ** 0.5 + "
                    "1e-6)"),
        Mistake(says="You sampled once, or always by the first theta: each step learns from answers of the "
                     "present policy.",
                old="    for _ in range(steps):\n        answers = sample(theta, group)",
                new="    answers = sample(theta, group)\n    for _ in range(steps):"),
        Mistake(says="Your gradient lacks the softmax: raising one logit lowers the chance of all other "
                     "words.",
                old="((v == word) - p)", new="(v == word)"),
        Mistake(says="You kept only the answers above the mean: the ones below teach as well.",
                old="advantage = r - mean", new="advantage = max(r - mean, 0)"),
        Mistake(says="You compared with the mean of the others: that is RLOO; here the answer is in its own "
                     "mean.",
                old="advantage = r - mean", new="advantage = (r - mean) * group / (group - 1)"),
        Mistake(says="You left the last word out: the end of an answer is a choice of the policy too.",
                old="for t, word in enumerate(answer):", new="for t, word in enumerate(answer[:-1]):"),
        Mistake(says="You left the last word out, and out of N too: the end of an answer is a choice of the "
                     "policy.", old="        words = sum(len(answer) for answer in answers)",
                new="        answers = [answer[:-1] for answer in answers]\n"
                    "        words = sum(len(answer) for answer in answers)"),
        Mistake(says="You took one step only.", old="    return theta",
                new="        break\n    return theta"),
        Mistake(says="You took one step too few.", old="for _ in range(steps)",
                new="for _ in range(steps - 1)"),
        Mistake(says="The advantage adds the mean: it is subtracted.", old="advantage = r - mean",
                new="advantage = r + mean"),
        Mistake(says="Your mean is the sum of the rewards: divide by the group.",
                old="mean = sum(rewards) / group", new="mean = sum(rewards)"),
        Mistake(says="Your baseline is the best reward of the group: asked for is the mean.",
                old="mean = sum(rewards) / group", new="mean = max(rewards)"),
        Mistake(says="Your baseline is not the mean: it divides by another number than the group's.",
                old="mean = sum(rewards) / group", new="mean = sum(rewards) / (group - 1)"),
        Mistake(says="Your baseline is the mean of all rewards so far: it is that of this step's group.",
                old="    for _ in range(steps):\n        answers = sample(theta, group)\n"
                    "        rewards = [reward(answer) for answer in answers]\n        mean = sum(rewards) "
                    "/ group\n",
                new="    past = []\n    for _ in range(steps):\n        answers = sample(theta, group)\n"
                    "        rewards = [reward(answer) for answer in answers]\n        past += rewards\n"
                    "        mean = sum(past) / len(past)\n"),
        Mistake(says="You left the learning rate out.", old="x + rate * c", new="x + c"),
        Mistake(says="You threw the old theta away: a step changes it.", old="x + rate * c", new="rate * c"),
        Mistake(says="You took the softmax at the wrong place: word t of an answer is written by theta[t].",
                old="softmax(theta[t])", new="softmax(theta[t - 1])"),
        Mistake(says="You took the softmax of the first place for all: word t is written by theta[t].",
                old="softmax(theta[t])", new="softmax(theta[0])"),
        Mistake(says="You took the softmax over places: it is over the words of one place.",
                old="for v, p in enumerate(softmax(theta[t])):",
                new="for v in range(len(theta[t])):\n"
                    "                    p = softmax([row[v] for row in theta])[t]"),
        Mistake(says="You moved theta while the step was still being summed up: all answers of a step see "
                     "the "
                     "same theta.",
                old="change[t][v] += advantage * ((v == word) - p) / words",
                new="theta = [row[:] for row in theta]\n"
                    "                    theta[t][v] += rate * advantage * ((v == word) - p) / words"),
        Mistake(says="You raised probabilities and not log-probabilities: the derivative then has a factor "
                     "p.",
                old="((v == word) - p)", new="softmax(theta[t])[word] * ((v == word) - p)"),
        Mistake(says="You added p: the derivative of log softmax subtracts it.", old="((v == word) - p)",
                new="((v == word) + p)"),
        Mistake(says="You left the word itself out of the derivative: it is (1 if v == word else 0) - p.",
                old="((v == word) - p)", new="(-p)"),
        Mistake(says="The derivative is turned round: it is 1 for the word that was written.",
                old="(v == word)", new="(v != word)"),
        Mistake(says="You left the advantage out: every answer is then raised alike.",
                old="advantage * ((v", new="((v"),
        Mistake(says="You added the advantage: it is a factor.", old="advantage * ((v == word) - p)",
                new="(advantage + (v == word) - p)"),
        Mistake(says="You skipped word 0: the end of an answer is a choice of the policy too.",
                old="for t, word in enumerate(answer):", new="for t, word in enumerate(answer):\n"
                "                if word == 0:\n                    continue"),
        Mistake(says="You kept only the last answer's gradient: those of a group add up.",
                old="change[t][v] += advantage", new="change[t][v] = advantage"),
        Mistake(says="You learned from one answer of the group only: all of them count.",
                old="        theta = [[x", new="            break\n        theta = [[x"),
        Mistake(says="You left the first word out: it is a choice too.",
                old="for t, word in enumerate(answer):", new="for t, word in list(enumerate(answer))[1:]:"),
        Mistake(says="You counted the answers of all steps, or the places of theta, for N: it is the words "
                     "of this "
                     "step's answers.", old="words = sum(len(answer) for answer in answers)",
                new="words = len(theta) * group"),
        Mistake(says="You counted the longest answer for N: it is all words of the group together.",
                old="words = sum(len(answer) for answer in answers)",
                new="words = max(len(answer) for answer in answers)"),
        Mistake(says="You left the softmax out: the derivative subtracts a probability, not a logit.",
                old="for v, p in enumerate(softmax(theta[t])):", new="for v, p in enumerate(theta[t]):"),
        Mistake(says="Your softmax has the sign of the logits turned round.", old="math.exp(x - top)",
                new="math.exp(top - x)"),
        Mistake(says="Your softmax is not divided by its sum.", old="[c / sum(chances) for c in chances]",
                new="chances"),
        Mistake(says="You learned from the first word of each answer only: all its words get the advantage.",
                old="for t, word in enumerate(answer):", new="for t, word in enumerate(answer[:1]):"),
        Mistake(says="You changed the logit of one word only: raising one lowers all others of its place.",
                old="change[t][v] += advantage * ((v == word) - p) / words",
                new="change[t][v] += advantage * ((v == word) - p) / words if v == word else 0"),
        Mistake(says="You changed the logits of another place than the word's: word t is written by "
                     "theta[t].",
                old="change[t][v]", new="change[t - 1][v]"),
        Mistake(says="You applied the change after each answer, and again with the next: one step applies "
                     "the sum "
                     "once.", old="        theta = [[x + rate", new="            theta = [[x + rate"),
    ),
    cases=cases, right=right,
    properties=(
        Property(says="A group of equal rewards changes nothing.", holds=equal_rewards_teach_nothing),
        Property(says="Some steps later the answers are paid no less.", holds=learns),
        Property(says="An answer that is paid the mean has words too: they are in N.", holds=all_words_count),
    ),
)

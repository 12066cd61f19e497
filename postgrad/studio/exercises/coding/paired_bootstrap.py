"""Is one model better than another on the same problems: a bootstrap over problems."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from random import Random

from postgrad.studio.exercises.base import AGAIN, Answer, Exercise, Mistake, Property
from postgrad.studio.exercises.values import near
from postgrad.studio.json_types import Values

Draws = list[list[int]]


def draw_problems(random: Random, count: int, draws: int) -> Draws:
    return [[random.randrange(count) for _ in range(count)] for _ in range(draws)]


def cases(random: Random) -> Iterator[Values]:
    yield [0.0, 1.0], [1.0, 1.0], [[0, 0], [0, 1], [1, 1], [1, 0]], 1
    yield [1.0, 0.0, 0.5], [1.0, 0.0, 0.5], draw_problems(random, 3, 10), 1
    for count, draws, cut in ((4, 9, 0), (5, 20, 1), (6, 30, 2), (8, 40, 3)):
        hard = [random.random() for _ in range(count)]
        first = [round(min(1.0, max(0.0, h + random.gauss(-0.1, 0.1))), 2) for h in hard]
        second = [round(min(1.0, max(0.0, h + random.gauss(0.1, 0.15))), 2) for h in hard]
        yield first, second, draw_problems(random, count, draws), cut
    yield ([float(random.random() < 0.6) for _ in range(10)],
           [float(random.random() < 0.5) for _ in range(10)], draw_problems(random, 10, 40), 1)


def right(first: list[float], second: list[float], draws: Draws, cut: int) -> object:
    import torch
    gains = torch.tensor(second, dtype=torch.float64) - torch.tensor(first, dtype=torch.float64)
    means = gains[torch.tensor(draws)].mean(1)
    low = means.kthvalue(cut + 1).values
    return [gains.mean(), low, -(-means).kthvalue(cut + 1).values]


def turns_round(answer: Answer, first: list[float], second: list[float], draws: Draws, cut: int) -> bool:
    gain, low, high = answer(first, second, draws, cut)
    return near(answer(second, first, draws, cut), [-gain, -high, -low], 1e-4)


def hardness_cancels(answer: Answer, first: list[float], second: list[float], draws: Draws, cut: int) -> bool:
    """What makes a problem hard for both is in no difference."""
    hard = [3.0 * i for i in range(len(first))]
    moved = ([x + h for x, h in zip(row, hard, strict=True)] for row in (first, second))
    return near(answer(*moved, draws, cut), answer(first, second, draws, cut), 1e-4)


def order_of_draws(answer: Answer, first: list[float], second: list[float], draws: Draws, cut: int) -> bool:
    return near(answer(first, second, draws[::-1], cut), answer(first, second, draws, cut), 1e-6)


EXERCISE = Exercise(
    name="paired-bootstrap", title="Two models on the same problems", chapter=10, function="compare",
    statement="""
Two models answered the same problems. One has the higher mean; would it have, on other problems of that
kind? Draw problems from those at hand, with replacement, many times, and look how the gain varies.
Most of what varies is how hard a problem is, and that is the same for both models: so keep the pairs.

Write `compare(first, second, draws, cut)`. `first[i]` and `second[i]` are the two models' scores on
problem i. `draws` is a list of draws that were made already, each a list of problem numbers in which a
number may occur several times. Return three numbers:

    gain = mean over all problems of second[i] - first[i]
    low, high

For the ends, take the mean of second[i] - first[i] over each draw, sort these means and leave out the
`cut` smallest and the `cut` largest: low and high are the first and the last of the rest.

    compare([0, 1], [1, 1], [[0, 0], [0, 1], [1, 1], [1, 0]], 1) -> (0.5, 0.5, 0.5)
""",
    starter="""
def compare(first, second, draws, cut):
    ...
    return gain, low, high
""",
    hints=(
        "Make one list of differences first; the scores themselves are not needed any more.",
        "A draw is a list of places in that list: its mean is a sum over the draw, divided by its length.",
        "Sorted, the ends stand at cut and at len(means) - 1 - cut.",
    ),
    solution="""
def compare(first, second, draws, cut):
    gains = [b - a for a, b in zip(first, second)]
    gain = sum(gains) / len(gains)
    means = sorted(sum(gains[i] for i in draw) / len(draw) for draw in draws)
    return gain, means[cut], means[len(means) - 1 - cut]
""",
    mistakes=(
        Mistake(says="Your gain is first less second: asked for is second less first.",
                old="[b - a for a, b", new="[a - b for a, b"),
        Mistake(says="You took absolute differences: a problem on which the second is worse counts against "
                     "it.",
                old="[b - a for a, b", new="[abs(b - a) for a, b"),
        Mistake(says="You cut nothing off: low and high are then the extremes of all draws.",
                old="means[cut], means[len(means) - 1 - cut]", new="means[0], means[-1]"),
        Mistake(says="You cut off one too few at the upper end.", old="means[len(means) - 1 - cut]",
                new="means[min(len(means) - cut, len(means) - 1)]"),
        Mistake(says="You cut off one too many at the upper end.", old="means[len(means) - 1 - cut]",
                new="means[len(means) - 2 - cut]"),
        Mistake(says="You cut off one too many at the lower end.", old="means[cut]", new="means[cut + 1]"),
        Mistake(says="You cut off one too few at the lower end.", old="means[cut]",
                new="means[max(cut - 1, 0)]"),
        Mistake(says="You cut off at the lower end only: as many go at the upper one.",
                old="means[len(means) - 1 - cut]", new="means[-1]"),
        Mistake(says="You cut off at the upper end only: as many go at the lower one.",
                old="means[cut]", new="means[0]"),
        Mistake(says="You did not sort the means of the draws.",
                old="sorted(sum(gains[i] for i in draw) / len(draw) "
                "for draw in draws)", new="[sum(gains[i] for i in draw) / len(draw) for draw in draws]"),
        Mistake(says="The two ends are swapped: low comes first.",
                old="means[cut], means[len(means) - 1 - cut]", new="means[len(means) - 1 - cut], means[cut]"),
        Mistake(says="Your gain is the mean of the draws' means: it is the mean over the problems as they "
                     "are.",
                old="return gain,", new="return sum(means) / len(means),"),
        Mistake(says="Your gain is the middle one of the draws: it is the mean over the problems.",
                old="return gain,", new="return means[len(means) // 2],"),
        Mistake(says="You summed a draw's differences: asked for is their mean.",
                old="sum(gains[i] for i in draw) / len(draw)", new="sum(gains[i] for i in draw)"),
        Mistake(says="You summed the gain: asked for is the mean over problems.",
                old="gain = sum(gains) / len(gains)", new="gain = sum(gains)"),
        Mistake(says="You broke the pairs: the second model's scores have to come from the same draw as the "
                     "first's.", old="sum(gains[i] for i in draw) / len(draw) for draw in draws",
                new="(sum(second[i] for i in draw) - sum(first[i] for i in other)) / len(draw) "
                    "for draw, other in zip(draws, draws[1:] + draws[:1])"),
        Mistake(says="You counted each problem of a draw once: one that was drawn twice counts twice.",
                old="sum(gains[i] for i in draw) / len(draw)",
                new="sum(gains[i] for i in set(draw)) / len(set(draw))"),
        Mistake(says="You left the first problem of each draw out.",
                old="sum(gains[i] for i in draw) / len(draw)",
                new="sum(gains[i] for i in draw[1:]) / (len(draw) - 1)"),
        Mistake(says="You compared the draws with the first model alone: it is the differences that are "
                     "drawn.",
                old="sum(gains[i] for i in draw)", new="sum(first[i] for i in draw)"),
        Mistake(says="You drew the second model's scores alone: it is the differences that are drawn.",
                old="sum(gains[i] for i in draw)", new="sum(second[i] for i in draw)"),
        Mistake(says="You returned the distances of the ends from the gain, not the ends.",
                old="means[cut], means[len(means) - 1 - cut]",
                new="gain - means[cut], means[len(means) - 1 - cut] - gain"),
        Mistake(says="You divided the gain by its size in the first model: asked for is the difference "
                     "itself.",
                old="gain = sum(gains) / len(gains)", new="gain = sum(gains) / max(sum(first), 1e-9)"),
    ),
    cases=cases, right=right,
    parts={"the gain": itemgetter(0), "the low end": itemgetter(1), "the high end": itemgetter(2)},
    properties=(
        Property(says="With the models swapped, gain and interval are mirrored.", holds=turns_round),
        Property(says="What makes a problem easier for both models changes nothing.", holds=hardness_cancels),
        Property(says="The order of the draws does not matter.", holds=order_of_draws),
        AGAIN,
    ),
)

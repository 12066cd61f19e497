"""An answer against the others to the same prompt."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from postgrad.studio.exercises.base import AGAIN, Answer, Exercise, Mistake, Property
from postgrad.studio.exercises.values import near
from postgrad.studio.json_types import Values


def cases(random: Random) -> Iterator[Values]:
    yield [1.0, 0.0, 0.0, 1.0], 4
    yield [1.0, 1.0, 1.0, 0.0, 0.0, 1.0], 3
    yield [0.3, 0.3, 0.3, 0.3, 0.0, 1.0, 2.0, 3.0], 4
    for group in (2, 3, 4, 8):
        yield [round(random.gauss(i // group, 1), 3) for i in range(3 * group)], group
    yield [float(random.random() < 0.4) for _ in range(32)], 8


def right(rewards: list[float], group: int) -> object:
    import torch

    from postgrad.maths.credit import group_zscore
    column = torch.tensor(rewards, dtype=torch.float64)[:, None]
    return group_zscore(column, torch.ones_like(column, dtype=torch.bool), group)[:, 0]


def group_sums_to_zero(answer: Answer, rewards: list[float], group: int) -> bool:
    found = answer(rewards, group)
    return all(abs(sum(found[i: i + group])) < 1e-3 for i in range(0, len(found), group))


def ignores_shift(answer: Answer, rewards: list[float], group: int) -> bool:
    return near(answer([r + 5 for r in rewards], group), answer(rewards, group), 1e-3)


def ignores_scale(answer: Answer, rewards: list[float], group: int) -> bool:
    return near(answer([7 * r for r in rewards], group), answer(rewards, group), 1e-3)


def flat_is_zero(answer: Answer, rewards: list[float], group: int) -> bool:
    """Also where a mean of equal numbers is not quite that number, as with three times 0.1."""
    return all(abs(x) < 1e-3 for size in (3, 6, 7)
               for x in answer([0.1] * size + [0.7] * size + [1 / 3] * size, size))


def takes_whole_scores(answer: Answer, rewards: list[float], group: int) -> bool:
    """Rewards can be integers; advantages are not."""
    whole = [round(3 * r) for r in rewards]
    floats = [float(r) for r in whole]
    return near(answer(whole, group), answer(floats, group), 1e-3)


def small_unit(answer: Answer, rewards: list[float], group: int) -> bool:
    return near(answer([0.01, 0.0, 0.0, 0.01], 4), answer([1.0, 0.0, 0.0, 1.0], 4), 0.03)


EXERCISE = Exercise(
    name="group-advantages", title="Group advantages", chapter=4, function="advantages",
    statement="""
GRPO needs no critic: an answer is judged against the other answers to the same prompt.

Write `advantages(rewards, group)`. `rewards` is a list of numbers; every `group` consecutive ones
belong to one prompt. Return as many numbers: each reward minus the mean of its group, divided by the
standard deviation of its group. The deviation is that of the population, with 1/G under the root.

    advantages([1, 0, 0, 1], 4) -> [1, -1, -1, 1]

A group in which all rewards are equal teaches nothing: its advantages are 0.
""",
    starter="""
def advantages(rewards, group):
    ...
""",
    hints=(
        "Cut the list into pieces of `group` rewards and treat each piece by itself.",
        "For each piece: its mean, then the root of the mean squared distance from that mean.",
        "Where that root is 0, all distances are 0 as well: a tiny number added to the divisor is enough.",
    ),
    solution="""
def advantages(rewards, group):
    found = []
    for start in range(0, len(rewards), group):
        piece = rewards[start: start + group]
        mean = sum(piece) / group
        std = (sum((r - mean) ** 2 for r in piece) / group) ** 0.5
        found += [(r - mean) / (std + 1e-6) for r in piece]
    return found
""",
    mistakes=(
        Mistake(says="You divided by the standard deviation of the batch, not of the group.",
                old="std = (sum((r - mean) ** 2 for r in piece) / group) ** 0.5",
                new="whole = sum(rewards) / len(rewards)\n"
                    "        std = (sum((r - whole) ** 2 for r in rewards) / len(rewards)) ** 0.5"),
        Mistake(says="You took mean and standard deviation over the whole batch: prompts are mixed.",
                old="piece = rewards[start: start + group]\n        mean = sum(piece) / group\n"
                    "        std = (sum((r - mean) ** 2 for r in piece) / group) ** 0.5",
                new="piece = rewards[start: start + group]\n        mean = sum(rewards) / len(rewards)\n"
                    "        std = (sum((r - mean) ** 2 for r in rewards) / len(rewards)) ** 0.5"),
        Mistake(says="You divided the sum of squares by G - 1; asked for is the population's deviation, "
                     "with G "
                     "(`torch.std` and `statistics.stdev` use G - 1 unless told).",
                old="/ group) ** 0.5", new="/ (group - 1)) ** 0.5"),
        Mistake(says="You did not divide by the standard deviation: that is Dr. GRPO.",
                old="/ (std + 1e-6)", new=""),
        Mistake(says="You did not subtract the mean of the group: there is no baseline.",
                old="(r - mean) / (std", new="r / (std"),
        Mistake(says="You divided by the variance: the root is missing.", old=" ** 0.5", new=""),
        Mistake(says="You divided by 0 in a group whose rewards are all equal: its advantages are 0.",
                old="(std + 1e-6)", new="std"),
        Mistake(says="You took every G-th reward as a group; the answers to one prompt stand side by side.",
                old="""for start in range(0, len(rewards), group):
        piece = rewards[start: start + group]
        mean = sum(piece) / group
        std = (sum((r - mean) ** 2 for r in piece) / group) ** 0.5
        found += [(r - mean) / (std + 1e-6) for r in piece]
    return found""",
                new="""count = len(rewards) // group
    for i, r in enumerate(rewards):
        piece = rewards[i % count:: count]
        mean = sum(piece) / group
        std = (sum((r - mean) ** 2 for r in piece) / group) ** 0.5
        found.append((r - mean) / (std + 1e-6))
    return found"""),
        Mistake(says="You compared each answer with the mean of the others: that is RLOO's baseline, and "
                     "there "
                     "is no deviation in it.",
                old="(r - mean) / (std + 1e-6)", new="(r - mean) * group / (group - 1)"),
        Mistake(says="The sign is turned round: a better answer has to get the higher advantage.",
                old="(r - mean) /", new="(mean - r) /"),
        Mistake(says="Your groups are interleaved: you took every G-th reward from the first G on.",
                old="        piece = rewards[start: start + group]",
                new="        piece = rewards[start // group:: group]"),
        Mistake(says="You compared each answer with the mean of the others (leave-one-out): here it is in "
                     "its "
                     "own mean.",
                old="(r - mean) / (std", new="((r - mean) * group / (group - 1)) / (std"),
        Mistake(says="Your deviation is the mean absolute one: asked for is the root of the mean square.",
                old="(sum((r - mean) ** 2 for r in piece) / group) ** 0.5",
                new="sum(abs(r - mean) for r in piece) / group"),
        Mistake(says="You divided by the sum of squares' root: the squares are averaged before the root.",
                old="(sum((r - mean) ** 2 for r in piece) / group) ** 0.5",
                new="sum((r - mean) ** 2 for r in piece) ** 0.5"),
        Mistake(says="You took the root of the squares around 0: they are around the mean of the group.",
                old="sum((r - mean) ** 2 for r in piece)", new="sum(r ** 2 for r in piece)"),
        Mistake(says="You divided by the range of the group: asked for is its standard deviation.",
                old="std = (sum((r - mean) ** 2 for r in piece) / group) ** 0.5",
                new="std = max(piece) - min(piece)"),
        Mistake(says="You scaled from 0 to 1: a group's advantages lie around 0.",
                old="(r - mean) / (std + 1e-6)", new="(r - min(piece)) / (max(piece) - min(piece) + 1e-6)"),
        Mistake(says="You subtracted the mean of the whole batch: each prompt has its own.",
                old="(r - mean) / (std", new="(r - sum(rewards) / len(rewards)) / (std"),
        Mistake(says="You subtracted the sum of the group: asked for is its mean.",
                old="mean = sum(piece) / group", new="mean = sum(piece)"),
        Mistake(says="You subtracted the best of the group: asked for is the mean.",
                old="(r - mean) / (std", new="(r - max(piece)) / (std"),
        Mistake(says="You subtracted the median of the group: asked for is the mean.",
                old="        std =", new="        order = sorted(piece)\n"
                "        mean = (order[(group - 1) // 2] + order[group // 2]) / 2\n        std ="),
        Mistake(says="You multiplied by the standard deviation: divide by it.",
                old="/ (std + 1e-6)", new="* (std + 1e-6)"),
        Mistake(says="You added the mean: it is subtracted.", old="(r - mean) / (std",
                new="(r + mean) / (std"),
        Mistake(says="You added too much to the deviation: a group of rewards like 0.01 and 0 would be "
                     "pressed "
                     "flat.", old="1e-6", new="0.01"),
        Mistake(says="You added 1 to the deviation: a tiny number is enough.", old="1e-6", new="1"),
        Mistake(says="Your pieces are one reward too short.", old="start + group]", new="start + group - 1]"),
        Mistake(says="Your pieces are one reward too long.", old="start + group]", new="start + group + 1]"),
        Mistake(says="You stopped after the first group.", old="    return found",
                new="        break\n    return found"),
        Mistake(says="You divided each group's sum by the whole number of rewards: a mean divides by G.",
                old="mean = sum(piece) / group", new="mean = sum(piece) / len(rewards)"),
        Mistake(says="You weighed the deviations to the fourth power: they are squared.",
                old="(r - mean) ** 2", new="(r - mean) ** 4"),
        Mistake(says="You cubed the deviations: they are squared.", old="(r - mean) ** 2",
                new="abs(r - mean) ** 3"),
        Mistake(says="You gave whole numbers: advantages are not.", old="(r - mean) / (std + 1e-6)",
                new="round((r - mean) / (std + 1e-6))"),
        Mistake(says="Your mean divides by G - 1: a mean divides by G.", old="mean = sum(piece) / group",
                new="mean = sum(piece) / (group - 1)"),
        Mistake(says="Your mean is over one reward too many.", old="mean = sum(piece) / group",
                new="mean = sum(piece) / (group + 1)"),
        Mistake(says="You divided by G + 1 in the deviation: asked for is G.",
                old="/ group) ** 0.5", new="/ (group + 1)) ** 0.5"),
    ),
    cases=cases, right=right,
    properties=(
        Property(says="The advantages of a group sum to 0.", holds=group_sums_to_zero),
        Property(says="A constant added to all rewards changes nothing.", holds=ignores_shift),
        Property(says="Rewards in another unit give the same advantages.", holds=ignores_scale),
        Property(says="Equal rewards give 0, whatever number they are.", holds=flat_is_zero),
        Property(says="Rewards of 1 and 0 give the same as 1.0 and 0.0.", holds=takes_whole_scores),
        Property(says="Rewards of 0.01 and 0 teach as much as 1 and 0.", holds=small_unit),
        AGAIN,
    ),
    tolerance=1e-3,
)

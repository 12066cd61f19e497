"""A new row of the table: an algorithm of one's own."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter
from random import Random
from statistics import median

from postgrad.studio.exercises.base import Answer, Exercise, Mistake, Property
from postgrad.studio.json_types import Values

CHANGED = {"name", "credit", "surrogate", "weigh", "kl_in_loss", "kl_in_reward"}
TOLD = {"paper", "about", "file"}  # words about a row, which its writer may choose


def cases(random: Random) -> Iterator[Values]:
    yield [0.0, 1.0, 5.0, 6.0], [3, 1, 2, 3], 4, [0.0, 0.5, -0.5, 0.26]
    yield [1.0, 0.0, 0.0, 4.0, 4.0, 7.0], [2, 2, 1, 3, 1, 2], 3, [0.1, 0.3, -0.3, 0.22, -0.22, 0.0]
    for group in (2, 4, 5):
        count = 2 * group
        yield ([round(random.gauss(i // group, 1), 2) for i in range(count)],
               [random.randint(1, 4) for _ in range(count)], group,
               [round(random.gauss(0, 0.4), 3) for _ in range(count)])


def observe(answer: Answer, rewards: list[float], lengths: list[int], group: int,
            moved: list[float]) -> object:
    """What a row does to a small batch: the first token of each line is the prompt's, then so many sampled
    ones, whose log-probabilities have moved by so much since they were sampled."""
    import torch

    from postgrad import methods
    width = max(lengths) + 2
    mask = torch.tensor([[1 <= t <= n for t in range(width)] for n in lengths])
    reward = torch.zeros(mask.shape, dtype=torch.float64)
    for i, (n, r) in enumerate(zip(lengths, rewards, strict=True)):
        reward[i, n] = r
    old = torch.full_like(reward, -1.0)
    row = answer()
    adv = row.credit(reward, mask, group)
    loss, _ = row.surrogate(old + torch.tensor(moved, dtype=torch.float64)[:, None], old, adv, mask)
    return {"name": row.name, "advantages": adv, "losses": loss * mask, "weights": row.weigh(mask, width),
            "KL in the loss": row.kl_in_loss, "KL in the reward": row.kl_in_reward,
            "changed besides": sorted(name for name, ours in vars(methods.get_method("grpo")).items()
                                      if name not in CHANGED | TOLD and getattr(row, name) != ours)}


def right(rewards: list[float], lengths: list[int], group: int, moved: list[float]) -> object:
    from math import exp
    width, total = max(lengths) + 2, sum(lengths)
    adv, loss = [], []
    for i, r in enumerate(rewards):
        start = i - i % group
        adv.append(r - median(rewards[start: start + group]))
        ratio = exp(moved[i])
        loss.append(-min(ratio * adv[-1], min(max(ratio, 0.8), 1.28) * adv[-1]))

    def spread(numbers: list[float]) -> list[list[float]]:
        return [[x if 1 <= t <= n else 0.0 for t in range(width)]
                for x, n in zip(numbers, lengths, strict=True)]
    return {"name": "median", "advantages": spread(adv), "losses": spread(loss),
            "weights": spread([1 / total] * len(rewards)), "KL in the loss": 0.0, "KL in the reward": 0.0,
            "changed besides": []}


def row_weights_sum_to_one(answer: Answer, *batch: object) -> bool:
    return abs(sum(map(sum, answer(*batch)["weights"])) - 1) < 1e-5


def nothing_outside(answer: Answer, rewards: list[float], lengths: list[int], group: int,
                    moved: list[float]) -> bool:
    found = answer(rewards, lengths, group, moved)["advantages"]
    return all(row[0] == 0 and not any(row[n + 1:]) for row, n in zip(found, lengths, strict=True))


EXERCISE = Exercise(
    name="new-row", title="A new row of the table", chapter=5, function="row", observe=observe,
    statement="""
An algorithm is a row: functions and constants. Write one that is not in the table: GRPO with the median
of the group as its baseline, which one lucky answer cannot move.

Write `row()`, which returns it. Begin with `method("grpo", ...)` from `postgrad` and change what
differs:

    name       "median"
    credit     (reward [B, T], mask [B, T], group_size) -> advantages [B, T]
    surrogate  PPO's clipped ratio, with DAPO's bounds: low 0.2, high 0.28
    weigh      every sampled token of the batch counts the same
    kl_in_loss 0

The credit is a line's summed reward minus the median of its group, on every sampled token, and 0 outside
the mask; there is no standard deviation. Of an even number of rewards the median is the mean of the two
in the middle. The lines of one prompt stand side by side.

The functions `clipped_ratio` (postgrad.maths.surrogate) and `token_mean` (postgrad.maths.weights) are
there; the credit is yours.
""",
    starter="""
from functools import partial

import torch

from postgrad import method
from postgrad.maths.surrogate import clipped_ratio
from postgrad.maths.weights import token_mean


def median_centre(reward, mask, group_size):
    ...


def row():
    return method("grpo", name="median")
""",
    hints=(
        "`method(\"grpo\", name=..., credit=..., ...)` gives a changed row; constants are bound with "
        "`partial`.",
        "reward.sum(1).reshape(-1, group_size) has a prompt in each line; subtract the line's median.",
        "torch.median gives the lower of two middle values; `quantile(0.5, dim=1, keepdim=True)` gives "
        "their mean.",
    ),
    solution="""
from functools import partial

import torch

from postgrad import method
from postgrad.maths.surrogate import clipped_ratio
from postgrad.maths.weights import token_mean


def median_centre(reward, mask, group_size):
    total = reward.sum(1).reshape(-1, group_size)
    adv = total - total.quantile(0.5, dim=1, keepdim=True)
    return torch.where(mask, adv.reshape(-1, 1), 0.0)


def row():
    return method("grpo", name="median", credit=median_centre,
                  surrogate=partial(clipped_ratio, low=0.2, high=0.28), weigh=token_mean, kl_in_loss=0.0)
""",
    mistakes=(
        Mistake(says="Your baseline is the mean of the group: asked for is the median.",
                old="total.quantile(0.5, dim=1, keepdim=True)", new="total.mean(1, keepdim=True)"),
        Mistake(says="torch.median takes the lower of two middle values: of an even number the median is "
                     "their "
                     "mean.", old="total.quantile(0.5, dim=1, keepdim=True)",
                new="total.median(1, keepdim=True).values"),
        Mistake(says="You took the median of the whole batch: prompts are mixed.",
                old="total.quantile(0.5, dim=1, keepdim=True)", new="total.quantile(0.5)"),
        Mistake(says="You took the median along the wrong axis, over prompts instead of over the group.",
                old="dim=1, keepdim", new="dim=0, keepdim"),
        Mistake(says="You kept GRPO's KL in the loss: set kl_in_loss to 0.", old=", kl_in_loss=0.0", new=""),
        Mistake(says="You kept GRPO's symmetric clip: the upper bound is 0.28.",
                old="high=0.28", new="high=0.2"),
        Mistake(says="You kept GRPO's mean of sequence means: every token is to count the same.",
                old=", weigh=token_mean", new=""),
        Mistake(says="You gave advantages to tokens outside the mask: the prompt is not the policy's.",
                old="torch.where(mask, adv.reshape(-1, 1), 0.0)",
                new="adv.reshape(-1, 1).expand(mask.shape)"),
        Mistake(says="You divided by the standard deviation: this row does not.",
                old="    return torch.where(mask",
                new="    adv = adv / total.std(1, keepdim=True, correction=0).clamp(min=1e-6)\n"
                    "    return torch.where(mask"),
        Mistake(says="You kept GRPO's credit: yours has to be handed to the row.",
                old=" credit=median_centre,", new=""),
        Mistake(says="The row still has GRPO's name, or another: call it median.",
                old='name="median", ', new=""),
        Mistake(says="You began with DAPO's row, which also samples flat groups again and limits the length.",
                old='method("grpo"', new='method("dapo"'),
        Mistake(says="The bounds are swapped: low is 0.2, high 0.28.",
                old="low=0.2, high=0.28", new="low=0.28, high=0.2"),
        Mistake(says="Your groups are interleaved: the lines of one prompt stand side by side.",
                old="total = reward.sum(1).reshape(-1, group_size)\n"
                    "    adv = total - total.quantile(0.5, dim=1, keepdim=True)\n",
                new="total = reward.sum(1).reshape(group_size, -1).T\n"
                    "    adv = (total - total.quantile(0.5, dim=1, keepdim=True)).T\n"),
        Mistake(says="You compared each line with the median of the others (leave-one-out): here it is in "
                     "its own "
                     "group.",
                old="adv = total - total.quantile(0.5, dim=1, keepdim=True)",
                new="others = [torch.cat([total[:, :i], total[:, i + 1:]], 1).quantile(0.5, dim=1)\n"
                    "              for i in range(group_size)]\n    adv = total - torch.stack(others, 1)"),
        Mistake(says="The credit stands on the last sampled token alone: every sampled token gets it.",
                old="    return torch.where(mask, adv.reshape(-1, 1), 0.0)",
                new="    last = mask & (mask.flip(1).cumsum(1).flip(1) == 1)\n"
                    "    return torch.where(last, adv.reshape(-1, 1), 0.0)"),
        Mistake(says="The credit stands on the first sampled token alone: every sampled token gets it.",
                old="    return torch.where(mask, adv.reshape(-1, 1), 0.0)",
                new="    first = mask & (mask.cumsum(1) == 1)\n"
                    "    return torch.where(first, adv.reshape(-1, 1), 0.0)"),
        Mistake(says="You took a line's mean reward over its tokens: it is its summed reward.",
                old="reward.sum(1).reshape", new="(reward.sum(1) / mask.sum(1)).reshape"),
        Mistake(says="You took the mean over all columns: it is the line's summed reward.",
                old="reward.sum(1).reshape", new="reward.mean(1).reshape"),
        Mistake(says="The sign of the credit is turned round: reward less median.",
                old="adv = total - total.quantile(0.5, dim=1, keepdim=True)",
                new="adv = total.quantile(0.5, dim=1, keepdim=True) - total"),
        Mistake(says="You added the median: it is subtracted.", old="adv = total - total",
                new="adv = total + total"),
        Mistake(says="There is no baseline: subtract the median of the group.",
                old="adv = total - total.quantile(0.5, dim=1, keepdim=True)", new="adv = total"),
        Mistake(says="Your credit is the median itself, without the line's reward.",
                old="adv = total - total.quantile(0.5, dim=1, keepdim=True)",
                new="adv = total.quantile(0.5, dim=1, keepdim=True).expand(total.shape)"),
        Mistake(says="Your baseline is the best of the group: asked for is the median.",
                old="total.quantile(0.5, dim=1, keepdim=True)",
                new="total.quantile(1.0, dim=1, keepdim=True)"),
        Mistake(says="Your baseline is the worst of the group: asked for is the median.",
                old="total.quantile(0.5, dim=1, keepdim=True)",
                new="total.quantile(0.0, dim=1, keepdim=True)"),
        Mistake(says="You gave the sampled tokens 0 and the others the credit: it is the mask's tokens that "
                     "are the "
                     "policy's.", old="torch.where(mask, adv.reshape(-1, 1), 0.0)",
                new="torch.where(mask, 0.0, adv.reshape(-1, 1))"),
        Mistake(says="The lower bound of the clip is not 0.2.", old="low=0.2", new="low=0.1"),
        Mistake(says="The lower bound of the clip is not 0.2.", old="low=0.2", new="low=0.4"),
        Mistake(says="The upper bound of the clip is not 0.28.", old="high=0.28", new="high=0.56"),
        Mistake(says="You left the lower bound at another value, or the clip out: low 0.2 and high 0.28.",
                old="low=0.2, high=0.28", new="low=1.0, high=1e6"),
        Mistake(says="The weights are not those of `token_mean`.", old="weigh=token_mean",
                new="weigh=lambda mask, budget: mask.double() / mask.shape[0]"),
        Mistake(says="The KL in the loss is not 0.", old="kl_in_loss=0.0", new="kl_in_loss=1.0"),
        Mistake(says="The KL in the loss is not 0.", old="kl_in_loss=0.0", new="kl_in_loss=-1.0"),
        Mistake(says="Outside the mask the credit is 0.", old="adv.reshape(-1, 1), 0.0)",
                new="adv.reshape(-1, 1), 1.0)"),
        Mistake(says="Outside the mask the credit is 0.", old="adv.reshape(-1, 1), 0.0)",
                new="adv.reshape(-1, 1), -1.0)"),
    ),
    cases=cases, right=right,
    library=("postgrad", "postgrad.method", "postgrad.methods.row.method", "postgrad.methods.method",
             "postgrad.maths.surrogate.clipped_ratio", "postgrad.maths.weights.token_mean"),
    parts={"the row's name": itemgetter("name"), "the credit": itemgetter("advantages"),
           "the surrogate": itemgetter("losses"), "the weights": itemgetter("weights"),
           "the KL": itemgetter("KL in the loss", "KL in the reward"),
           "the rest of the row": itemgetter("changed besides")},
    properties=(
        Property(says="The weights of a batch sum to 1.", holds=row_weights_sum_to_one),
        Property(says="Nothing is learned outside the mask.", holds=nothing_outside),
    ),
    tolerance=1e-5,
)

"""Small experiments of the chapters, as functions that a cell can edit."""

from __future__ import annotations

import random

import torch
from torch import Tensor

from postgrad.maths.credit import group_centre, kl_penalty, place_reward
from postgrad.maths.intervals import mean_interval
from postgrad.maths.preference import bradley_terry
from postgrad.maths.surrogate import clipped_ratio, clipped_value, policy_gradient
from postgrad.maths.weights import token_mean


def comparisons(rewards: list[float], count: int, seed: int) -> Tensor:  # -> [count, 2]: winner, loser
    """Random pairs of different items; the first wins as often as Bradley-Terry says."""
    draw = torch.Generator().manual_seed(seed)
    true = torch.tensor(rewards, dtype=torch.float64)
    first = torch.randint(len(rewards), (count,), generator=draw)
    second = (first + torch.randint(1, len(rewards), (count,), generator=draw)) % len(rewards)
    wins = torch.rand(count, generator=draw, dtype=torch.float64) < torch.sigmoid(true[first] - true[second])
    return torch.stack([torch.where(wins, first, second), torch.where(wins, second, first)], 1)


def recovered_rewards(rewards: list[float], count: int, seed: int = 0) -> list[float]:
    """Rewards fitted to comparisons alone, by gradient descent on the pair loss; their mean is 0."""
    winner, loser = comparisons(rewards, count, seed).T
    fitted = torch.zeros(len(rewards), dtype=torch.float64, requires_grad=True)
    for _ in range(60):
        loss = bradley_terry(fitted[winner], fitted[loser], torch.zeros(count)).mean()
        (slope,) = torch.autograd.grad(loss, fitted)
        fitted.data -= 5.0 * slope
    return (fitted - fitted.mean()).tolist()


def clipped_and_raw(ratios: list[float], advantage: float, clip: float) -> tuple[list[float], list[float]]:
    """What a token adds to the objective at each ratio: held by the clip, and as it is."""
    ratio = torch.tensor([ratios], dtype=torch.float64)
    adv, mask = torch.full_like(ratio, advantage), torch.ones_like(ratio, dtype=torch.bool)
    loss, _ = clipped_ratio(ratio.log(), torch.zeros_like(ratio), adv, mask, low=clip, high=clip)
    return (-loss[0]).tolist(), (ratio * adv)[0].tolist()


def rewards_per_token(logp: list[float], ref_logp: list[float], score: float, beta: float) -> list[float]:
    """The reward of each token of one answer: the price of the KL on every one, the score on the last."""
    now, ref = (torch.tensor([row], dtype=torch.float64) for row in (logp, ref_logp))
    mask = torch.ones_like(now, dtype=torch.bool)
    paid = place_reward(torch.tensor([score], dtype=torch.float64), mask)
    return kl_penalty(paid, now, ref, mask, beta)[0].tolist()


def ppo_loss(p: list[float], old: list[float], advantage: float, value: float, old_value: float,
             returns: float, *, clip: float = 0.2, value_weight: float = 0.5,
             entropy_weight: float = 0.01) -> tuple[float, float, float]:
    """The three terms of PPO's loss where the first token of these probabilities was sampled, as they stand
    in the sum: the policy's, the critic's, the entropy bonus."""
    chances, before, adv, v, old_v, goal = (torch.tensor([x], dtype=torch.float64) for x in (
        p, old, [advantage], [value], [old_value], [returns]))
    mask = torch.ones_like(adv, dtype=torch.bool)
    policy, _ = clipped_ratio(chances[:, :1].log(), before[:, :1].log(), adv, mask, low=clip, high=clip)
    critic = clipped_value(v, old_v, goal, clip=clip)
    entropy = -torch.xlogy(chances, chances).sum()
    return policy.item(), value_weight * critic.item(), -entropy_weight * entropy.item()


def sharpened(start: list[float], rewards: list[float], beta: float, steps: int,
              rate: float = 0.1) -> list[list[float]]:
    """The probabilities of a few answers, step by step, under the exact gradient of the mean reward less
    beta times the KL from the start, in the logits."""
    reward, ref = (torch.tensor(x, dtype=torch.float64) for x in (rewards, start))
    logits, path = ref.log(), [start]
    for _ in range(steps):
        p = torch.softmax(logits, -1)
        worth = reward - beta * (p / ref).log()
        logits = logits + rate * p * (worth - (p * worth).sum())
        path.append(torch.softmax(logits, -1).tolist())
    return path


def simplified(start: list[float], rewards: list[float], group: int, steps: int, rate: float,
               seed: int = 0) -> list[float]:
    """nanochat's loop on one prompt with a few answers of one token: the mean reward of the policy, before
    each step."""
    draw, path = torch.Generator().manual_seed(seed), []
    logits, reward = (torch.tensor(x, dtype=torch.float64) for x in (start, rewards))
    logits = logits.log()
    for _ in range(steps):
        logits = logits.detach().requires_grad_()
        logp = torch.log_softmax(logits, -1)
        path.append((logp.exp() * reward).sum().item())
        taken = torch.multinomial(logp.exp().detach(), group, replacement=True, generator=draw)[:, None]
        mask = torch.ones_like(taken, dtype=torch.bool)
        adv = group_centre(reward[taken], mask, group)
        loss, _ = policy_gradient(logp[taken], logp[taken].detach(), adv, mask)
        (slope,) = torch.autograd.grad((loss * token_mean(mask, 1)).sum(), logits)
        logits = logits - rate * slope
    return path


def interval_coverage(chances: list[float], problems: int, samples: int, by_problem: bool, draws: int = 100,
                      seed: int = 0) -> float:
    """How often the 95 % interval of pass@1 holds the true mean. An evaluation draws problems of these
    chances, then samples of each. by_problem: whether a problem or a sample is one value."""
    draw, truth, held = random.Random(seed), sum(chances) / len(chances), 0
    for _ in range(draws):
        asked = draw.choices(chances, k=problems)
        right = [[float(draw.random() < chance) for _ in range(samples)] for chance in asked]
        values = [sum(row) / samples for row in right] if by_problem else [x for row in right for x in row]
        _, low, high = mean_interval(values, (0.0, 1.0))
        held += low <= truth <= high
    return held / draws


def on_path(slip: float, recovers: float, length: int) -> list[float]:
    """The chance that a student is on its teacher's path after each token. On the path it leaves it with the
    chance `slip`; off the path it finds back with the chance `recovers`."""
    chances, here = [], 1.0
    for _ in range(length):
        here = here * (1 - slip) + (1 - here) * recovers
        chances.append(here)
    return chances


def plan_returns(bonus: float, turns: int, finds: float, taken_back: bool = False) -> tuple[float, float]:
    """The mean returns of two players in a game that pays 1 for the answer, and `bonus` for each good turn
    before it. One finds the answer with the chance `finds` a turn and ends the game; the other makes good
    turns and never answers. taken_back: the end of the game takes back the bonuses that were paid."""
    solve, alive = 0.0, 1.0
    for turn in range(turns):
        paid = 0.0 if taken_back else turn * bonus
        solve += alive * finds * (1.0 + paid)
        alive *= 1.0 - finds
    left = 0.0 if taken_back else turns * bonus
    return solve + alive * left, left

"""From rewards to advantages: how much each sampled token is praised. One signature, whatever the method:

    credit(reward [B, T], mask [B, T], group_size) -> adv [B, T], zero outside the mask

Further columns of the batch it takes by keyword: gae the critic's value [B, T], distil two log-probs. It sees
a whole collection at once.

The samples of one prompt are contiguous rows, group_size of them. Group functions look at a row's summed
reward and give all its tokens the same advantage; a row with an empty mask (a rollout kept out of the loss)
does not count in its group.
"""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from postgrad.maths.logprob import align, row_sum
from postgrad.system.settings import FRACTION

FLAT = 1e-6  # a spread of rewards below this is rounding, not a signal


def place_reward(score: Tensor, mask: Tensor) -> Tensor:  # [B], [B, T] -> [B, T]
    """The score of a row on its last sampled token, zero elsewhere.

    A row without sampled tokens gets nothing.
    """
    last = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
    return torch.where(last, score[:, None], 0.0)


def kl_penalty(reward: Tensor, logp: Tensor, ref_logp: Tensor, mask: Tensor,
               beta: float) -> Tensor:  # all [B, T]
    """reward_t - beta (logp_t - ref_logp_t) on every sampled token (Ziegler et al. 2019, 1909.08593): k1
    inside the reward."""
    return reward - beta * torch.where(mask, logp - ref_logp, 0.0)


# [B] -> [B] in [-1, 0], to be added to the score
def overlong(lengths: Tensor, budget: int, cache: int) -> Tensor:
    """0 up to budget - cache tokens, then linear down to -1 at the budget (DAPO 2503.14476, eq. 13)."""
    return ((budget - cache - lengths) / cache).clamp(-1.0, 0.0)


def by_prompt(x: Tensor, group_size: int) -> Tensor:  # [B] -> [P, G]
    """The rows of one prompt side by side."""
    if group_size < 1 or len(x) % group_size:
        fits = [g for g in range(2, len(x) + 1) if len(x) % g == 0]
        best = min(fits, key=lambda g: abs(g - group_size), default=1)
        raise ValueError(
            f"{len(x)} rows cannot be split into groups of {group_size}: set rollouts.group_size to a "
            f"divisor, e.g. {best}."
        )
    return x.reshape(-1, group_size)


def flat_groups(score: Tensor, group_size: int) -> Tensor:  # [B] -> [P] bool
    """The groups in which all scores are equal: no advantage, so no gradient comes from them."""
    group = by_prompt(score, group_size)
    return group.amax(1) - group.amin(1) <= FLAT


def _centred(reward: Tensor, mask: Tensor, group_size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Row sums minus the mean of their group [P, G], which rows count [P, G], and how many in
    each group [P, 1]."""
    counts = by_prompt(mask.any(1), group_size)
    total = by_prompt(row_sum(reward), group_size)
    size = counts.sum(1, keepdim=True).clamp(min=1)
    first = total.gather(1, counts.int().argmax(1, keepdim=True))
    gap = torch.where(counts, total - first, 0.0)  # measured from one of them: equal rewards give exactly 0
    return torch.where(counts, gap - gap.sum(1, keepdim=True) / size, 0.0), counts, size


def _spread(adv: Tensor, mask: Tensor) -> Tensor:  # [P, G], [B, T] -> [B, T]
    return torch.where(mask, adv.reshape(-1, 1), 0.0)


def raw(reward: Tensor, mask: Tensor, group_size: int) -> Tensor:
    """Every token gets the summed reward of its row: REINFORCE without a baseline (Williams 1992)."""
    return torch.where(mask, row_sum(reward)[:, None], 0.0)


def reward_to_go(reward: Tensor, mask: Tensor, group_size: int) -> Tensor:
    """Every token gets the rewards from itself on.

    Same mean gradient as raw, less noise; gae with V = 0, gamma = lam = 1.
    """
    return torch.where(mask, reward.flip(1).cumsum(1).flip(1), 0.0)


def group_centre(reward: Tensor, mask: Tensor, group_size: int) -> Tensor:
    """A_i = r_i - mean(r) (Dr. GRPO 2503.20783).

    Each row is in its own baseline: the mean gradient is (G-1)/G of the exact.
    """
    return _spread(_centred(reward, mask, group_size)[0], mask)


def leave_one_out(reward: Tensor, mask: Tensor, group_size: int) -> Tensor:
    """A_i = r_i - mean of the others = G/(G-1) (r_i - mean(r)) (RLOO, 2402.14740).

    (1, 0, 0) gives (1, -0.5, -0.5).

    A row left alone in its group has no others to be compared with: its advantage is 0.
    """
    if group_size < 2:
        raise ValueError(f"leave_one_out compares samples of one prompt, and group_size is {group_size}: set "
                         "it to 2 or more.")
    adv, _, size = _centred(reward, mask, group_size)
    return _spread(adv * size / (size - 1).clamp(min=1), mask)


def group_zscore(reward: Tensor, mask: Tensor, group_size: int) -> Tensor:
    """A_i = (r_i - mean(r)) / std(r), population std (GRPO 2402.03300).

    (1, 0, 0, 1) gives exactly (1, -1, -1, 1).

    The std is not taken below FLAT, in place of the usual std + eps: shift- and scale-invariant, and
    all-equal gives 0.
    """
    adv, _, size = _centred(reward, mask, group_size)
    std = ((adv**2).sum(1, keepdim=True) / size).sqrt()
    return _spread(adv / std.clamp(min=FLAT), mask)


def turn_zscore(reward: Tensor, mask: Tensor, group_size: int) -> Tensor:
    """group_zscore for each turn by itself: of the rewards from turn k on, against those of the group's other
    k-th turns.

        R_{i,k} = sum of r_i from its turn k on,    A_{i,k} = (R_{i,k} - mean_j R_{j,k}) / std_j R_{j,k}
    A turn is a run of sampled tokens; observed tokens lie between two. Two rows of two turns with the rewards
    (1, 0) and (0, 0): the first turns get 1 and -1, the second 0 and 0. With one turn it is group_zscore.
    """
    number = (mask & ~align(mask)).cumsum(1)
    turns = [mask & (number == k) for k in range(1, int(number.max()) + 1)]
    left = [torch.where(mask & (number >= k), reward, 0.0) for k in range(1, len(turns) + 1)]
    return sum((group_zscore(r, turn, group_size) for r, turn in zip(left, turns, strict=True)),
               start=torch.zeros_like(reward))


def batch_scaled(reward: Tensor, mask: Tensor, group_size: int) -> Tensor:
    """A_i = (r_i - mean of its group) / std(r of the whole collection), population std (Lite PPO 2508.08221).

    (1, 0), (0, 0): the collection's std is sqrt(3)/4, so the advantages are (2/sqrt 3, -2/sqrt 3), (0, 0):
    a group that differs by little is not blown up to the size of one that differs by much.
    """
    adv, counts, _ = _centred(reward, mask, group_size)
    total = by_prompt(row_sum(reward), group_size)[counts]
    std = total.std(unbiased=False) if len(total) else total.sum()
    return _spread(adv / std.clamp(min=FLAT), mask)


def advantage_scaled(reward: Tensor, mask: Tensor, group_size: int) -> Tensor:
    """A_i = a_i / std(a over the collection), a_i = r_i - mean of its group, population std (ScaleRL
    2510.13786).

    (1, 0), (0, 0): a = (1/2, -1/2, 0, 0) with a std of sqrt(1/8), so the advantages are (sqrt 2, -sqrt 2),
    (0, 0). batch_scaled divides by the rewards' own spread, which holds that between prompts too.
    """
    adv, counts, _ = _centred(reward, mask, group_size)
    std = ((adv**2).sum() / counts.sum().clamp(min=1)).sqrt()
    return _spread(adv / std.clamp(min=FLAT), mask)


def over_mean(
    reward: Tensor, mask: Tensor, group_size: int, *,
    all_wrong: Annotated[float, "the advantage of every reply in a group without a success: 0, or -1",
                         "-1 adds the term k = G to the objective, and with it the noise of prompts that are "
                         "never solved"] = 0.0,
) -> Tensor:
    """A_i = (r_i - m) / m, m the mean of the group; `all_wrong` where m is not above 0 (MaxRL 2602.02710).

        E[1/G sum_i A_i grad log pi(y_i)] = sum_{k <= K} (1/k) grad pass@k,    the first K terms of grad log p
    for rewards of 0 and 1, p the chance of a 1. K = G - 1 with all_wrong = 0, K = G with -1, which is the
    formula carried on to m = 0. (1, 0, 0, 0) gives (3, -1, -1, -1): a rare success counts for more.
    """
    adv, counts, size = _centred(reward, mask, group_size)
    mean = torch.where(counts, by_prompt(row_sum(reward), group_size), 0.0).sum(1, keepdim=True) / size
    return _spread(torch.where(mean > FLAT, adv / mean.clamp(min=FLAT), all_wrong), mask)


def length_weighted(reward: Tensor, mask: Tensor, group_size: int) -> Tensor:
    """A_i = r_i - sum_j |y_j| r_j / sum_j |y_j| (OPO 2505.23585): the baseline with the least noise where a
    reply's squared gradient grows as its length.

    Rewards (1, 0) of 3 and 1 tokens: the baseline is 3/4, the advantages (1/4, -3/4).
    """
    adv, _, _ = _centred(reward, mask, group_size)
    length = by_prompt(mask.sum(1), group_size).to(adv)
    baseline = (length * adv).sum(1, keepdim=True) / length.sum(1, keepdim=True).clamp(min=1)
    return _spread(adv - baseline, mask)


def each_reward(reward: Tensor, mask: Tensor, group_size: int, *, parts: Tensor,
                part_weights: Tensor) -> Tensor:  # parts, part_weights [B, K]
    """a_i = sum_k w_k (r_k,i - mean(r_k)) / std(r_k), A_i = (a_i - mean(a)) / std(a): each of several rewards
    is normalised in its group, then their sum over all rollouts of the collection, each counted once,
    whatever its length (GDPO 2601.05242; population stds).

    Four samples with rewards (1, 0), (0, 1), (0, 0), (1, 1) of weight 1 have the sums (0, 0, -2, 2), of std
    sqrt 2, and get (0, 0, -sqrt 2, sqrt 2); the same with the second reward ten times as large, where
    group_zscore of the sum nearly forgets the first. A part that is NaN was not judged, and has no say.
    """
    total = torch.zeros_like(reward)
    for k in range(parts.shape[1]):
        there = mask & parts[:, k].isfinite()[:, None]
        placed = place_reward(parts[:, k].nan_to_num().to(reward), there)
        total = total + part_weights[:, k: k + 1] * group_zscore(placed, there, group_size)
    first = mask & (mask.cumsum(1) == 1)  # a rollout's tokens have one advantage: it counts by its first
    centred, std = _over_tokens(total, first)
    return _spread(centred.sum(1) / std.clamp(min=FLAT), mask)


def gae(
    reward: Tensor, mask: Tensor, group_size: int, *, value: Tensor,
    gamma: Annotated[float, FRACTION, "how much a later reward counts for an earlier token",
                     "leave it at 1: a reply is one short episode"] = 1.0,
    lam: Annotated[float, FRACTION, "how far a reward is passed back without the critic's word: 1 all the "
                   "way, 0 a token",
                   "1 where the critic is poor (explained_variance near 0): less bias, more noise"] = 0.95,
) -> Tensor:
    """Generalised advantage estimation (Schulman et al. 2015, 1506.02438) along the sampled tokens of each
    row.

        delta_t = r_t + gamma V_{t+1} - V_t,    A_t = delta_t + gamma lam A_{t+1}
    V = A = 0 after the last token. "Next" is the next sampled token: a gap in the mask (a tool's reply) is
    part of one transition. lam = 0 gives delta_t, lam = 1 the return less V_t.
    """
    next_value, next_adv = torch.zeros_like(reward[:, 0]), torch.zeros_like(reward[:, 0])
    columns = []
    for t in reversed(range(reward.shape[1])):
        sampled = mask[:, t]
        adv = reward[:, t] + gamma * next_value - value[:, t] + gamma * lam * next_adv
        columns.append(torch.where(sampled, adv, 0.0))
        next_adv = torch.where(sampled, adv, next_adv)
        next_value = torch.where(sampled, value[:, t], next_value)
    return torch.stack(columns[::-1], dim=1)


def distil(
    reward: Tensor, mask: Tensor, group_size: int, *, teacher_logp: Tensor, old_logp: Tensor,
    gamma: Annotated[float, FRACTION,
                     "how much of what follows a token answers for: 0 itself alone, 1 all of it",
                     "above 0 where a choice is right by itself and leads astray later; more noise"] = 0.0,
) -> Tensor:
    """What a teacher thinks of each token, against what the policy thought of it when it sampled it (Lu et
    al. 2025, On-Policy Distillation; GKD 2306.13649, MiniLLM 2306.08543).

        A_t = d_t + gamma A_{t+1},    d_t = log teacher(y_t) - log pi_old(y_t)
    gamma = 0: each token by itself. gamma = 1: with all that follows, and then sum_t A_t grad log pi_t has
    the mean -grad KL(pi || teacher) exactly. The verdict has no say; a policy that is its teacher gets 0.
    """
    gap = kl_penalty(torch.zeros_like(old_logp), old_logp, teacher_logp, mask, 1.0)
    return gae(gap, mask, group_size, value=torch.zeros_like(gap), gamma=gamma, lam=1.0)


def distil_per_token(reward: Tensor, mask: Tensor, group_size: int, *, teacher_logp: Tensor,
                     old_logp: Tensor) -> Tensor:
    """distil, each token by itself: what a teacher thinks of it, against what the policy thought."""
    return distil(reward, mask, group_size, teacher_logp=teacher_logp, old_logp=old_logp)


def whiten(adv: Tensor, mask: Tensor) -> Tensor:  # [B, T], [B, T] -> [B, T]
    """Advantages with mean 0 and population std 1 over all sampled tokens of the batch (PPO's codes;
    not in the paper)."""
    centred, spread = _over_tokens(adv, mask)
    return centred / spread.clamp(min=FLAT)


def scale_rewards(reward: Tensor, mask: Tensor) -> Tensor:  # [B, T], [B, T] -> [B, T]
    """Rewards with population std 1 over all sampled tokens of the collection, and the mean they had: Ziegler
    et al.'s code (1909.08593), before any advantage is made of them.

        r' = (r - m) / s + m
    Rewards that are all equal are left as they are.
    """
    centred, spread = _over_tokens(reward, mask)
    return torch.where(mask & (spread > FLAT), reward - centred + centred / spread.clamp(min=FLAT), reward)


def _over_tokens(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:  # [B, T], []
    """x minus its mean over the mask, 0 elsewhere, and its population std."""
    count = mask.sum().clamp(min=1)
    centred = torch.where(mask, x - torch.where(mask, x, 0.0).sum() / count, 0.0)
    return centred, ((centred**2).sum() / count).sqrt()

"""The closed-form optimum of KL-regularised reward on the toy language,
and rows of the table trained towards it.

    max over pi of E[r] - beta KL(pi || ref)    has the solution    pi*(y) = ref(y) exp(r(y) / beta) / Z
Every row is trained through its own objective, credit and weights, from samples,
starting at the reference. What is set for the
theorem: the KL coefficient is beta, and GRPO's KL stands in the reward. Nothing else needs to be:
- With the KL in the reward, R(y) = r(y) - beta log(pi(y)/ref(y)) is the same number, beta log Z, for every y
  at pi*. So every
  advantage is 0 there, whatever divides them (GRPO's std and 1/length, PPO's whitening), clips them or
      discounts them (lambda).
  PPO's are so by a critic that has learnt it; REINFORCE's, without a baseline, are one constant, so its noise
      stays.
- KL in the loss, token by token, is another matter (see grpo_rows), so the paper's GRPO has another fixed
  point.
- PPO's entropy bonus does move the optimum: at 0.001 by too little to be seen beside these betas, so it
  stays.
- DPO has no samples of its own: its labels are drawn from sigmoid(r_1 - r_2), and its optimum is pi* with r
  at that scale.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from types import SimpleNamespace

import torch
from torch import Tensor
from toy import (
    LONGEST,
    MASK,
    REFERENCE,
    REWARD,
    STATES,
    TOKENS,
    Judge,
    Talker,
    choices,
    rollout_batch,
    state_of,
)

from postgrad.maths import credit, kl, preference, surrogate, weights
from postgrad.methods import METHODS, Policy, Preference
from postgrad.records import Batch
from postgrad.training import objectives

BETAS, GROUP = (0.3, 1.0), 16
REF = Talker(REFERENCE)


def distance(a: Tensor, b: Tensor) -> float:
    """Total variation: half the sum of |a - b| over the 15 sequences."""
    return 0.5 * (a - b).abs().sum().item()


def optimum(beta: float) -> Tensor:  # [15]
    """pi*: the reference, tilted by the reward."""
    return torch.softmax(REF.row_logp() + REWARD / beta, 0)


def shortsighted(beta: float) -> Tensor:  # [15]
    """pi(a|s) = ref(a|s) exp(Q(s, a) / beta) / Z(s), with Q the mean reward after a,
    from the last token backwards.

    Where pi* weighs a by what is to come less the KL it will cost, this policy forgets that KL: the fixed
    point when the KL is a loss on each token (its own, never what it brings about later), with k2's gradient.
    """
    table = REFERENCE.clone()
    for state, rows in choices():
        later = (Talker(table).logp(TOKENS, MASK)[0] * (state_of(TOKENS) > state)).sum(1).exp()
        table[0, state] = REFERENCE[0, state] + (rows * later * REWARD).sum(1) / beta
    return Talker(table).row_logp().exp()


def grpo_rows(beta: float) -> dict[str, Policy]:
    """GRPO as the paper has it and what it becomes, one step after another, on the way to pi*.

    The std makes the reward larger or smaller beside the KL, by the spread of the policy's own rewards; k3 in
    the loss has the gradient of KL(ref||pi) and not of KL(pi||ref); 1/length favours the short; and a KL in
    the loss is shortsighted. Three of these mended one by one leave the fourth. The KL in the reward mends
    all at once, for then the advantages vanish at pi*.
    """
    row = replace(METHODS["grpo"], kl_in_loss=beta)
    centred = replace(row, credit=credit.group_centre)
    return {
        "grpo as in the paper": row,
        "grpo, no std": centred,
        "grpo, no std, k2": replace(centred, kl_estimator=kl.k2),
        "grpo, no std, k2, sequence sum": replace(centred, kl_estimator=kl.k2, weigh=weights.sequence_sum),
        "grpo, KL in the reward": replace(row, kl_in_loss=0.0, kl_in_reward=beta),
    }


def rows_at(beta: float) -> dict[str, Policy | Preference]:
    """The rows of the table with beta as their KL coefficient: those of THEOREM, and GRPO's others."""
    reward = {name: replace(METHODS[name], kl_in_reward=beta) for name in ("ppo", "reinforce", "rloo")}
    dpo = replace(METHODS["dpo"], loss=partial(preference.dpo, beta=beta))
    return {**reward, "dpo": dpo, **grpo_rows(beta)}


THEOREM = ("ppo", "reinforce", "rloo", "grpo, KL in the reward", "dpo")  # the rows whose fixed point is pi*


@cache
def solution(name: str, beta: float, seed: int = 0) -> Tensor:  # [15]
    """Where the row of that name ends."""
    method = rows_at(beta)[name]
    return prefer(method, seed) if isinstance(method, Preference) else reinforce(method, seed)


def reinforce(method: Policy, seed: int, *, steps: int = 150, samples: int = 256) -> Tensor:
    """On-policy samples at every step; two epochs on them where the row looks at the ratio.

    The critic starts at 0.
    """
    epochs = 1 if method.surrogate is surrogate.policy_gradient else 2
    draw = torch.Generator().manual_seed(seed)
    critic = Judge(torch.zeros(STATES, dtype=torch.float64, requires_grad=True))

    def batches(policy):
        for _ in range(steps):
            with torch.no_grad():
                rows = torch.multinomial(policy.row_logp().exp(), samples, replacement=True, generator=draw)
                batch = rollout_batch(method, rows, policy, REF, critic, GROUP)
            yield from [batch] * epochs

    return descend(method, batches, critic, steps * epochs)


def prefer(method: Preference, seed: int, *, steps: int = 300, pairs: int = 1_000_000) -> Tensor:
    """A fixed set of pairs of different samples of the reference, labelled by Bradley-Terry on the reward.

    A pair that was drawn many times is one unit with that much weight: all of the set is in every step.
    """
    draw = torch.Generator().manual_seed(seed)
    first, second = (torch.multinomial(REF.row_logp().exp(), pairs, replacement=True, generator=draw)
                     for _ in range(2))
    won = (torch.rand(pairs, generator=draw, dtype=torch.float64)
           < torch.sigmoid(REWARD[first] - REWARD[second]))
    chosen, rejected = torch.where(won, first, second), torch.where(won, second, first)
    count = torch.bincount((chosen * len(TOKENS) + rejected)[first != second], minlength=len(TOKENS) ** 2)
    unit = count.nonzero().squeeze(1)
    rows = torch.stack([unit // len(TOKENS), unit % len(TOKENS)], 1).flatten()
    batch = Batch(
        ids=tuple(map(str, rows.tolist())), tokens=TOKENS[rows], mask=MASK[rows],
        lengths=torch.full((len(rows),), 1 + LONGEST), weight=count[unit] / count.sum(), rows_per_unit=2,
        ref_logp=REF.logp(TOKENS[rows], MASK[rows])[0],
    )
    return descend(method, lambda policy: [batch] * steps, None, steps)


def descend(method: Policy | Preference, batches: Callable, critic: Judge | None, updates: int) -> Tensor:
    """Adam from the reference, its rate going to 0 in a straight line: the policy it ends with, [15]."""
    policy = Talker(REFERENCE.clone().requires_grad_())
    models = SimpleNamespace(policy=policy, critic=critic)
    optim = torch.optim.Adam([policy.table, *([critic.table] if critic else [])], lr=0.1)
    rate = torch.optim.lr_scheduler.LinearLR(optim, 1.0, 0.0, total_iters=updates)
    objective = objectives.build_objective(method)
    for batch in batches(policy):
        loss, _ = objective(models, batch)
        optim.zero_grad()
        (loss * batch.weight).sum().backward()
        optim.step()
        rate.step()
    return policy.row_logp().exp().detach()

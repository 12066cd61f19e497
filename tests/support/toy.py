"""A language small enough to be listed whole, and policies that are tables:
for the learning and the oracle tests.

The language: tokens 0 (stop), 1 and 2, at most three of them; 15 sequences in all.
Column 0 of a row is its prompt.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from types import SimpleNamespace

import torch
from torch import Tensor

from postgrad.maths import credit
from postgrad.methods import Policy
from postgrad.models.protocols import Choices
from postgrad.records import Batch, Verdict
from postgrad.training import objectives
from postgrad.training.batches.columns import credit_columns, weigh_minibatch
from postgrad.training.batches.shuffled import model_logp

V, LONGEST = 3, 3
STATES = 1 + V + V * V  # what was said so far: nothing, one token, two tokens


def sequences() -> tuple[Tensor, Tensor]:
    """All 15 rows: tokens [15, 4], mask [15, 4]."""
    rows = [(0,), *((a, 0) for a in (1, 2)), *((a, b, c) for a in (1, 2) for b in (1, 2) for c in (0, 1, 2))]
    tokens = torch.tensor([(0, *row, *(0,) * (LONGEST - len(row))) for row in rows])
    mask = torch.tensor([[False] + [t < len(row) for t in range(LONGEST)] for row in rows])
    return tokens, mask


TOKENS, MASK = sequences()
# What a verifier might ask: 0.25 for coming to a stop, and 0.75 more if a 2 was said before it.
REWARD = (TOKENS[:, 3] == 0) * (0.25 + 0.75 * (TOKENS == 2).any(1).double())


VERDICTS = [SimpleNamespace(verdict=Verdict(
    score=float(r), weights={"stop": 0.25, "two": 0.75}, parts={"stop": float(r > 0), "two": float(r == 1)}))
    for r in REWARD]


@contextmanager
def paying(reward: Tensor) -> Iterator[None]:
    """Another reward of the 15 sequences, for a while."""
    global REWARD
    before, REWARD = REWARD, reward
    try:
        yield
    finally:
        REWARD = before


# [B, T] -> [B, T]: the state in which the token of each column is chosen
def state_of(tokens: Tensor) -> Tensor:
    first, second = tokens[:, 1], tokens[:, 2]
    zero = torch.zeros_like(first)
    return torch.stack([zero, zero, 1 + first, 1 + V + V * first + second], dim=1)[:, : tokens.shape[1]]


def every_choice(logits: Tensor, mask: Tensor) -> Choices:
    """The choices of masked tokens, of which column t of the logits [B, T, V] tells that of token t."""
    cells = mask.flatten().nonzero().squeeze(1)
    return Choices(states=logits.flatten(0, 1)[cells], read=lambda part: part, cells=cells)


class Talker:
    """A policy over the language: logits [1 or B, STATES, V].

    With B tables, row i of a batch speaks by table i.
    """

    def __init__(self, table: Tensor):
        self.table = table

    def logits(self, tokens: Tensor) -> Tensor:
        table = self.table.expand(len(tokens), -1, -1)
        return table.gather(1, state_of(tokens)[..., None].expand(-1, -1, V))

    def logp(self, tokens: Tensor, mask: Tensor, temperature: float = 1.0,
             packed=None) -> tuple[Tensor, Tensor]:
        every = torch.log_softmax(self.logits(tokens) / temperature, -1)
        chosen = every.gather(-1, tokens[..., None]).squeeze(-1)
        return torch.where(mask, chosen, 0.0), torch.where(mask, -(every.exp() * every).sum(-1), 0.0)

    def choices(self, tokens: Tensor, mask: Tensor, packed=None) -> Choices:
        return every_choice(self.logits(tokens), mask)

    def row_logp(self) -> Tensor:
        """log pi(y) of each of the 15 sequences."""
        return self.logp(TOKENS, MASK)[0].sum(1)

    def expected(self, reward: Tensor = REWARD) -> Tensor:
        return (self.row_logp().exp() * reward).sum()


class Judge:
    """A critic over the language: a value for each state [STATES]."""

    def __init__(self, table: Tensor):
        self.table = table

    def value(self, tokens: Tensor, packed=None) -> Tensor:
        return self.table[state_of(tokens)]


def random_table(seed: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(1, STATES, V, generator=torch.Generator().manual_seed(seed),
                               dtype=torch.float64)


def rollout_batch(method: Policy, rows: Tensor, old: Talker, reference: Talker, critic: Judge,
                  group_size: int) -> Batch:
    """Sampled rows (indices into the 15) as a policy batch, by the assembly line's own functions."""
    tokens, mask = TOKENS[rows], MASK[rows]
    batch = Batch(ids=tuple(map(str, range(len(rows)))), tokens=tokens, mask=mask, weight=mask.double(),
                  lengths=torch.full((len(rows),), 1 + LONGEST),
                  scored=tuple(VERDICTS[i] for i in rows.tolist()),
                  sampler_logp=old.logp(tokens, mask)[0].detach())
    models = SimpleNamespace(policy=old, reference=reference, critic=critic, teacher=Talker(TEACHER))
    with_ref = (replace(batch, ref_logp=model_logp(reference, batch, 10**9)[0])
                if reference and not method.needs_reference else batch)
    filled = credit_columns(with_ref, credit.place_reward(REWARD[rows], mask), method, models,
                            group_size=group_size,
                     kl=method.kl_in_reward, tokens_per_pass=10**9)
    filled = replace(filled, ref_logp=with_ref.ref_logp) if filled.ref_logp is None else filled
    return weigh_minibatch(filled, method, LONGEST, group_size)


def choices():
    """Every state that can be reached, the last ones first, with a bool [V, 15]: the sequences that go
    on with each token."""
    for state in reversed(range(STATES)):
        here = (state_of(TOKENS) == state) & MASK
        if here.any():
            yield state, torch.stack([(here & (TOKENS == token)).any(1) for token in range(V)])


def table_of(chance: Tensor) -> Tensor:  # [15] -> [1, STATES, V]
    """The policy with these probabilities of whole sequences."""
    table = torch.zeros(1, STATES, V, dtype=torch.float64)
    for state, rows in choices():
        table[0, state] = (rows * chance).sum(1).log()
    return table


# The oracle: the exact gradient of the objective, and the exact mean and noise of every estimator of it.

POLICY = random_table(0)
REFERENCE = random_table(0) + random_table(1, 0.3)
OLD = random_table(0) + random_table(2, 0.2)
EAGER = 3.0  # what a reward of 1 is worth to the teacher, in nats
TEACHER = table_of(torch.softmax(Talker(POLICY).row_logp() + EAGER * REWARD, 0))  # the policy, tilted by it


def exact_gradient(beta: float, reward: Tensor | None = None, reference: Tensor = REFERENCE) -> Tensor:
    """The gradient of E[r] - beta KL(pi || ref), by summing over all sequences."""
    table = POLICY.clone().requires_grad_()
    logp, ref_logp = Talker(table).row_logp(), Talker(reference).row_logp()
    (logp.exp() * ((REWARD if reward is None else reward) - beta * (logp - ref_logp))).sum().backward()
    return table.grad[0]


def objective_gradient(method: Policy) -> Tensor:
    """The exact gradient of what a row says that it climbs: with a teacher, -KL(pi || teacher)."""
    if method.teacher:
        return exact_gradient(1.0, torch.zeros_like(REWARD), TEACHER)
    return exact_gradient(method.kl_in_reward + method.kl_in_loss)


def exact_values(beta: float) -> Tensor:
    """V(state) of the policy, KL penalty included: the critic that knows."""
    talker, reference = Talker(POLICY), Talker(REFERENCE)
    logp, ref_logp = talker.logp(TOKENS, MASK)[0], reference.logp(TOKENS, MASK)[0]
    reward = credit.kl_penalty(credit.place_reward(REWARD, MASK), logp, ref_logp, MASK, beta)
    to_go = credit.reward_to_go(reward, MASK, 1)
    state = state_of(TOKENS)
    reach = logp.sum(1, keepdim=True).exp()
    value = torch.zeros(STATES, dtype=torch.float64)
    for s in range(STATES):
        here = (state == s) & MASK
        value[s] = (to_go * reach)[here].sum() / (reach.expand_as(to_go)[here].sum() if here.any() else 1.0)
    return value


def pass_at_k_gradient(reward: Tensor, most: int) -> Tensor:
    """The gradient of sum_{k <= most} pass@k / k, pass@k = 1 - (1 - p)^k, p the chance of a reward of 1."""
    table = POLICY.clone().requires_grad_()
    p = Talker(table).expected(reward)
    sum((1 - (1 - p) ** k) / k for k in range(1, most + 1)).backward()
    return table.grad[0]


CRITIC = exact_values(0.02) + random_table(3, 0.2)[0, :, 0]  # about right, as a trained critic is


@dataclass(frozen=True)
class Measured:
    """mean [STATES, V]: the exact mean of the ascent direction of one step.

    noise: the square root of its total variance.
    """

    mean: Tensor
    noise: float


def every_group(size: int) -> tuple[Tensor, Tensor]:
    """Every group of so many samples [N, size], and in how many orders each can come [N].

    No row looks at the order.
    """
    groups = list(itertools.combinations_with_replacement(range(len(TOKENS)), size))
    orders = [math.factorial(size) / math.prod(math.factorial(group.count(x)) for x in set(group))
              for group in groups]
    return torch.tensor(groups), torch.tensor(orders, dtype=torch.float64)


def stepwise(method: Policy) -> Policy:
    """The row with its credit and whitening taken in each group by itself, even where they see others."""

    @wraps(method.credit)  # so that it takes the same columns
    def apart(reward: Tensor, mask: Tensor, group_size: int, **wants: Tensor) -> Tensor:
        parts = [method.credit(reward[i: i + group_size], mask[i: i + group_size], group_size,
                               **{name: x[i: i + group_size] for name, x in wants.items()})
                 for i in range(0, len(reward), group_size)]
        masks = mask.split(group_size)
        return torch.cat([credit.whiten(a, m) for a, m in zip(parts, masks, strict=True)] if method.whiten
                         else parts)

    return replace(method, credit=apart, whiten=False)


def measure(method: Policy, group_size: int = 3, off_policy: bool = False,
            critic: Tensor = CRITIC) -> Measured:
    """Every possible group of samples of one prompt, weighed by its probability,
    through the real objective of the row.

    Each row of the batch speaks by its own copy of the table,
    so one backward pass gives every group's gradient by itself.
    """
    old = Talker(OLD if off_policy else POLICY)
    groups, orders = every_group(group_size)
    chance = orders * old.row_logp()[groups].sum(1).exp()
    if method.resample_flat:  # sampled again until the scores differ: the distribution given that they do
        keep = ~credit.flat_groups(REWARD[groups.flatten()], group_size)
        groups, chance = groups[keep], chance[keep] / chance[keep].sum()
    batch = rollout_batch(stepwise(method), groups.flatten(), old, Talker(REFERENCE), Judge(critic),
                          group_size)
    steps = [weigh_minibatch(batch.take(i, i + group_size, width=1 + LONGEST), method,
                             LONGEST, group_size)  # a step is one group
             for i in range(0, len(batch), group_size)]
    made = {name: torch.cat([getattr(step, name) for step in steps])
            for name in ("weight", "marked", "correction") if getattr(steps[0], name) is not None}
    batch = replace(batch, **made)
    tables = POLICY.repeat(len(batch), 1, 1).requires_grad_()
    models = SimpleNamespace(policy=Talker(tables), critic=Judge(critic), teacher=Talker(TEACHER))
    loss, _ = objectives.build_objective(method)(models, batch)
    (loss * batch.weight).sum().backward()
    each = -tables.grad.view(len(groups), group_size, STATES, V).sum(1)  # [N, STATES, V]
    mean = (chance[:, None, None] * each).sum(0)
    return Measured(mean, float((chance * ((each - mean) ** 2).sum((1, 2))).sum().sqrt()))


def compare(method: Policy, group_size: int = 3, critic: Tensor = CRITIC) -> dict:
    """How far the mean of a row's estimator is from the exact gradient, on policy,
    and off policy (samples of an older policy).

    scale: the multiple of the exact gradient that the mean is closest to; relative_bias:
        what is left, over that multiple;
    noise: the standard deviation of one group's gradient over the same length.
    """
    exact = objective_gradient(method)
    on = measure(method, group_size, critic=critic)
    off = measure(method, group_size, off_policy=True, critic=critic)
    scale = (on.mean * exact).sum() / (exact**2).sum()
    return {
        "method": method.name, "claims_unbiased": method.unbiased, "scale": float(scale),
        "relative_bias": float((on.mean - scale * exact).norm() / (scale * exact).norm()),
        "cosine": cosine(on.mean, exact), "cosine_off_policy": cosine(off.mean, exact),
        "noise": on.noise / float((scale * exact).norm()),
    }


def cosine(a: Tensor, b: Tensor) -> float:
    return float((a * b).sum() / (a.norm() * b.norm()))

"""Every row of the table learns: a few steps through its real objective make what was rewarded,
chosen or shown likelier."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
import toy

from postgrad.maths.select import best_and_worst
from postgrad.maths.weights import token_mean
from postgrad.methods import METHODS, SOURCES, get_method
from postgrad.records import Batch
from postgrad.training import objectives
from postgrad.training.stats import Stats

STEPS, PROMPTS, GROUP = 40, 4, 8
GOOD, BAD = (toy.REWARD == 1).nonzero().squeeze(1), (toy.REWARD < 1).nonzero().squeeze(1)


class Scorer:
    """A reward model over the language: a number for each sequence of two tokens and a
    last one, [V, V, V]."""

    def __init__(self):
        self.table = torch.zeros(toy.V, toy.V, toy.V, dtype=torch.float64, requires_grad=True)

    def scores(self, tokens, lengths, packed=None):
        return self.table[tokens[:, 1], tokens[:, 2], tokens[:, 3]][:, None]


class StepScorer:
    """A scalar head over the language: a number after each beginning, by how much of it was said,
    [4, V, V, V]."""

    def __init__(self):
        self.table = torch.zeros(1 + toy.LONGEST, toy.V, toy.V, toy.V, dtype=torch.float64,
                                 requires_grad=True)

    def token_scores(self, tokens, packed=None):
        said = [tokens * (torch.arange(1 + toy.LONGEST) <= t) for t in range(1 + toy.LONGEST)]
        return torch.stack([self.table[t, x[:, 1], x[:, 2], x[:, 3]] for t, x in enumerate(said)], dim=1)


def step_batch(method, rows):
    """Steps: all is right until a 1 is said. Outcomes: what the verifier says, at the last token."""
    tokens, mask = toy.TOKENS[rows], toy.MASK[rows]
    right = (tokens == 1).cumsum(1) == 0
    if method.source == "outcomes":
        mask = mask & (mask.flip(1).cumsum(1).flip(1) == 1)
        right = (toy.REWARD[rows] == 1)[:, None].expand_as(mask)
    label = torch.where(mask, right.double() * 2 - 1, 0.0)
    return replace(batch_of(rows, weight=token_mean(mask, toy.LONGEST), label=label), mask=mask)


def batch_of(rows, **columns):
    ids = tuple(map(str, range(len(rows))))
    lengths = torch.full((len(rows),), 1 + toy.LONGEST)
    return Batch(ids=ids, tokens=toy.TOKENS[rows], mask=toy.MASK[rows], lengths=lengths, **columns)


def pair_batch(chosen, rejected, reference):
    rows = torch.stack([chosen, rejected], 1).flatten()
    weight = torch.full((len(chosen),), 1 / max(len(chosen), 1))
    ref_logp = reference.logp(toy.TOKENS[rows], toy.MASK[rows])[0]
    return batch_of(rows, weight=weight, rows_per_unit=2, ref_logp=ref_logp, margin=torch.zeros(len(chosen)))


def next_batch(method, models, draw):
    """One batch for a row, by its source: drawn from a fixed set, or sampled from the policy as it is now."""
    sampled = torch.multinomial(models.policy.row_logp().exp(), PROMPTS * GROUP, True, generator=draw)
    good, bad = (x[torch.randint(0, len(x), (16,), generator=draw)] for x in (GOOD, BAD))
    if method.source == "rollouts":
        return toy.rollout_batch(method, sampled, models.policy, models.reference, models.critic, GROUP)
    if method.source in ("steps", "outcomes"):
        return step_batch(method, torch.cat([good, bad]))
    if method.source == "pairs":
        return pair_batch(good, bad, models.reference)
    if method.source == "rollouts to pairs":
        best, worst = best_and_worst(toy.REWARD[sampled], GROUP)
        return pair_batch(sampled[best], sampled[worst], models.reference)
    if method.source == "singles":
        rows, label = torch.cat([good, bad]), torch.tensor([1.0] * 16 + [-1.0] * 16)
        ref_logp = models.reference.logp(toy.TOKENS[rows], toy.MASK[rows])[0]
        return batch_of(rows, weight=torch.full((32,), 1 / 32), ref_logp=ref_logp, label=label,
                        baseline=torch.zeros(32))
    best = {"best": float(toy.REWARD.max())} if method.wanted else {}
    chosen = good if method.source == "conversations" else method.select(toy.REWARD[sampled], GROUP, **best)
    rows = good if method.source == "conversations" else sampled[chosen]
    return batch_of(rows, weight=method.weigh(toy.MASK[rows], toy.LONGEST))


def learn(method, epochs=None, steps=STEPS, lr=0.05):
    """STEPS batches, each used `epochs` times: twice (so that ratios leave 1) where the row has a ratio.

    The models, and the results of every step.
    """
    epochs = epochs or (2 if getattr(method, "ratio", True) else 1)
    policy = toy.POLICY.clone().requires_grad_()
    critic = torch.zeros(toy.STATES, dtype=torch.float64, requires_grad=True)
    models = SimpleNamespace(policy=toy.Talker(policy), reference=toy.Talker(toy.POLICY),
                             critic=toy.Judge(critic), reward=None, teacher=toy.Talker(toy.TEACHER))
    scorer = StepScorer() if method.source in ("steps", "outcomes") else Scorer()
    trained = (SimpleNamespace(policy=scorer) if method.kind == "preference" and method.score is None
               else models)
    optim = torch.optim.Adam([{"params": [policy, scorer.table], "lr": lr}, {"params": [critic], "lr": 0.05}])
    objective, draw, results = objectives.build_objective(method), torch.Generator().manual_seed(0), []
    for _ in range(steps):
        with torch.no_grad():
            batch = next_batch(method, models, draw)
        for _ in range(epochs):
            loss, stats = objective(trained, batch)
            optim.zero_grad()
            (loss * batch.weight).sum().backward()
            optim.step()
            results.append(stats.results())
    return models, scorer, results


@pytest.mark.parametrize("name", METHODS)
def test_a_row_makes_the_good_likelier(name):
    method = METHODS[name]
    models, scorer, results = learn(method)
    assert all(value == value and abs(value) < 1e6 for step in results for value in step.values())
    if name == "reward":
        score = scorer.scores(toy.TOKENS, None)[:, 0]
        assert score[GOOD].min() > score[BAD].max() + 1
        assert results[-1]["accuracy"] == 1.0
        return
    if method.source in ("steps", "outcomes"):
        batch = step_batch(method, torch.arange(len(toy.TOKENS)))
        assert (batch.label * scorer.token_scores(batch.tokens))[batch.mask].min() > 1
        assert (results[0]["accuracy"] == 0.5
                and results[-1]["accuracy_right"] == results[-1]["accuracy_wrong"] == 1.0)
        return
    before = toy.Talker(toy.POLICY).row_logp().exp()[GOOD].sum()
    after = models.policy.row_logp().exp()[GOOD].sum()
    assert after > before + 0.5 * (1 - before), f"{name}: {before:.3f} -> {after:.3f}"


def test_the_critic_learns_the_values_of_a_policy_that_stands_still():
    models, _, results = learn(METHODS["ppo"], steps=100, lr=0.0)
    visited = toy.state_of(toy.TOKENS)[toy.MASK].unique()
    exact = toy.exact_values(0.0)[visited]  # the policy is its own reference: the KL penalty is 0
    assert exact.std() > 0.2 and (models.critic.table[visited] - exact).abs().max() < 0.15
    explained = [step["explained_variance"] for step in results]
    assert explained[0] == 0 and sum(explained[-50:]) / 50 > 0.2


@pytest.mark.parametrize("name", [name for name, row in METHODS.items() if row.kind == "policy"])
def test_what_a_policy_objective_reports(name):
    _, _, results = learn(METHODS[name], epochs=2)
    first, second = results[0], results[1]  # the same batch, before and after one update
    assert first["ratio_max"] == 1 and first["clip_fraction"] == 0 and first["mismatch"] == 0
    assert first["approx_kl"] == first["kl"] == first["kl_k1"] == 0  # policy = old = reference
    assert second["ratio_max"] > 1 and second["approx_kl"] > 0 and second["kl"] > 0


def test_a_missing_old_policy_is_the_present_one():
    method = METHODS["grpo"]
    models = SimpleNamespace(policy=toy.Talker(toy.POLICY), critic=None)
    batch = toy.rollout_batch(method, torch.arange(12), models.policy, toy.Talker(toy.REFERENCE), None, 4)
    without = Batch(**{**vars(batch), "old_logp": None})
    (a, seen), (b, _) = (objectives.build_objective(method)(models, x) for x in (batch, without))
    torch.testing.assert_close(a, b)
    assert set(seen.columns) == {"logp", "entropy", "ratio", "adv", "kl"} and len(seen.columns["kl"]) == 12


def test_the_table():
    for name, row in METHODS.items():
        assert (row.name == name and row.source in SOURCES and row.paper and row.about
                and objectives.build_objective(row))
    with pytest.raises(ValueError, match="Did you mean 'dr_grpo'"):
        get_method("dr-grpo")
    with pytest.raises(ValueError, match="There is: best_of_n"):
        get_method("xyzzy")
    with pytest.raises(ValueError, match="grpo needs batch.adv"):
        objectives.build_objective(METHODS["grpo"])(None, batch_of(GOOD, weight=torch.ones(1)))
    assert Stats().results() == {}

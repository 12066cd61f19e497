"""Columns come to a row's functions by keyword; what needs the whole step is asked once."""

from dataclasses import replace
from functools import partial

import pytest
import torch
import toy
from line_small import line, scripted

import tests.training.batches.microbatch_test as micro
from postgrad.maths import credit
from postgrad.methods import METHODS, Policy, change
from postgrad.records import Verdict
from postgrad.rewards.base import weighted
from postgrad.training import objectives
from postgrad.training.batches.columns import credit_columns, minibatches, part_scores, weigh_minibatch


def by_entropy(logp, old_logp, adv, mask, *, entropy, lengths, sampler_logp, scale):
    assert entropy.shape == mask.shape == sampler_logp.shape and lengths.shape == mask.shape[:1]
    return (torch.where(mask, -scale * adv * logp * entropy.detach() / lengths[:, None], 0.0),
            torch.zeros_like(mask))


def surest(mask, adv, *, entropy, share):
    """The tokens whose entropy is among the lowest share of the whole step."""
    edge = entropy[mask].quantile(share)
    return mask & (entropy <= edge)


WANTING = Policy(
    name="wanting", credit=METHODS["grpo"].credit, surrogate=partial(by_entropy, scale=2.0),
    weigh=METHODS["dapo"].weigh, choose=partial(surest, share=0.4))


def test_a_row_is_handed_the_columns_that_its_functions_take():
    models, batch = micro.step_of(METHODS["grpo"])
    loss, _ = objectives.build_objective(WANTING)(models, batch)
    logp, entropy = models.policy.logp(batch.tokens, batch.mask)
    by_hand = -2.0 * batch.adv * logp * entropy / batch.mask.sum(1, keepdim=True)
    torch.testing.assert_close(loss[batch.mask], by_hand[batch.mask])
    without = replace(batch, sampler_logp=None)
    with pytest.raises(ValueError, match="wanting needs batch.sampler_logp"):
        objectives.build_objective(WANTING)(models, without)


def taking(column):
    """A surrogate that takes a column by keyword."""
    return eval(f"lambda logp, old_logp, adv, mask, *, {column}: (logp, mask)")


@pytest.mark.parametrize(("column", "words"), [
    ("entropie", "its surrogate takes 'entropie' by keyword, which is no column of a batch. Did you mean "
                 "'entropy'"),
    ("tau", "A constant has a default, or is bound by partial"), ("best", "surrogate cannot take best"),
    ("value", "has no critic: set critic=True"), ("marked", "give both mark=... and a surrogate with")])
def test_a_row_cannot_take_what_is_not_there(column, words):
    with pytest.raises(ValueError, match=words):
        replace(WANTING, surrogate=taking(column))


def test_the_parts_of_a_verdict_are_credit_s_alone():
    with pytest.raises(ValueError, match="surrogate cannot take parts: .* for credit alone"):
        replace(WANTING, surrogate=taking("parts"))
    with pytest.raises(ValueError, match="would have no effect: leave it out"):
        change(METHODS["gdpo"], overlong=True)


def test_a_line_hands_credit_the_rewards_that_were_summed():
    """Two replies a prompt: "1" is right and rather short, "0" is wrong and its length was not judged."""
    absent = Verdict(score=0.0, absent=True)
    judged = {"1": weighted({"right": (Verdict(score=1.0), 1.0), "short": (Verdict(score=0.5), 2.0)}),
              "0": weighted({"right": (Verdict(score=0.0), 1.0), "short": (absent, 2.0)})}
    options = scripted(["1", "0"]) | {"verify": lambda prompt, text: judged[text]}
    (batch,) = line("gdpo", **options, steps=1)
    parts, weights = part_scores(batch)
    first = [s.rollout.text for s in batch.scored].index("1")
    assert parts[first].tolist() == [1.0, 0.5] and weights[0].tolist() == [1.0, 2.0]
    other = [s.rollout.text for s in batch.scored].index("0")
    assert parts[other, 0] == 0 and parts[other].isnan().tolist() == [False, True]
    assert (batch.adv[first][batch.mask[first]] > 0).all() and (batch.adv[other][batch.mask[other]] < 0).all()


def test_a_choice_over_the_step_is_made_once_so_any_split_is_exact():
    """The share is of the whole step: chosen again in each micro-batch it would be another update."""
    models, batch = micro.step_of(METHODS["grpo"])
    batch = replace(batch, entropy=models.policy.logp(batch.tokens, batch.mask)[1].detach())
    step = weigh_minibatch(batch, WANTING, micro.LONG)
    counted = step.weight > 0
    assert (0 < counted.sum() < batch.mask.sum()
            and counted.sum() == pytest.approx(0.4 * batch.mask.sum().item(), abs=2))
    _, terms, grads, _ = micro.passes(WANTING, models, step, 10**9)
    for tokens in (1, 20, 90):
        _, split_terms, split_grads, _ = micro.passes(WANTING, models, step, tokens)
        assert split_terms == terms and all(torch.equal(a, b)
                                            for a, b in zip(split_grads, grads, strict=True))
    anew = [weigh_minibatch(part, WANTING, micro.LONG) for part in step.split(20)]
    assert sum(int((part.weight > 0).sum()) for part in anew) != int(counted.sum())


def test_the_assembly_line_fills_what_is_wanted_early():
    policy = toy.Talker(toy.POLICY)
    rows = torch.arange(12) % len(toy.TOKENS)
    batch = toy.rollout_batch(replace(WANTING, choose=None), rows, policy, None, None, 4)
    assert batch.entropy is None
    models = type("Models", (), {"policy": policy, "reference": None, "critic": None})
    reward = torch.zeros(batch.mask.shape, dtype=torch.float64)
    filled = credit_columns(batch, reward, WANTING, models, group_size=4, kl=0.0, tokens_per_pass=10**9,
                     several=False)
    torch.testing.assert_close(filled.entropy, policy.logp(batch.tokens, batch.mask)[1])
    assert filled.old_logp is None
    several = change(WANTING, epochs=2, minibatches=3)
    parts = minibatches(filled, several, group_size=4, budget=3, seed=0, step=1)
    assert len(parts) == 6 and all((part.weight > 0).sum() < part.mask.sum() for part in parts)


def test_a_mark_is_made_once_a_step_also_where_the_step_is_the_only_one():
    row, policy = change(METHODS["kl_cov"], minibatches=1, share=0.1), toy.Talker(toy.POLICY)
    batch = toy.rollout_batch(METHODS["nano"], torch.arange(12), policy, None, None, 4)
    models = type("Models", (), {"policy": policy, "reference": None, "critic": None})
    reward = credit.place_reward(toy.REWARD[:12], batch.mask)
    filled = credit_columns(batch, reward, row, models, group_size=4, kl=0.0, tokens_per_pass=10**9,
                            several=False)
    (step,) = minibatches(filled, row, group_size=4, budget=3, seed=0, step=1)
    assert step.marked.sum() == int(0.1 * batch.mask.sum()) > 1 and not step.marked[~step.mask].any()
    with pytest.raises(ValueError, match="choose cannot take marked: .* made after credit"):
        replace(row, choose=lambda mask, adv, *, marked: mask)

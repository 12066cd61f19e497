"""On a language that can be listed whole, the mean gradient of every estimator is computed, not sampled."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import bias
import pytest
import torch
import toy
from toy_variants import bias_table, variants

from postgrad.maths import credit, surrogate, weights
from postgrad.maths.kl import exact_kl
from postgrad.methods import METHODS, Policy, change
from postgrad.records import Batch
from postgrad.training import objectives
from postgrad.training.batches.columns import weigh_minibatch

ROWS = [row for row in METHODS.values() if isinstance(row, Policy)]
# The multiple of the exact gradient that a row has as its mean, with 3 samples a prompt and
# a budget of 3 tokens.
SCALE = {"reinforce": 1.0, "rloo": 1.0, "dr_grpo": (2 / 3) / 3, "dppo": (2 / 3) / 3}


@pytest.fixture(autouse=True)
def float64():
    previous = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(previous)


def test_the_language_is_complete():
    talker = toy.Talker(toy.POLICY)
    assert len({tuple(row) for row in toy.TOKENS.tolist()}) == 15
    assert talker.row_logp().exp().sum().item() == pytest.approx(1.0, abs=1e-12)


def test_the_exact_gradient_is_a_finite_difference():
    step, grad = 1e-6, toy.exact_gradient(0.3)
    ref = toy.Talker(toy.REFERENCE).row_logp()
    for state, word in ((0, 1), (2, 0), (9, 2)):
        value = []
        for sign in (1, -1):
            table = toy.POLICY.clone()
            table[0, state, word] += sign * step
            logp = toy.Talker(table).row_logp()
            value.append((logp.exp() * (toy.REWARD - 0.3 * (logp - ref))).sum())
        assert grad[state, word].item() == pytest.approx(((value[0] - value[1]) / (2 * step)).item(),
                                                         abs=1e-8)


def held_to_what_is_kept(row, found):
    """The numbers on the row's page are those measured, and the components that are drawn give them."""
    shown = bias.kept({row.name: row})[row.name]
    drawn = bias.beside(*(torch.tensor(shown[key]) for key in ("exact", "mean")))
    stale = f"the bias of {row.name} that is kept is another: python tools/docs.py --measure"
    for numbers, near in ((shown, 1e-9), (drawn, 1e-4)):
        assert (numbers["scale"], numbers["bias"]) == pytest.approx(
            (found["scale"], found["relative_bias"]), rel=1e-3, abs=near), stale
    assert shown["noise"] == pytest.approx(found["noise"], rel=1e-4), stale


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_is_as_biased_as_it_says(row):
    found = toy.compare(row)
    held_to_what_is_kept(row, found)
    if row.unbiased:
        assert found["relative_bias"] < 1e-12
        assert (found["scale"] == pytest.approx(SCALE.get(row.name, found["scale"]), abs=1e-12)
                and found["scale"] > 0)
    else:  # it does not claim what it could: the bias is there, and the direction is still uphill
        assert 1e-3 < found["relative_bias"] < 0.5
        assert found["cosine"] > 0.9
    assert found["cosine_off_policy"] > 0.9


@pytest.mark.parametrize("row", [row for row in variants() if row.unbiased], ids=lambda row: row.name)
def test_variants_without_their_biases(row):
    found = toy.compare(row)
    assert found["relative_bias"] < 1e-12
    assert found["scale"] == pytest.approx(2 / 3 if row.credit is credit.group_centre else 1.0, abs=1e-12)


@pytest.mark.parametrize("group_size", [2, 3])
def test_the_stated_factor_of_a_baseline_that_holds_the_sample_itself(group_size):
    row = replace(METHODS["nano"], weigh=weights.sequence_sum)
    assert toy.compare(row, group_size)["scale"] == pytest.approx((group_size - 1) / group_size, abs=1e-12)
    loo = replace(row, credit=credit.leave_one_out)
    assert toy.compare(loo, group_size)["scale"] == pytest.approx(1.0, abs=1e-12)


@pytest.mark.parametrize("group_size", [2, 3, 4])
@pytest.mark.parametrize(("all_wrong", "short"), [(0.0, 1), (-1.0, 0)])
def test_maxrl_is_unbiased_for_the_objective_it_states(group_size, all_wrong, short):
    """With 0 for an all-wrong group it climbs the terms k <= G - 1, with -1 those k <= G, and no others."""
    solved = (toy.REWARD == 1).double()
    with toy.paying(solved):
        mean = toy.measure(change(METHODS["maxrl"], all_wrong=all_wrong), group_size).mean
    most = group_size - short
    torch.testing.assert_close(mean, toy.pass_at_k_gradient(solved, most), rtol=0, atol=1e-14)
    for other in (most + 1, most - 1):
        assert not other or (mean - toy.pass_at_k_gradient(solved, other)).norm() > 1e-3


def corrected(**part):
    """The mean ascent direction of REINFORCE on samples of another engine, OLD, for the policy."""
    row = change(METHODS["reinforce"], kl_in_reward=0.0, **part)
    sampler, table = toy.Talker(toy.OLD), toy.POLICY.clone().requires_grad_()
    every = toy.rollout_batch(row, torch.arange(len(toy.TOKENS)), toy.Talker(toy.POLICY), None, None, 1)
    batch = replace(every, sampler_logp=sampler.logp(toy.TOKENS, toy.MASK)[0])
    batch = weigh_minibatch(batch, row, toy.LONGEST)
    loss, seen = objectives.build_objective(row)(SimpleNamespace(policy=toy.Talker(table)), batch)
    (loss * toy.MASK * sampler.row_logp().exp()[:, None]).sum().backward()
    return -table.grad[0], seen.results()


def test_a_correction_takes_the_bias_of_another_sampler_away():
    """By reply and without a limit exactly; by token, where early tokens are not asked what came after,
    mostly."""
    exact = toy.exact_gradient(0.0)
    plain, seen = corrected()
    assert "mismatch_kl" not in seen
    whole, seen = corrected(correction="sequence", widest=1e9)
    torch.testing.assert_close(whole, exact, rtol=0, atol=1e-14)
    assert seen["corrected_away"] == 0 and 0.5 < seen["effective_share"] < 1 and seen["mismatch_kl"] > 0
    by_token, _ = corrected(correction="tis", cap=1e9)
    off = [float((x - exact).norm() / exact.norm()) for x in (plain, by_token)]
    assert 1e-3 < off[1] < 0.7 * off[0]
    dropped, seen = corrected(correction="icepop", least=0.9, most=1.1)
    assert 0 < seen["corrected_away"] < 1 and (dropped - by_token).norm() > 1e-3


@pytest.mark.parametrize("lam", [0.0, 0.95, 1.0])
def test_ppo_with_the_exact_critic_is_unbiased_for_any_lambda(lam):
    ppo = variants()[0]
    row = replace(ppo, credit=partial(credit.gae, lam=lam))
    found = toy.compare(row, critic=toy.exact_values(row.kl_in_reward))
    assert found["relative_bias"] < 1e-12 and found["scale"] == pytest.approx(1.0, abs=1e-12)


def test_with_lambda_1_any_critic_is_a_baseline_and_with_less_it_is_a_bias():
    ppo, absurd = variants()[0], toy.random_table(5, 3.0)[0, :, 1]
    assert toy.compare(ppo, critic=absurd)["relative_bias"] < 1e-11
    assert (
        toy.compare(replace(ppo, credit=partial(credit.gae, lam=0.5)), critic=absurd)["relative_bias"] > 0.1)


def test_ppo_with_a_zero_critic_and_no_kl_is_reinforce():
    ppo = replace(variants()[0], kl_in_reward=0.0)
    raw = replace(METHODS["reinforce"], kl_in_reward=0.0)
    a, b = toy.measure(ppo, critic=torch.zeros(toy.STATES)), toy.measure(raw)
    torch.testing.assert_close(a.mean, b.mean)
    assert a.noise == pytest.approx(b.noise)


def test_grpo_without_clip_and_kl_is_reinforce_with_a_group_baseline():
    grpo = replace(METHODS["grpo"], kl_in_loss=0.0, credit=credit.leave_one_out)
    grpo = replace(grpo, surrogate=partial(surrogate.clipped_ratio, low=9.0, high=9.0),
                   weigh=weights.sequence_sum)
    a, b = toy.measure(grpo), toy.measure(replace(METHODS["rloo"], kl_in_reward=0.0))
    torch.testing.assert_close(a.mean, b.mean)
    assert a.noise == pytest.approx(b.noise)


def test_a_baseline_takes_noise_away_from_a_shifted_reward():
    with toy.paying(toy.REWARD + 5.0):
        assert toy.compare(METHODS["rloo"])["noise"] < 0.5 * toy.compare(METHODS["reinforce"])["noise"]


def no_credit(reward, mask, group_size, value=None):
    return torch.zeros_like(reward)


def gradient_over_visited_states(function):
    """The gradient of a sum over states of function(table) [STATES],
    each state weighed by how often the policy is in it."""
    visits, chance = torch.zeros(toy.STATES), toy.Talker(toy.POLICY).row_logp().exp()
    for t in (1, 2, 3):
        visits.index_add_(0, toy.state_of(toy.TOKENS)[:, t], chance * toy.MASK[:, t])
    table = toy.POLICY[0].clone().requires_grad_()
    (visits * function(table)).sum().backward()
    return table.grad


def test_kl_in_the_loss_pulls_where_its_estimator_says():
    """With no reward, GRPO's k3 term is the gradient of KL(ref || pi) at every state visited,
    not of KL(pi || ref)."""
    row = replace(METHODS["grpo"], credit=no_credit, weigh=weights.sequence_sum)
    expected = gradient_over_visited_states(lambda table: exact_kl(toy.REFERENCE[0], table))
    torch.testing.assert_close(toy.measure(row, group_size=2).mean, -row.kl_in_loss * expected)


def test_the_entropy_bonus_climbs_the_entropy():
    row = replace(METHODS["nano"], credit=no_credit, weigh=weights.sequence_sum, entropy=0.1)
    expected = gradient_over_visited_states(
        lambda table: -(torch.softmax(table, -1) * torch.log_softmax(table, -1)).sum(-1))
    torch.testing.assert_close(toy.measure(row, group_size=2).mean, 0.1 * expected)


def one_token(row, temperature=1.0, **columns):
    """The objective on one token that the policy gives 1/2 and the others 1/4 each; columns are its
    probabilities elsewhere."""
    policy = toy.Talker(torch.tensor([0.5, 0.25, 0.25]).log().expand(1, toy.STATES, toy.V))
    logps = {name: torch.tensor([[1.0, p, 1.0, 1.0]]).log() for name, p in columns.items()}
    batch = Batch(
        ids=("a",), tokens=toy.TOKENS[:1], mask=toy.MASK[:1], lengths=torch.tensor([2]),
        weight=torch.ones(1, 4), adv=torch.tensor([[0.0, 1.0, 0.0, 0.0]]), **logps,
    )
    loss, stats = objectives.build_objective(row, temperature)(SimpleNamespace(policy=policy), batch)
    return loss[0, 1].item(), stats.results()


def test_one_token_by_hand():
    loss, seen = one_token(METHODS["grpo"], old_logp=0.25, ref_logp=0.25, sampler_logp=0.5)
    # the ratio is 2 and counts as 1.2; k3 of d = log 2 is 1/2 - 1 + log 2 = 0.193147
    assert loss == pytest.approx(-1.2 + 0.04 * 0.193147, abs=1e-6)
    assert seen == pytest.approx({
        "loss": loss, "clip_fraction": 1.0, "ratio_max": 2.0, "entropy": 1.039721, "kl": 0.193147,
        "kl_k1": 0.693147, "approx_kl": 0.306853,
        "mismatch": 0.693147,  # KL(old || new) by k3 is 2 - 1 - log 2, never negative
    }, abs=1e-6)


def test_the_objective_looks_at_the_distribution_that_was_sampled():
    assert one_token(METHODS["nano"])[0] == pytest.approx(0.693147, abs=1e-6)  # -log 1/2
    # 1/4 : 1/16 : 1/16, -log 2/3
    assert one_token(METHODS["nano"], temperature=0.5)[0] == pytest.approx(0.405465, abs=1e-6)


def clipped_at(name, old):
    return one_token(METHODS[name], old_logp=old, ref_logp=0.5)[1]["clip_fraction"] == 1.0


def test_the_clip_ranges_of_the_rows():
    assert (not clipped_at("dapo", 0.5 / 1.25) and clipped_at("grpo", 0.5 / 1.25)
            and clipped_at("dapo", 0.5 / 1.3))
    assert clipped_at("gspo", 0.5 / 1.0005) and not clipped_at("gspo", 0.5 / 1.0003)
    assert (clipped_at("cispo", 0.5 / 5.1) and not clipped_at("cispo", 0.5 / 4.9)
            and not clipped_at("cispo", 1.0))


@pytest.mark.parametrize(("name", "loss"),
                         [("dpo", 0.693147), ("cdpo", 0.693147), ("online_dpo", 0.693147), ("ipo", 25.0)])
def test_at_the_reference_a_pair_says_nothing_yet(name, loss):
    policy = toy.Talker(toy.POLICY)
    batch = Batch(
        ids=tuple("abcd"), tokens=toy.TOKENS[:4], mask=toy.MASK[:4], lengths=torch.full((4,), 4),
        weight=torch.full((2,), 0.5), rows_per_unit=2, ref_logp=policy.logp(toy.TOKENS[:4], toy.MASK[:4])[0],
    )
    found, seen = objectives.build_objective(METHODS[name])(SimpleNamespace(policy=policy), batch)
    assert found.tolist() == pytest.approx([loss, loss], abs=1e-6) and seen.results()["accuracy"] == 0.5


def test_the_trained_policy_is_the_reference_tilted_by_the_reward():
    """pi*(y) = ref(y) exp(r(y) / beta) / Z: the optimum of E[r] - beta KL,
    reached through the reinforce row's objective."""
    beta, ref = 0.5, toy.Talker(toy.REFERENCE)
    row = replace(METHODS["reinforce"], kl_in_reward=beta)
    table = toy.REFERENCE.clone().requires_grad_()
    models, optim = SimpleNamespace(policy=toy.Talker(table)), torch.optim.Adam([table], lr=0.05)
    for _ in range(400):
        with torch.no_grad():
            logp = models.policy.logp(toy.TOKENS, toy.MASK)[0]
            reward = credit.place_reward(toy.REWARD, toy.MASK)
            reward = credit.kl_penalty(reward, logp, ref.logp(toy.TOKENS, toy.MASK)[0], toy.MASK, beta)
            adv, chance = row.credit(reward, toy.MASK, 1), logp.sum(1, keepdim=True).exp()
        batch = Batch(
            ids=tuple("abcdefghijklmno"), tokens=toy.TOKENS, mask=toy.MASK, lengths=torch.full((15,), 4),
            weight=chance * toy.MASK, adv=adv,
        )
        loss, _ = objectives.build_objective(row)(models, batch)
        optim.zero_grad()
        (loss * batch.weight).sum().backward()
        optim.step()
    optimum = torch.softmax(ref.row_logp() + toy.REWARD / beta, 0)
    torch.testing.assert_close(models.policy.row_logp().exp().detach(), optimum, atol=1e-4, rtol=0)


def test_bias_table_has_every_policy_row(monkeypatch):
    monkeypatch.setattr(toy, "compare", lambda row, *size, **critic: {"method": row.name})
    names = [entry["method"] for entry in bias_table(group_size=2)]
    assert names[: len(ROWS)] == [row.name for row in ROWS] and len(names) == len(set(names)) > len(ROWS)

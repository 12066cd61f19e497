"""Rows of the table, trained from samples, end at the closed-form optimum ref exp(r/beta)/Z;
see tilted.py for why they do."""

import math
from dataclasses import replace

import pytest
import tilted
import torch
import toy
from tilted import BETAS, THEOREM, distance, optimum, rows_at, solution

from postgrad.methods import METHODS

BAR = 0.05
FIRST_BETA = [BETAS[0], *(pytest.param(beta, marks=pytest.mark.long) for beta in BETAS[1:])]


@pytest.mark.parametrize("beta", BETAS)
def test_the_closed_form_is_the_optimum(beta):
    """At pi* the objective is beta log Z, and it falls by beta KL(pi || pi*) at any other policy."""
    ref, best = tilted.REF.row_logp(), optimum(beta)
    log_z = torch.logsumexp(ref + toy.REWARD / beta, 0)

    def objective(chance):
        return (chance * (toy.REWARD - beta * (chance.log() - ref))).sum().item()

    assert objective(best) == pytest.approx(beta * log_z.item(), abs=1e-12)
    for seed in range(3):
        other = toy.Talker(toy.random_table(seed)).row_logp().exp()
        lost = beta * (other * (other / best).log()).sum().item()
        assert lost > 0.01 and objective(other) == pytest.approx(objective(best) - lost, abs=1e-12)


@pytest.mark.parametrize("beta", BETAS)
def test_there_is_a_way_to_go(beta):
    """pi* is far from where training starts, and is not one sequence but a spread of them."""
    best = optimum(beta)
    assert distance(tilted.REF.row_logp().exp(), best) > 3 * BAR
    assert -(best * best.log()).sum() > 0.5 * math.log(15) and best.max() < 0.5


@pytest.mark.parametrize("beta", BETAS)
@pytest.mark.parametrize("name", ["rloo", "grpo, KL in the reward", "ppo"])
def test_at_the_optimum_nothing_is_praised_or_blamed(name, beta):
    """R(y) = r - beta log(pi*/ref) is beta log Z for every y:
    all advantages are 0, those of PPO by the critic that knows.

    That critic is V(s) = beta log Z(s): the log-mean-exp of r / beta over what the reference says after s.
    """
    policy, row = toy.Talker(toy.table_of(optimum(beta))), rows_at(beta)[name]
    torch.testing.assert_close(policy.row_logp().exp(), optimum(beta))
    value = torch.zeros(toy.STATES, dtype=torch.float64)
    for state, rows in toy.choices():
        later = (tilted.REF.logp(toy.TOKENS, toy.MASK)[0] * (toy.state_of(toy.TOKENS) >= state)).sum(1)
        value[state] = beta * (rows.any(0) * (later + toy.REWARD / beta).exp()).sum().log()
    batch = toy.rollout_batch(row, torch.arange(15), policy, tilted.REF, toy.Judge(value), 15)
    assert batch.adv.abs().max() < 1e-8  # rounding, over a std that is not taken below 1e-6
    shifted = toy.rollout_batch(row, torch.arange(15), tilted.REF, tilted.REF, toy.Judge(value), 15)
    assert shifted.adv.abs().max() > 0.1


@pytest.mark.parametrize("beta", FIRST_BETA)
@pytest.mark.parametrize("name", THEOREM)
def test_a_row_converges_to_the_optimum(name, beta):
    assert distance(solution(name, beta), optimum(beta)) <= BAR


@pytest.mark.parametrize("beta", FIRST_BETA)
def test_dpo_and_ppo_find_the_same_policy(beta):
    assert distance(solution("dpo", beta), solution("ppo", beta)) <= BAR


@pytest.mark.parametrize("beta", FIRST_BETA)
def test_grpo_with_its_kl_in_the_loss_converges_elsewhere(beta):
    """As in the paper GRPO ends more than three bars away; tilted.grpo_rows has the four reasons."""
    plain = rows_at(beta)["grpo as in the paper"]
    assert plain == replace(METHODS["grpo"], kl_in_loss=beta)
    assert distance(solution("grpo as in the paper", beta), optimum(beta)) > 3 * BAR


def test_without_its_other_biases_kl_in_the_loss_is_shortsighted():
    """With k2, and neither std nor length, GRPO ends where the KL that later tokens cost is forgotten.

    Group-centred advantages are (G-1)/G of what they should be, the KL is not: beta counts as beta G/(G-1).
    """
    beta, factor = 0.3, tilted.GROUP / (tilted.GROUP - 1)
    end, aim = solution("grpo, no std, k2, sequence sum", beta), tilted.shortsighted(beta * factor)
    assert distance(end, aim) < BAR / 2 and distance(aim, optimum(beta)) > 3 * BAR


def test_the_shortsighted_policy_sees_the_last_token_as_pi_star_does():
    """At the last token no KL is to come, so the two choose it alike;
    at the first, with a small beta, they do not."""
    beta = 0.3
    table = toy.table_of(optimum(beta)), toy.table_of(tilted.shortsighted(beta))
    best, near = (torch.softmax(x[0], -1) for x in table)
    last = [state for state, _ in toy.choices() if state > toy.V]
    torch.testing.assert_close(near[last], best[last])
    assert (near[0] - best[0]).abs().max() > 0.1

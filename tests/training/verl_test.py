"""Losses and advantages against what verl's own functions make of the same batches: verl.json, by
tools/verl_outputs.py."""

import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from against import against
from theirs import BUDGET, OLD, POLICY, PROMPT, REFERENCE, agree, answers, ours

from postgrad.maths import choice, credit
from postgrad.methods import METHODS, change
from postgrad.records import Verdict
from postgrad.training.batches.columns import further_columns, weigh_minibatch

GROUP = 4
REWARD = [1.0, 0.0, 0.25, 0.5, 1.0, 1.0, 0.0, 1.0, 0.3, 0.2, 0.1, 0.9]
CHANGES = {"dppo": {"low": 0.05, "high": 0.05},  # OLD is near enough that 0.15 keeps nearly all
           "kl_cov": {"share": 0.3}, "grpo": {"kl_in_loss": 0.04}}
SEQUENCES, WIDE = "seq-mean-token-mean", 1e4
# row: verl's function, how it averages, its settings, (estimator, weight) of a KL in the loss
LOSSES = {
    "dppo": ("dppo_tv", "seq-mean-token-sum-norm",
             {"clip_ratio_low": 0.05, "clip_ratio_high": 0.05, "clip_ratio_c": WIDE}, None),
    "kl_cov": ("kl_cov", "token-mean", {"kl_cov_ratio": 0.3, "ppo_kl_coef": 1.0}, None),
    "sapo": ("sapo", SEQUENCES, {}, None),
    "gmpo": ("geo_mean", SEQUENCES, {"clip_ratio_low": 0.4, "clip_ratio_high": 0.4}, None),
    "gspo": ("gspo", SEQUENCES, {"clip_ratio_low": 3e-4, "clip_ratio_high": 4e-4}, None),
    "dapo": ("vanilla", "token-mean", {"clip_ratio_high": 0.28, "clip_ratio_c": WIDE}, None),
    "grpo": ("vanilla", SEQUENCES, {"clip_ratio_c": WIDE}, ("k3", 0.04)),
    "reinforce_pp": ("vanilla", "token-mean", {"clip_ratio_c": WIDE}, ("k2", 1e-3)),
    "opo": ("gpg", "seq-mean-token-sum", {}, None),
}
ADVANTAGES = {"grpo": "grpo", "rloo": "rloo", "opo": "opo", "reinforce_pp": "reinforce_plus_plus_baseline"}


@pytest.fixture(autouse=True, scope="module")
def float64():
    previous = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(previous)


@cache
def recorded() -> dict:
    return json.loads(Path(__file__).with_name("verl.json").read_text())


def row_of(name):
    return change(METHODS[name], **CHANGES.get(name, {}))


def rollouts(method):
    """Three prompts of four samples of OLD, with credit, marks and weights as the row has them."""
    batch = answers([3, 5, 1, 2, 5, 4, 2, 2, 4, 1, 3, 5], weight=None)
    old, ref = (model.logp(batch.tokens, batch.mask)[0].detach() for model in (OLD, REFERENCE))
    adv = method.credit(credit.place_reward(torch.tensor(REWARD), batch.mask), batch.mask, GROUP)
    adv = credit.whiten(adv, batch.mask) if method.whiten else adv
    return weigh_minibatch(replace(batch, adv=adv, old_logp=old, ref_logp=ref, sampler_logp=old), method,
                           BUDGET)


def tokens_of(batch):
    """(logp, old, ref, adv) of every sampled token, row after row."""
    logp = POLICY.logp(batch.tokens, batch.mask)[0]
    columns = zip(logp, batch.old_logp, batch.ref_logp, batch.adv, batch.mask, strict=True)
    return [[(now[t], old[t], ref[t], adv[t]) for t in mask.nonzero()[:, 0]]
            for now, old, ref, adv, mask in columns]


def theirs(name, batch):
    """verl's loss, with its gradient."""
    of, logp = recorded()["losses"][name], POLICY.logp(batch.tokens, batch.mask)[0][batch.mask]
    return of["loss"] + (torch.tensor(of["gradient"]) * (logp - logp.detach())).sum()


@against("verl", sapo="the same, as sequence mean", opo="the same advantages and loss",
         gspo="the same, as sequence mean",
         dapo="the same where no ratio above 3 meets a negative advantage, where verl clips once more",
         gmpo="adds 1e-8 to a reply's length; with the paper's clip of 0.4 the same to 1e-7")
@pytest.mark.parametrize("name", ["sapo", "opo", "gspo", "dapo", "gmpo", "grpo", "reinforce_pp"])
def test_losses(name):
    batch = rollouts(row_of(name))
    whole = LOSSES[name][1] != SEQUENCES  # verl adds 1e-8 to a reply's length
    agree(ours(row_of(name), batch), theirs(name, batch), within=1e-9 if whole else 1e-7)


@against("verl", dppo="-A sg(min(rho, C)) log pi on the tokens that are kept, where the row has -A rho: "
         "another value, the same gradient while rho is below C")
@against("prime-rl", dppo="the row with square=1e-3 has its pull on the squared log-ratio")
def test_dppo_by_total_variation():
    row = row_of("dppo")
    batch = rollouts(row)
    gradient = recorded()["losses"]["dppo"]["gradient"]
    assert 0 < sum(x != 0 for x in gradient) < len(gradient)  # some tokens are kept, and some are not
    mine, other = ours(row, batch), theirs("dppo", batch)
    agree(mine - mine.detach(), other - other.detach())
    moved = POLICY.logp(batch.tokens, batch.mask)[0] - batch.old_logp
    pull = (moved[batch.mask] ** 2).sum() / (len(batch) * BUDGET)
    agree(ours(change(row, square=1e-3), batch), mine + 1e-3 * pull)  # prime-rl's


@against("verl", kl_cov="takes the covariance from the present policy, and in each micro-batch by itself; "
         "the row's from the policy that sampled, once for a step. With the same tokens held back the loss "
         "is the same")
def test_kl_cov():
    row = row_of("kl_cov")
    batch = rollouts(row)
    now = POLICY.logp(batch.tokens, batch.mask)[0].detach()
    present = choice.top_covariance(batch.mask, batch.adv, old_logp=now, share=0.3)
    agree(ours(row, replace(batch, marked=present)), theirs("kl_cov", batch))
    assert batch.marked.sum() == present.sum() == int(0.3 * batch.mask.sum()) > 3
    assert (batch.marked != present).any()


@against("verl", rloo="the same advantages",
         grpo="divides by the sample's std of a group, the row by the population's: its advantages are "
         "sqrt(G/(G-1)) times as large; the loss is the same",
         reinforce_pp="whitens by the sample's std of all tokens plus 1e-8, the row by the population's: the "
         "row's advantages are sqrt(N/(N-1)) times as large over N tokens; the loss is the same")
@pytest.mark.parametrize("name", ADVANTAGES)
def test_advantages(name):
    batch = rollouts(METHODS[name])
    count = {"reinforce_pp": int(batch.mask.sum()), "grpo": GROUP}.get(name)
    factor = math.sqrt(count / (count - 1)) if count else 1.0
    other = torch.tensor(recorded()["advantages"][name])
    torch.testing.assert_close(batch.adv[batch.mask], other * factor, rtol=1e-4, atol=1e-9)


@against("verl", gdpo="whitens over tokens, long replies counting for more, where the paper and the row "
         "whiten over rollouts; with replies of one length the row's advantages are sqrt(N/(N-1)) times as "
         "large over N tokens, as verl divides by the sample's std")
@pytest.mark.parametrize("lengths", [[3] * 12, [3, 5, 1, 2, 5, 4, 2, 2, 4, 1, 3, 5]])
def test_gdpo(lengths):
    """verl's z-scores and whitening divide by the sample's std; a group's cancels in the whitening. The
    paper's mean and std are over the rollouts."""
    row, batch = METHODS["gdpo"], answers(lengths, weight=None)
    parts = {"right": REWARD, "short": [float(i % 3 == 0) for i in range(12)]}
    weights = {"right": 1.0, "short": 0.5}
    scored = tuple(SimpleNamespace(verdict=Verdict(score=0.0, weights=weights,
                                                   parts={k: x[i] for k, x in parts.items()}))
                   for i in range(12))
    mine = row.credit(torch.zeros(batch.mask.shape), batch.mask, GROUP,
                      **further_columns(replace(batch, scored=scored), row.columns_of("credit")))
    mine = mine[:, PROMPT].tolist()
    summed = [0.0] * 12
    for name, x in parts.items():
        for at in range(0, 12, GROUP):
            mean = sum(x[at: at + GROUP]) / GROUP
            std = math.sqrt(sum((r - mean) ** 2 for r in x[at: at + GROUP]) / (GROUP - 1))
            for i in range(at, at + GROUP):
                summed[i] += weights[name] * (x[i] - mean) / (std + 1e-9)
    mean = sum(summed) / 12
    std = math.sqrt(sum((a - mean) ** 2 for a in summed) / 12)
    assert mine == pytest.approx([(a - mean) / std for a in summed], abs=1e-6)
    if len(set(lengths)) == 1:
        every = [a for a, n in zip(summed, batch.mask.sum(1).tolist(), strict=True) for _ in range(n)]
        mean = sum(every) / len(every)
        std = math.sqrt(sum((a - mean) ** 2 for a in every) / (len(every) - 1))
        factor = math.sqrt(len(every) / (len(every) - 1))
        assert mine == pytest.approx([factor * (a - mean) / std for a in summed], abs=1e-6)


def test_scalerl():
    """The paper's objective, sample after sample: -1/P sum_p 1/n_p sum_i sum_t sg(min(rho, 5)) A_i log pi,
    with A_i = (r_i - mean of the prompt) / std of these over the batch."""
    row = METHODS["scalerl"]
    batch = rollouts(row)
    batch = weigh_minibatch(batch, row, BUDGET, GROUP)
    means = [sum(REWARD[at: at + GROUP]) / GROUP for at in range(0, 12, GROUP)]
    centred = [r - means[i // GROUP] for i, r in enumerate(REWARD)]
    std = math.sqrt(sum(a * a for a in centred) / 12)
    lengths, theirs = batch.mask.sum(1).tolist(), 0.0
    for i, sample in enumerate(tokens_of(batch)):
        prompt = sum(lengths[i // GROUP * GROUP: i // GROUP * GROUP + GROUP])
        for logp, old, _, _ in sample:
            weight = (logp - old).exp().clamp(max=5.0).detach()
            theirs = theirs - weight * centred[i] / std * logp / prompt / 3
    agree(ours(row, batch), theirs)


def test_geometric_rejection():
    """verl's acceptance set, reply after reply: 1 / (1 + c) <= exp(mean log rho) <= 1 + c, no weights."""
    row = change(METHODS["grpo"], correction="geometric", apart=0.05)
    batch = answers([3, 5, 1, 2, 5, 4, 2, 2, 4, 1, 3, 5], weight=None)
    old, sampled = (model.logp(batch.tokens, batch.mask)[0].detach() for model in (OLD, REFERENCE))
    batch = weigh_minibatch(replace(batch, adv=torch.zeros(batch.mask.shape), old_logp=old,
                                    sampler_logp=sampled), row, BUDGET)
    kept = []
    for there, a, b in zip(batch.mask, old, sampled, strict=True):
        mean = math.exp(sum((a[there] - b[there]).tolist()) / int(there.sum()))
        kept.append(float(1 / 1.05 <= mean <= 1.05))
    assert batch.correction[:, PROMPT].tolist() == kept and 0 < sum(kept) < 12

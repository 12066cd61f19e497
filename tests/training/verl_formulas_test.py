"""Losses and advantages of rows that TRL lacks, against verl's formulas, written down here from its code in
plain loops: one token, one sample after the other."""

import math
from dataclasses import replace
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


@pytest.fixture(autouse=True, scope="module")
def float64():
    previous = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(previous)


def rollouts(method):
    """Three prompts of four samples of OLD, with credit, marks and weights as the row has them."""
    batch = answers([3, 5, 1, 2, 5, 4, 2, 2, 4, 1, 3, 5], weight=None)
    old, ref = (model.logp(batch.tokens, batch.mask)[0].detach() for model in (OLD, REFERENCE))
    adv = method.credit(credit.place_reward(torch.tensor(REWARD), batch.mask), batch.mask, GROUP)
    adv = credit.whiten(adv, batch.mask) if method.whiten else adv
    return weigh_minibatch(replace(batch, adv=adv, old_logp=old, ref_logp=ref), method, BUDGET)


def tokens_of(batch):
    """(logp, old, ref, adv) of every sampled token, row after row."""
    logp = POLICY.logp(batch.tokens, batch.mask)[0]
    columns = zip(logp, batch.old_logp, batch.ref_logp, batch.adv, batch.mask, strict=True)
    return [[(now[t], old[t], ref[t], adv[t]) for t in mask.nonzero()[:, 0]]
            for now, old, ref, adv, mask in columns]


@against("verl", dppo="-A sg(min(rho, C)) log pi on the tokens that are kept, where the row has -A rho: "
         "another value, the same gradient while rho is below C")
@against("prime-rl", dppo="the row with square=1e-3 has its pull on the squared log-ratio")
def test_dppo_by_total_variation():
    """verl's loss is -A sg(min(rho, C)) log pi on the tokens it keeps; the row's is -A rho: another value,
    the same gradient while rho is below C."""
    row = change(METHODS["dppo"], low=0.05, high=0.05)  # OLD is near enough that 0.15 keeps nearly all
    batch = rollouts(row)
    batch = replace(batch, sampler_logp=batch.old_logp)
    theirs, kept = 0.0, 0
    for sample in tokens_of(batch):
        for logp, old, _, adv in sample:
            moved = logp.exp() - old.exp()
            keep = moved <= 0.05 if adv > 0 else moved >= -0.05
            theirs = theirs - keep * adv * (logp - old).exp().clamp(max=1e4).detach() * logp
            kept += int(keep)
    theirs = theirs / (len(batch) * BUDGET)  # seq-mean-token-sum-norm
    assert 0 < kept < batch.mask.sum()
    mine = ours(row, batch)
    agree(mine - mine.detach(), theirs - theirs.detach())
    squared = change(row, square=1e-3)  # prime-rl's
    pull = sum((logp - old) ** 2 for sample in tokens_of(batch) for logp, old, _, _ in sample)
    agree(ours(squared, batch), mine + 1e-3 * pull / (len(batch) * BUDGET))


@against("verl", kl_cov="takes the covariance from the present policy, and in each micro-batch by itself; "
         "the row's from the policy that sampled, once for a step. With the same tokens held back the loss "
         "is the same")
def test_kl_cov():
    """The covariance is taken from the policy that sampled; verl's, from the present one."""
    row = change(METHODS["kl_cov"], share=0.3)
    batch = rollouts(row)
    every = [token for sample in tokens_of(batch) for token in sample]
    count = max(1, int(0.3 * len(every)))
    now = POLICY.logp(batch.tokens, batch.mask)[0].detach()
    present = choice.top_covariance(batch.mask, batch.adv, old_logp=now, share=0.3)
    for marked, which in ((batch.marked, 1), (present, 0)):
        columns = [t[3] for t in every], [t[which].detach() for t in every]
        mean_adv, mean_logp = (sum(x) / len(every) for x in columns)
        behind = [-float((adv - mean_adv) * (logp - mean_logp)) for adv, logp in zip(*columns, strict=True)]
        held = sorted(range(len(every)), key=behind.__getitem__)[:count]
        assert marked.sum() == count > 3
        theirs = sum(-adv * (logp - old).exp() + (i in held) * (logp - old).abs()
                     for i, (logp, old, _, adv) in enumerate(every)) / len(every)
        agree(ours(row, replace(batch, marked=marked)), theirs)
    assert (batch.marked != present).any()


@against("verl", sapo="the same, as sequence mean",
         gmpo="adds 1e-8 to a reply's length; with the paper's clip of 0.4 the same to 1e-7")
def test_sapo_and_gmpo_as_verl_has_them():
    """verl's geo_mean adds 1e-8 to the length."""
    sapo, gmpo = rollouts(METHODS["sapo"]), rollouts(METHODS["gmpo"])
    soft = 0.0
    for sample in tokens_of(sapo):
        for logp, old, _, adv in sample:
            tau = 1.0 if adv > 0 else 1.05
            gate = torch.sigmoid(tau * ((logp - old).exp() - 1)) * (4 / tau)
            soft = soft - adv * gate / len(sample) / len(sapo)
    agree(ours(METHODS["sapo"], sapo), soft)
    whole = 0.0
    for sample in tokens_of(gmpo):
        sign = sample[0][3].sign()
        moved = [logp - old for logp, old, _, _ in sample]
        held = [sign * torch.minimum(sign * x, sign * x.clamp(-0.4, 0.4)) for x in moved]
        whole = whole - sample[0][3] * (sum(held) / (len(sample) + 1e-8)).exp() / len(gmpo)
    agree(ours(METHODS["gmpo"], gmpo), whole, within=1e-7)


@against("verl", reinforce_pp="whitens by the sample's std of all tokens plus 1e-8, the row by the "
         "population's: the row's advantages are sqrt(N/(N-1)) times as large over N tokens; the loss is "
         "the same")
def test_reinforce_pp_with_its_baseline():
    """verl's whitening divides by the sample's std of all tokens, plus 1e-8; ours by the population's."""
    row = METHODS["reinforce_pp"]
    batch = rollouts(row)
    lengths = batch.mask.sum(1).tolist()
    centred = [r - sum(REWARD[i // GROUP * GROUP:][:GROUP]) / GROUP for i, r in enumerate(REWARD)]
    every = [a for a, n in zip(centred, lengths, strict=True) for _ in range(n)]
    mean = sum(every) / len(every)
    var = sum((a - mean) ** 2 for a in every) / (len(every) - 1)
    theirs = [(a - mean) / math.sqrt(var + 1e-8) for a in centred]
    factor = math.sqrt(len(every) / (len(every) - 1))
    assert batch.adv[:, PROMPT].tolist() == pytest.approx([a * factor for a in theirs], abs=1e-6)
    loss = 0.0
    for sample in tokens_of(batch):
        for logp, old, ref, adv in sample:
            rho = (logp - old).exp()
            loss = loss + torch.maximum(-adv * rho, -adv * rho.clamp(0.8, 1.2))
            loss = loss + 1e-3 * 0.5 * (logp - ref) ** 2
    agree(ours(row, batch), loss / len(every))


@against("verl", opo="the same advantages and loss")
def test_opo():
    row = METHODS["opo"]
    batch = rollouts(row)
    lengths = batch.mask.sum(1).tolist()
    for i, r in enumerate(REWARD):
        at = range(i // GROUP * GROUP, i // GROUP * GROUP + GROUP)
        baseline = sum(lengths[j] * REWARD[j] for j in at) / sum(lengths[j] for j in at)
        assert batch.adv[i, PROMPT].item() == pytest.approx(r - baseline, abs=1e-12)
    theirs = -sum(adv * logp for sample in tokens_of(batch) for logp, _, _, adv in sample) / len(batch)
    agree(ours(row, batch), theirs)


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

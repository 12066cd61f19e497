"""The losses of the table equal TRL's, value and gradient, by TRL's own code on the same random log-probs.

In float64. TRL has no losses apart from its trainers,
so a trainer is made without being initialised and given
just the attributes that its loss reads. Where TRL departs from the paper that a row follows,
the test says how,
and holds the exact factor. Here are the losses on pairs and singles; those on rollouts: `trl_rollouts_test`.
Rows that TRL has no trainer for: ppo (dropped), reinforce, nano, best_of_n, rejection. sft is the loss of
`transformers`.
"""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from against import against
from theirs import (
    BUDGET,
    HOMES,
    POLICY,
    PROMPT,
    REFERENCE,
    agree,
    answers,
    cpo_inputs,
    cpo_trainer,
    dpo_loss,
    load,
    ours,
    seen,
    trainer,
)

from postgrad.maths import preference, weights
from postgrad.methods import METHODS


@pytest.fixture(autouse=True, scope="module")
def offline_float64():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
        pytest.importorskip("trl", reason="TRL is the other side of these tests: pip install -e '.[test]'")
        for name in HOMES:
            load(name)
    previous = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(previous)


UNEVEN, EVEN = [3, 5, 1, 2, 5, 4, 2, 2, 4, 1], [4] * 10


def pairs(lengths, **columns):
    batch = answers(lengths, weight=torch.full((len(lengths) // 2,), 2 / len(lengths)), rows_per_unit=2,
                    **columns)
    return replace(batch, ref_logp=REFERENCE.logp(batch.tokens, batch.mask)[0].detach())


def constants(name):
    return METHODS[name].loss.keywords


@pytest.mark.parametrize("name", ["dpo", "online_dpo"])
@against("TRL", dpo="the same loss and gradient",
         online_dpo="the same loss and gradient; what is particular is where the pairs come from")
def test_dpo(name):
    """online_dpo is the same loss: what is particular to it is where its pairs come from."""
    batch = pairs(UNEVEN)
    agree(ours(METHODS[name], batch), dpo_loss(batch, "sigmoid", **constants(name)))


@against("TRL", ipo="the same loss and gradient: log pi(y) is the mean over a reply's tokens")
def test_ipo():
    """With the paper's sum over the tokens, the row on answers of L tokens is L^2 times TRL's loss at L
    beta."""
    row, beta = METHODS["ipo"], constants("ipo")["beta"]
    batch = pairs(UNEVEN)
    agree(ours(row, batch), dpo_loss(batch, "ipo", beta=beta))
    batch = pairs(EVEN)
    agree(ours(replace(row, score=preference.sum_logp), batch), 4**2 * dpo_loss(batch, "ipo", beta=4 * beta))


@against("TRL", cdpo="its DPO has no label smoothing; its CPO has, and is this row when given log-ratios")
def test_cdpo():
    """TRL's sigmoid DPO has lost its label smoothing; its CPO still has it, and given log-ratios for
    log-probs it is cDPO."""
    row, batch = METHODS["cdpo"], pairs(UNEVEN)
    ratio = preference.sum_logp(POLICY.logp(batch.tokens, batch.mask)[0] - batch.ref_logp, batch.mask)
    made = cpo_trainer(loss_type="sigmoid", beta=constants("cdpo")["beta"],
                       label_smoothing=constants("cdpo")["eps"])
    agree(ours(row, batch), made.cpo_loss(ratio[::2], ratio[1::2])[0].mean())


@pytest.mark.parametrize("eps", [0.1, 0.3])
def test_robust(eps):
    """Robust DPO (Chowdhury et al. 2024, 2403.00409) is no row of its own: it is cDPO's loss
    at -eps / (1 - 2 eps).

    (1 - eps) DPO - eps DPO of the swapped pair, over 1 - 2 eps:
    its mean over labels flipped with probability eps is DPO.
    """
    beta, batch = constants("cdpo")["beta"], pairs(UNEVEN)
    robust = replace(METHODS["cdpo"], loss=partial(preference.cdpo, beta=beta, eps=-eps / (1 - 2 * eps)))
    agree(ours(robust, batch), dpo_loss(batch, "robust", beta=beta, label_smoothing=eps))


@against("TRL", simpo="inside its CPO, with loss_type simpo and no likelihood term: the same")
def test_simpo():
    """TRL has SimPO inside CPO, with no likelihood term."""
    batch = pairs(UNEVEN)
    made = cpo_trainer(
        loss_type="simpo", beta=constants("simpo")["beta"], simpo_gamma=constants("simpo")["gamma"],
        cpo_alpha=0.0, label_smoothing=0.0,
    )
    agree(ours(METHODS["simpo"], batch), made.get_batch_loss_metrics(POLICY, cpo_inputs(batch))[0])


@against("TRL", cpo="the likelihood term is the mean over all chosen tokens of the batch; the paper's is "
         "the sum log pi(y_w). TRL's is the row with alpha over the mean number of chosen tokens")
def test_cpo():
    """The paper's likelihood term is log pi(y_w), a sum; TRL's is the mean over all chosen
    tokens of the batch.

    So TRL's is the row with alpha over the mean number of chosen tokens, whatever the lengths.
    """
    row, batch, beta, alpha = METHODS["cpo"], pairs(UNEVEN), *constants("cpo").values()
    made = cpo_trainer(loss_type="sigmoid", beta=beta, cpo_alpha=alpha, label_smoothing=0.0)
    theirs = made.get_batch_loss_metrics(POLICY, cpo_inputs(batch))[0]
    tokens = batch.mask[::2].sum() / batch.units
    agree(ours(replace(row, loss=partial(preference.cpo, beta=beta, alpha=alpha / tokens)), batch), theirs)
    assert abs(ours(row, batch) - theirs) > 1  # as it stands


@against("TRL", rpo="loss_type sigmoid and sft with loss_weights 1 and alpha: the same where the chosen "
         "replies are equally long; else its likelihood term is the mean over all chosen tokens of the "
         "batch, the row's, as the paper's, a mean of replies' means")
def test_rpo():
    row, (beta, alpha) = METHODS["rpo"], constants("rpo").values()
    mixed = dict(beta=beta, loss_weights=[1.0, 0.7])
    other = replace(row, loss=partial(preference.rpo, beta=beta, alpha=0.7))
    batch = pairs([4, 5, 4, 2, 4, 1])
    agree(ours(row, batch), dpo_loss(batch, "sigmoid", "sft", beta=beta, loss_weights=[1.0, alpha]))
    agree(ours(other, batch), dpo_loss(batch, "sigmoid", "sft", **mixed))
    batch = pairs(UNEVEN)
    each = [dpo_loss(replace(batch.take(i, i + 1), weight=None), "sigmoid", "sft", **mixed)
            for i in range(batch.units)]
    agree(ours(other, batch), sum(each) / batch.units)


@against("TRL", orpo="the odds-ratio term is the same; the likelihood term has the prompt's tokens in it "
         "too, as one mean over the batch, like the authors' code")
def test_orpo():
    """The odds-ratio term is the same; TRL computes it in float32, so it is held to 1e-7.

    The row's likelihood term is that of the answer, a mean over its tokens. TRL, like the authors' code, has
    the prompt's tokens in it too and takes one mean over the batch: that is the `sft` row.
    """
    row, batch, lam = METHODS["orpo"], pairs(UNEVEN), constants("orpo")["lam"]
    made = trainer("ORPOTrainer", beta=lam, is_encoder_decoder=False, padding_value=0)
    theirs = made.get_batch_loss_metrics(POLICY, cpo_inputs(batch))[0]
    odds = ours(row, batch) - ours(replace(row, loss=partial(preference.orpo, lam=0.0)), batch)
    said = (seen(batch).bool() & (torch.arange(PROMPT + BUDGET) > 0)
            & (torch.arange(len(batch)) % 2 == 0)[:, None])
    likelihood = ours(METHODS["sft"], replace(batch, mask=said, weight=weights.token_mean(said, BUDGET)))
    agree(odds + likelihood, theirs, within=1e-7)


@against("TRL", reward="the same loss and gradient, the margin included")
def test_reward():
    batch = pairs(UNEVEN, margin=torch.tensor([0.0, 0.5, 1.0, 0.0, 2.0]))
    order = torch.arange(len(batch)).view(-1, 2).T.flatten()

    def head(input_ids, attention_mask, **_):
        return SimpleNamespace(logits=POLICY.scores(input_ids, attention_mask.sum(1)))

    made = trainer("RewardTrainer", args=SimpleNamespace(center_rewards_coefficient=None))
    inputs = {"input_ids": batch.tokens[order], "attention_mask": seen(batch)[order], "margin": batch.margin}
    agree(ours(METHODS["reward"], batch), made.compute_loss(head, inputs))


@pytest.mark.parametrize(("wanted", "unwanted"), [(1.0, 1.0), (1.5, 0.5)])
@pytest.mark.parametrize("seed", [0, 8])
@against("TRL", kto="the same loss and gradient, the baseline over other prompts' answers included")
def test_kto(wanted, unwanted, seed):
    """The baseline too: the mean log-ratio of answers to other prompts, at least 0 (it is,
    in one of the two draws)."""
    row = METHODS["kto"]
    beta = constants("kto")["beta"]
    label = torch.tensor([1.0, -1.0, -1.0, 1.0, 1.0, -1.0])
    batch = answers([3, 5, 1, 2, 5, 4], weight=torch.full((6,), 1 / 6))
    other = answers([2, 4, 5, 1, 3, 3], seed, weight=None)
    ratio = [policy.logp(other.tokens, other.mask)[0].sum(1) for policy in (POLICY, REFERENCE)]
    baseline = preference.kto_baseline(ratio[0] - ratio[1])
    assert (baseline > 0) == (seed == 0)
    ref_logp = REFERENCE.logp(batch.tokens, batch.mask)[0].detach()
    batch = replace(batch, ref_logp=ref_logp, label=label, baseline=baseline.expand(6))
    made = trainer(
        "KTOTrainer", calculate_KL=True, precompute_ref_logps=False, loss_type="kto", beta=beta,
        desirable_weight=wanted, undesirable_weight=unwanted,
        args=SimpleNamespace(gradient_checkpointing_kwargs=None),
    )
    inputs = {"label": label > 0}
    for prefix, x in (("", batch), ("KL_", other)):
        columns = {"input_ids": x.tokens, "attention_mask": seen(x), "completion_mask": x.mask.long()}
        inputs |= {prefix + name: column for name, column in columns.items()}
    loss = partial(preference.kto, beta=beta, wanted=wanted, unwanted=unwanted)
    agree(ours(replace(row, loss=loss), batch), made._compute_loss(POLICY, inputs, return_outputs=False))

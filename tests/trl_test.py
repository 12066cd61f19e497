"""The losses of the table equal TRL's, value and gradient, computed by TRL's own code on the same random log-probs in float64.

TRL has no losses apart from its trainers, so a trainer is made without being initialised and given just the attributes that its
loss reads. Where TRL departs from the paper that a row follows, the test says how, and holds the exact factor.
Rows that TRL has no trainer for: ppo (dropped), reinforce, nano, best_of_n, rejection. sft is the loss of `transformers`.
"""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from theirs import (
    BUDGET,
    HOMES,
    OLD,
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
    policy_trainer,
    scored,
    seen,
    trainer,
)

from postgrad import objectives
from postgrad.maths import credit, preference, weights
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
    batch = answers(lengths, weight=torch.full((len(lengths) // 2,), 2 / len(lengths)), rows_per_unit=2, **columns)
    return replace(batch, ref_logp=REFERENCE.logp(batch.tokens, batch.mask)[0].detach())


def constants(name):
    return METHODS[name].loss.keywords


@pytest.mark.parametrize("name", ["dpo", "online_dpo"])
def test_dpo(name):
    """online_dpo is the same loss: what is particular to it is where its pairs come from."""
    batch = pairs(UNEVEN)
    agree(ours(METHODS[name], batch), dpo_loss(batch, "sigmoid", **constants(name)))


def test_ipo():
    """The paper's log pi(y) is a sum over the tokens; TRL has the mean, on its authors' advice.

    With mean_logp as its score the row is TRL's at any lengths; as it stands, on answers of L tokens, it is L^2 times TRL's
    loss at L beta.
    """
    row, beta = METHODS["ipo"], constants("ipo")["beta"]
    batch = pairs(UNEVEN)
    agree(ours(replace(row, score=preference.mean_logp), batch), dpo_loss(batch, "ipo", beta=beta))
    batch = pairs(EVEN)
    agree(ours(row, batch), 4**2 * dpo_loss(batch, "ipo", beta=4 * beta))


def test_cdpo():
    """TRL's sigmoid DPO has lost its label smoothing; its CPO still has it, and given log-ratios for log-probs it is cDPO."""
    row, batch = METHODS["cdpo"], pairs(UNEVEN)
    ratio = preference.sum_logp(POLICY.logp(batch.tokens, batch.mask)[0] - batch.ref_logp, batch.mask)
    made = cpo_trainer(loss_type="sigmoid", beta=constants("cdpo")["beta"], label_smoothing=constants("cdpo")["eps"])
    agree(ours(row, batch), made.cpo_loss(ratio[::2], ratio[1::2])[0].mean())


@pytest.mark.parametrize("eps", [0.1, 0.3])
def test_robust(eps):
    """Robust DPO (Chowdhury et al. 2024, 2403.00409) is no row of its own: it is cDPO's loss at -eps / (1 - 2 eps).

    (1 - eps) DPO - eps DPO of the swapped pair, over 1 - 2 eps: its mean over labels flipped with probability eps is DPO.
    """
    beta, batch = constants("cdpo")["beta"], pairs(UNEVEN)
    robust = replace(METHODS["cdpo"], loss=partial(preference.cdpo, beta=beta, eps=-eps / (1 - 2 * eps)))
    agree(ours(robust, batch), dpo_loss(batch, "robust", beta=beta, label_smoothing=eps))


def test_simpo():
    """TRL has SimPO inside CPO, with no likelihood term."""
    batch, made = pairs(UNEVEN), cpo_trainer(
        loss_type="simpo", beta=constants("simpo")["beta"], simpo_gamma=constants("simpo")["gamma"], cpo_alpha=0.0,
        label_smoothing=0.0,
    )
    agree(ours(METHODS["simpo"], batch), made.get_batch_loss_metrics(POLICY, cpo_inputs(batch))[0])


def test_cpo():
    """The paper's likelihood term is log pi(y_w), a sum; TRL's is the mean over all chosen tokens of the batch.

    So TRL's is the row with alpha over the mean number of chosen tokens, whatever the lengths.
    """
    row, batch, beta, alpha = METHODS["cpo"], pairs(UNEVEN), *constants("cpo").values()
    made = cpo_trainer(loss_type="sigmoid", beta=beta, cpo_alpha=alpha, label_smoothing=0.0)
    theirs = made.get_batch_loss_metrics(POLICY, cpo_inputs(batch))[0]
    tokens = batch.mask[::2].sum() / batch.units
    agree(ours(replace(row, loss=partial(preference.cpo, beta=beta, alpha=alpha / tokens)), batch), theirs)
    assert abs(ours(row, batch) - theirs) > 1  # as it stands


def test_orpo():
    """The odds-ratio term is the same; TRL computes it in float32, so it is held to 1e-7.

    The row's likelihood term is that of the answer, a mean over its tokens. TRL, like the authors' code, has the prompt's
    tokens in it too and takes one mean over the batch: that is the `sft` row.
    """
    row, batch, lam = METHODS["orpo"], pairs(UNEVEN), constants("orpo")["lam"]
    made = trainer("ORPOTrainer", beta=lam, is_encoder_decoder=False, padding_value=0)
    theirs = made.get_batch_loss_metrics(POLICY, cpo_inputs(batch))[0]
    odds = ours(row, batch) - ours(replace(row, loss=partial(preference.orpo, lam=0.0)), batch)
    said = seen(batch).bool() & (torch.arange(PROMPT + BUDGET) > 0) & (torch.arange(len(batch)) % 2 == 0)[:, None]
    likelihood = ours(METHODS["sft"], replace(batch, mask=said, weight=weights.token_mean(said, BUDGET)))
    agree(odds + likelihood, theirs, within=1e-7)


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
def test_kto(wanted, unwanted, seed):
    """The baseline too: the mean log-ratio of answers to other prompts, at least 0 (it is, in one of the two draws)."""
    row, beta, label = METHODS["kto"], constants("kto")["beta"], torch.tensor([1.0, -1.0, -1.0, 1.0, 1.0, -1.0])
    batch, other = answers([3, 5, 1, 2, 5, 4], weight=torch.full((6,), 1 / 6)), answers([2, 4, 5, 1, 3, 3], seed, weight=None)
    ratio = [policy.logp(other.tokens, other.mask)[0].sum(1) for policy in (POLICY, REFERENCE)]
    baseline = preference.kto_baseline(ratio[0] - ratio[1])
    assert (baseline > 0) == (seed == 0)
    ref_logp = REFERENCE.logp(batch.tokens, batch.mask)[0].detach()
    batch = replace(batch, ref_logp=ref_logp, label=label, baseline=baseline.expand(6))
    made = trainer(
        "KTOTrainer", calculate_KL=True, precompute_ref_logps=False, loss_type="kto", beta=beta, desirable_weight=wanted,
        undesirable_weight=unwanted, args=SimpleNamespace(gradient_checkpointing_kwargs=None),
    )
    inputs = {"label": label > 0}
    for prefix, x in (("", batch), ("KL_", other)):
        columns = {"input_ids": x.tokens, "attention_mask": seen(x), "completion_mask": x.mask.long()}
        inputs |= {prefix + name: column for name, column in columns.items()}
    loss = partial(preference.kto, beta=beta, wanted=wanted, unwanted=unwanted)
    agree(ours(replace(row, loss=loss), batch), made._compute_loss(POLICY, inputs, return_outputs=False))


GROUP = 4
REWARD = torch.tensor([1.0, 0.0, 0.25, 0.5, 1.0, 1.0, 0.0, 1.0, 0.3, 0.2, 0.1, 0.9], dtype=torch.float64)


def rollouts(method):
    """Three prompts of four samples with reward, credit and weight as the row has them; the samples are those of OLD."""
    batch = answers([3, 5, 1, 2, 5, 4, 2, 2, 4, 1, 3, 5], weight=None)
    old, ref = (model.logp(batch.tokens, batch.mask)[0].detach() for model in (OLD, REFERENCE))
    reward = credit.kl_penalty(credit.place_reward(REWARD, batch.mask), old, ref, batch.mask, method.kl_in_reward)
    adv = method.credit(reward, batch.mask, GROUP, None)
    return replace(batch, adv=adv, old_logp=old, ref_logp=ref, weight=method.weigh(batch.mask, BUDGET))


def row_advantage(batch):  # [B, T] -> [B]: all tokens of a row have the same
    return batch.adv[:, PROMPT]


KINDS = {"gspo": "grpo", "grpo": "grpo", "dr_grpo": "dr_grpo", "dapo": "dapo", "cispo": "cispo"}


def grpo_trainer(name, batch, passes=1, **changes):
    """TRL's settings for a row, with the row's constants. (Its defaults are no row: DAPO's loss, clip 0.2 both ways, no KL.)"""
    row, clip = METHODS[name], METHODS[name].surrogate.keywords
    high = 1 + clip["high"] if name == "cispo" else clip["high"]  # CISPO's is the largest weight itself
    settings = {
        "loss_type": KINDS[name], "importance_sampling_level": "sequence" if name == "gspo" else "token",
        "epsilon_low": clip["low"], "epsilon_high": high, "beta": row.kl_in_loss,
        "scale_rewards": "none" if name == "dr_grpo" else "group",
    }
    return policy_trainer("GRPOTrainer", batch, REWARD, GROUP, passes, **(settings | changes))


@pytest.mark.parametrize("name", KINDS)
def test_a_group_row(name):
    """The surrogate, the KL and the normaliser, at the row's advantages, on samples of another policy: the clip is at work."""
    batch = rollouts(METHODS[name])
    made = grpo_trainer(name, batch)
    agree(ours(METHODS[name], batch), made._compute_loss(POLICY, scored(made, batch) | {"advantages": row_advantage(batch)}))
    seen = objectives.build(METHODS[name])(SimpleNamespace(policy=POLICY), batch)[1].results()
    assert 0 < seen["clip_fraction"] < 1


@pytest.mark.parametrize("name", ["grpo", "dr_grpo"])
def test_the_advantages_of_a_group(name):
    """Dr. GRPO's are the same. GRPO's std is the population's (the paper does not say which), TRL's the sample's plus 1e-4.

    The ratio is sqrt(G/(G-1)) + 1e-4/std: about 1.15 for four samples.
    """
    batch = rollouts(METHODS[name])
    theirs = scored(grpo_trainer(name, batch), batch)["advantages"]
    std = REWARD.view(-1, GROUP).std(1, unbiased=False).repeat_interleave(GROUP)
    factor = (GROUP / (GROUP - 1)) ** 0.5 + 1e-4 / std if name == "grpo" else 1.0
    torch.testing.assert_close(row_advantage(batch), theirs * factor, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "dapo", "cispo"])
def test_a_step_in_two_passes(name):
    """TRL divides in passes of equally many rows by what our weights hold for the whole step.

    Not so its bnpo, where it takes the mean of the passes' token means: that is not the token mean.
    """
    batch = rollouts(METHODS[name])

    def theirs(passes, **changes):
        made = grpo_trainer(name, batch, passes, **changes)
        inputs = scored(made, batch) | {"advantages": row_advantage(batch)}
        size = len(batch) // passes
        parts = [{k: x[i: i + size] if x.dim() else x for k, x in inputs.items()} for i in range(0, len(batch), size)]
        return sum(made._compute_loss(POLICY, part) for part in parts)

    agree(ours(METHODS[name], batch), theirs(2))
    if name == "dapo":
        agree(ours(METHODS[name], batch), theirs(1, loss_type="bnpo"))
        assert abs(theirs(2, loss_type="bnpo") - theirs(1, loss_type="bnpo")) > 1e-3


def rloo_trainer(batch, clip):
    return policy_trainer(
        "RLOOTrainer", batch, REWARD, GROUP, beta=METHODS["rloo"].kl_in_reward, reward_clip_range=None,
        normalize_advantages=False, epsilon_low=clip, epsilon_high=clip,
    )


def test_rloo():
    """Advantages, KL in the reward included, are the same. The paper's loss is REINFORCE's, -A log pi.

    TRL's is -min(s A, clip(s) A), s the ratio of whole sequences. On policy s = 1 and the gradients are the same (the values
    are not); off policy, inside the clip, TRL's gradient is the row's with every advantage times s.
    """
    row = METHODS["rloo"]
    batch = rollouts(row)
    inputs = scored(rloo_trainer(batch, 0.2), batch)
    torch.testing.assert_close(row_advantage(batch), inputs["advantages"], rtol=0, atol=1e-12)
    now = POLICY.logp(batch.tokens, batch.mask)[0].sum(1).detach()
    ratio = (now - inputs["old_logps"]).exp()
    assert (ratio - 1).abs().max() > 0.2
    for old, clip, factor in ((now, 0.2, torch.ones(len(batch))), (inputs["old_logps"], 1e9, ratio)):
        theirs = rloo_trainer(batch, clip)._compute_loss(POLICY, inputs | {"old_logps": old})
        mine = ours(row, replace(batch, adv=batch.adv * factor[:, None]))
        agree(mine - mine.detach(), theirs - theirs.detach())


def test_overlong():
    from trl.rewards import get_soft_overlong_punishment

    lengths = torch.arange(1, 26)
    theirs = get_soft_overlong_punishment(20, 4)([[0] * n for n in lengths.tolist()])
    torch.testing.assert_close(credit.overlong(lengths, 20, 4), torch.tensor(theirs))

"""Losses and advantages on rollouts equal those of TRL's own code, made as `trl_test` says."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from against import against
from theirs import (
    BUDGET,
    HOMES,
    OLD,
    POLICY,
    PROMPT,
    REFERENCE,
    Bigram,
    agree,
    answers,
    load,
    ours,
    policy_trainer,
    scored,
)

from postgrad.maths import credit
from postgrad.methods import METHODS, change
from postgrad.training import objectives
from postgrad.training.batches.columns import weigh_minibatch


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


GROUP = 4
REWARD = torch.tensor([1.0, 0.0, 0.25, 0.5, 1.0, 1.0, 0.0, 1.0, 0.3, 0.2, 0.1, 0.9], dtype=torch.float64)


def rollouts(method):
    """Three prompts of four samples with reward, credit and weight as the row has them;
    the samples are those of OLD."""
    batch = answers([3, 5, 1, 2, 5, 4, 2, 2, 4, 1, 3, 5], weight=None)
    old, ref = (model.logp(batch.tokens, batch.mask)[0].detach() for model in (OLD, REFERENCE))
    reward = credit.kl_penalty(credit.place_reward(REWARD, batch.mask), old, ref, batch.mask,
                               method.kl_in_reward)
    adv = method.credit(reward, batch.mask, GROUP)
    return replace(batch, adv=adv, old_logp=old, ref_logp=ref, weight=method.weigh(batch.mask, BUDGET))


def row_advantage(batch):  # [B, T] -> [B]: all tokens of a row have the same
    return batch.adv[:, PROMPT]


KINDS = {"gspo": "grpo", "grpo": "grpo", "dr_grpo": "dr_grpo", "dapo": "dapo", "cispo": "cispo",
         "sapo": "sapo", "gmpo": "grpo", "lite_ppo": "dapo"}
SCALES = {"dr_grpo": "none", "lite_ppo": "batch"}  # the others': group


def grpo_trainer(name, batch, passes=1, **changes):
    """TRL's settings for a row, with the row's constants.

    (Its defaults are no row: DAPO's loss, clip 0.2 both ways, no KL.)
    """
    row, bound = METHODS[name], METHODS[name].surrogate.keywords
    low, high = bound.get("low"), bound.get("high")
    settings = {
        "loss_type": KINDS[name], "importance_sampling_level": "sequence" if name == "gspo" else "token",
        # CISPO's is the largest weight itself
        "epsilon_low": low, "epsilon_high": 1 + high if name == "cispo" else high,
        "beta": row.kl_in_loss, "scale_rewards": SCALES.get(name, "group"),
        "args": {"sapo_temperature_pos": bound.get("praised"), "sapo_temperature_neg": bound.get("blamed")},
    }
    kind = "GMPOTrainer" if name == "gmpo" else "GRPOTrainer"
    return policy_trainer(kind, batch, REWARD, GROUP, passes, **(settings | changes))


@pytest.mark.parametrize("name", KINDS)
@against("TRL", grpo="loss_type grpo with beta 0.04: the same surrogate, KL and normaliser",
         dr_grpo="loss_type dr_grpo with scale_rewards none: the same",
         dapo="loss_type dapo with epsilon_high 0.28: the same surrogate and normaliser",
         gspo="loss_type grpo with importance_sampling_level sequence: the same surrogate and normaliser",
         cispo="epsilon_high is the largest weight itself, 5 where the row has high=4: the same",
         sapo="loss_type sapo, the same temperatures: the same surrogate and normaliser",
         gmpo="its experimental GMPO trainer, clip 0.4 in log space: the same surrogate and normaliser",
         lite_ppo="loss_type dapo: the same surrogate and normaliser")
def test_a_group_row(name):
    """The surrogate, the KL and the normaliser, at the row's advantages, on samples of another policy:
    the clip is at work."""
    batch = rollouts(METHODS[name])
    made = grpo_trainer(name, batch)
    agree(ours(METHODS[name], batch),
          made._compute_loss(POLICY, scored(made, batch) | {"advantages": row_advantage(batch)}))
    seen = objectives.build_objective(METHODS[name])(SimpleNamespace(policy=POLICY), batch)[1].results()
    assert 0 < seen["clip_fraction"] < 1 or name == "sapo"  # which has no clip


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "lite_ppo"])
@against("TRL", grpo="divides advantages by the sample's std plus 1e-4, the row by the population's (the "
         "paper does not say which): the row's are sqrt(G/(G-1)) times as large, 1.15 for four samples",
         dr_grpo="the same advantages",
         lite_ppo="divides by the sample's std of the batch plus 1e-4, the row by the population's: a "
         "factor of sqrt(N/(N-1)) over N samples")
def test_the_advantages_of_a_group(name):
    """Dr. GRPO's are the same.

    GRPO's and Lite PPO's std is the population's (the papers do not say which), TRL's the sample's plus 1e-4.

    The ratio is sqrt(N/(N-1)) + 1e-4/std: about 1.15 for four samples.
    """
    batch = rollouts(METHODS[name])
    theirs = scored(grpo_trainer(name, batch), batch)["advantages"]
    count = {"grpo": GROUP, "dr_grpo": 0, "lite_ppo": len(REWARD)}[name]
    std = REWARD.view(-1, count or 1).std(1, unbiased=False).repeat_interleave(count or 1)
    factor = (count / (count - 1)) ** 0.5 + 1e-4 / std if count else 1.0
    torch.testing.assert_close(row_advantage(batch), theirs * factor, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "dapo", "cispo", "sapo", "gmpo", "lite_ppo"])
@against("TRL", dapo="loss_type bnpo is the mean of the passes' token means: another loss as soon as a "
         "step has two passes; loss_type dapo is the token mean of the step, as here")
def test_a_step_in_two_passes(name):
    """TRL divides in passes of equally many rows by what our weights hold for the whole step.

    Not so its bnpo, where it takes the mean of the passes' token means: that is not the token mean.
    """
    batch = rollouts(METHODS[name])

    def theirs(passes, **changes):
        made = grpo_trainer(name, batch, passes, **changes)
        inputs = scored(made, batch) | {"advantages": row_advantage(batch)}
        size = len(batch) // passes
        parts = [{k: x[i: i + size] if x.dim() else x for k, x in inputs.items()}
                 for i in range(0, len(batch), size)]
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


@against("TRL", rloo="the same advantages, KL included; the loss is -min(s A, clip(s) A), s the ratio of "
         "whole replies, where the paper's is REINFORCE's -A log pi. On policy the gradient is the same; "
         "off policy, inside the clip, it is the row's with every advantage times s")
def test_rloo():
    """Advantages, KL in the reward included, are the same. The paper's loss is REINFORCE's, -A log pi.

    TRL's is -min(s A, clip(s) A), s the ratio of whole sequences. On policy s = 1 and the gradients are the
    same (the values are not); off policy, inside the clip,
    TRL's gradient is the row's with every advantage times s.
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


@against("TRL", deepseek_v32="off_policy_mask_threshold and use_bias_correction_kl on loss_type grpo: the "
         "same loss and gradient")
def test_deepseek_v32():
    """TRL's off-policy mask and bias-corrected KL, on samples of another engine than OLD."""
    row = change(METHODS["deepseek_v32"], far=0.1)
    batch = rollouts(row)
    sampled = Bigram(5, OLD, by=0.6).logp(batch.tokens, batch.mask)[0].detach()
    batch = replace(batch, sampler_logp=sampled)
    made = grpo_trainer("grpo", batch, beta=row.kl_in_loss, args={"use_bias_correction_kl": True},
                        off_policy_mask_threshold=row.surrogate.keywords["far"])
    inputs = scored(made, batch) | {"advantages": row_advantage(batch),
                                    "sampling_per_token_logps": sampled[:, PROMPT:]}
    agree(ours(row, batch), made._compute_loss(POLICY, inputs))
    assert abs(ours(change(row, far=1e9), batch) - ours(row, batch)) > 1e-3  # some rows are dropped


def test_overlong():
    from trl.rewards import get_soft_overlong_punishment

    lengths = torch.arange(1, 26)
    theirs = get_soft_overlong_punishment(20, 4)([[0] * n for n in lengths.tolist()])
    torch.testing.assert_close(credit.overlong(lengths, 20, 4), torch.tensor(theirs))


MODES = {"tis": "token_truncate", "token_mask": "token_mask", "icepop": "token_mask",
         "sequence": "sequence_mask"}


@pytest.mark.parametrize("part", MODES)
def test_a_correction(part):
    """TRL's weights for samples of another engine (vLLM's), and where they stand: on the surrogate, not on
    the KL."""
    row = change(METHODS["grpo"], correction=part)
    batch, bound = rollouts(row), row.correction.keywords
    sampled = Bigram(5, OLD, by=0.6).logp(batch.tokens, batch.mask)[0].detach()
    batch = weigh_minibatch(replace(batch, sampler_logp=sampled), row, BUDGET)
    most = bound.get("cap", bound.get("most", bound.get("widest", bound.get("highest"))))
    made = grpo_trainer("grpo", batch, use_vllm=True, vllm_importance_sampling_correction=True,
                        vllm_importance_sampling_mode=MODES[part],
                        vllm_importance_sampling_clip_min=bound.get("least"),
                        vllm_importance_sampling_clip_max=most)
    made._generate = reporting(made._generate, batch)
    inputs = scored(made, batch)
    theirs = inputs["importance_sampling_ratio"].expand(len(batch), BUDGET)
    torch.testing.assert_close((batch.correction * batch.mask)[:, PROMPT:], theirs * batch.mask[:, PROMPT:])
    assert (theirs != 1).any() and ((theirs == 0) & batch.mask[:, PROMPT:]).any() == (part != "tis")
    agree(ours(row, batch), made._compute_loss(POLICY, inputs | {"advantages": row_advantage(batch)}))


def reporting(generate, batch):
    """What is generated, with the sampler's log-probs."""
    lengths = batch.lengths.tolist()
    logps = [row[PROMPT:n].tolist() for row, n in zip(batch.sampler_logp, lengths, strict=True)]
    return lambda prompts: (*(said := generate(prompts))[:4], logps, *said[5:])

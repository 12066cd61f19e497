"""Distillation by TRL's own code: SDFT's loss on sampled tokens, GKD's over the whole vocabulary."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from against import against
from theirs import ALONE, BUDGET, OLD, POLICY, PROMPT, REFERENCE, V, agree, answers, ours

from postgrad.maths import weights
from postgrad.methods import METHODS


@pytest.fixture(autouse=True, scope="module")
def offline_float64():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
        pytest.importorskip("trl", reason="TRL is the other side of these tests: pip install -e '.[test]'")
        import trl.experimental.gkd  # noqa: F401
        import trl.experimental.sdft  # noqa: F401
    previous = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(previous)


def taught(row, batch, old=POLICY, teacher=REFERENCE):
    """The batch with the row's advantages."""
    old, teacher = (model.logp(batch.tokens, batch.mask)[0].detach() for model in (old, teacher))
    adv = row.credit(torch.zeros(batch.mask.shape), batch.mask, 1, old_logp=old, teacher_logp=teacher)
    return replace(batch, adv=adv, old_logp=old, weight=row.weigh(batch.mask, BUDGET))


def without_value(x):
    """The loss less its value: TRL's is the divergence itself, ours a surrogate with the same gradient."""
    return x - x.detach()


def sdft_loss(batch, clip=None, old=None):
    from trl.experimental.sdft.sdft_trainer import DistillationLogits, SDFTTrainer
    at = slice(PROMPT - 1, PROMPT + BUDGET - 1)  # what is said at a place chooses the next token
    logits = {"student_logits": POLICY.logits(batch.tokens)[:, at],
              "teacher_logits": REFERENCE.logits(batch.tokens)[:, at].detach()}
    seen = DistillationLogits(completion_ids=batch.tokens[:, PROMPT:], loss_mask=batch.mask[:, PROMPT:],
                              **logits)
    made = SimpleNamespace(accelerator=ALONE, _log_self_distillation_metric=lambda *_: None,
                           args=SimpleNamespace(distillation_mode="sampled_token", distillation_alpha=1.0,
                                                distillation_is_clip=clip))
    inputs = {} if old is None else {"old_per_token_logps": old[:, PROMPT:]}
    return SDFTTrainer._compute_self_distillation_loss(made, POLICY, inputs, seen)


@against("TRL", sdft="its loss on sampled tokens takes the mean of sequence means, the row that of all "
         "tokens; on policy the gradients are the same but for that")
def test_the_loss_on_sampled_tokens():
    """TRL takes the mean of sequence means, Thinking Machines (and the row) that of all tokens: on policy
    the gradients are the same but for that."""
    row = replace(METHODS["sdft"], weigh=weights.sequence_mean)
    batch = taught(row, answers([3, 5, 1, 2, 5, 4], weight=None))
    agree(without_value(ours(row, batch)), without_value(sdft_loss(batch)))
    even = taught(METHODS["sdft"], answers([4] * 6, weight=None))
    agree(without_value(ours(METHODS["sdft"], even)), without_value(sdft_loss(even)))


@against("TRL", sdft="off policy it recomputes the advantage against the present policy, with a cut "
         "ratio that has no gradient, as CISPO's; the row's stands with the collection")
def test_off_policy_the_teacher_is_held_against_who_sampled():
    """In TRL the advantage is taken anew against the present policy, and its ratio is cut and not
    differentiated, as CISPO's; here it stands with the collection, as in Thinking Machines' loss. So TRL's is
    that with CISPO's surrogate and each advantage less what the policy has moved since."""
    row = replace(METHODS["sdft"], weigh=weights.sequence_mean, surrogate=METHODS["cispo"].surrogate)
    batch = taught(row, answers([3, 5, 1, 2, 5, 4], weight=None), old=OLD)
    now = POLICY.logp(batch.tokens, batch.mask)[0].detach()
    wide = row.surrogate.keywords["high"] + 1
    assert ((now - batch.old_logp).exp() > wide).any()
    moved = replace(batch, adv=batch.adv - torch.where(batch.mask, now - batch.old_logp, 0.0))
    agree(without_value(ours(row, moved)), without_value(sdft_loss(batch, clip=wide, old=batch.old_logp)))


@against("TRL", opd="GKD with beta 1, which its distillation trainer has by default, is the same loss, "
         "divided by the same tokens")
def test_over_the_vocabulary_it_is_gkd():
    from trl.experimental.gkd import GKDTrainer
    row = METHODS["opd"]
    batch = taught(row, answers([3, 5, 1, 2, 5, 4], weight=None))
    at = slice(PROMPT - 1, PROMPT + BUDGET - 1)  # what is said at a place chooses the next token
    student, teacher = (model.logits(batch.tokens)[:, at] for model in (POLICY, REFERENCE))
    labels = torch.where(batch.mask, batch.tokens, -100)[:, PROMPT:]
    theirs = GKDTrainer.generalized_jsd_loss(student, teacher.detach(), labels=labels, beta=1.0)
    agree(ours(row, batch), theirs)


@against("TRL", sdft="GKD with beta 1 sums over the vocabulary: the mean of the row's gradient over "
         "every token that could have been sampled")
def test_its_mean_over_the_vocabulary_is_the_reverse_kl():
    """Every token that could have been sampled, weighed by its chance: GKD's loss with beta 1."""
    from trl.experimental.gkd import GKDTrainer
    row, prompts = METHODS["sdft"], answers([1] * 5, weight=None)
    tokens = prompts.tokens.repeat_interleave(V, 0)
    tokens[:, PROMPT] = torch.arange(V).repeat(5)
    every = replace(prompts, ids=tuple(map(str, range(5 * V))), tokens=tokens,
                    mask=prompts.mask.repeat_interleave(V, 0), lengths=prompts.lengths.repeat_interleave(V))
    batch = taught(row, every)
    batch = replace(batch, weight=batch.mask * batch.old_logp.exp() / 5)
    student, teacher = (model.logits(prompts.tokens)[:, PROMPT - 1: PROMPT] for model in (POLICY, REFERENCE))
    theirs = GKDTrainer.generalized_jsd_loss(student, teacher.detach(), beta=1.0, reduction="batchmean")
    agree(without_value(ours(row, batch)), without_value(theirs))

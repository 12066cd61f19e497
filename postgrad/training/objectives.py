"""Objectives: (models, batch) -> loss, stats, by the kind of a row of the table.

An objective never reduces: it returns loss [B, T] (or [U], one per pair or single); the loop takes (loss *
batch.weight).sum(). It calls the methods of models/protocols.py, with packed=batch.packed, the rows without
padding. Advantages, old and reference log-probs are columns of the batch: constants of the step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import torch
from torch import Tensor

from postgrad.maths import kl, surrogate
from postgrad.maths.noise import widest
from postgrad.maths.preference import sum_logp
from postgrad.methods import Method, Policy, Preference
from postgrad.models import Models
from postgrad.models.protocols import choice_columns
from postgrad.records import Batch
from postgrad.system.user_code import function_name
from postgrad.training.stats import EffectiveShare, ExplainedVariance, Max, Mean, Statistic, Stats

Objective = Callable[[Models, Batch], tuple[Tensor, Stats]]


def build_objective(method: Method, temperature: float = 1.0) -> Objective:
    """The objective of a row of the table. temperature: of the rollouts' sampling; for policy rows alone."""
    if isinstance(method, Policy):
        return partial(policy_objective, method, temperature)
    return partial(preference_objective, method) if isinstance(method, Preference) else supervised_objective


def supervised_objective(models: Models, batch: Batch) -> tuple[Tensor, Stats]:
    """-log pi of every trained token."""
    logp, entropy = models.policy.logp(batch.tokens, batch.mask, 1.0, packed=batch.packed)
    means = {"loss": _mean(-logp, batch.mask), "entropy": _mean(entropy, batch.mask)}
    return -logp, Stats(means, {"logp": logp, "entropy": entropy})


def preference_objective(method: Preference, models: Models, batch: Batch) -> tuple[Tensor, Stats]:
    """A loss per unit [U]: a pair (rows: chosen, rejected, chosen, rejected, ...) or a labelled single. Steps
    and outcomes are labelled tokens: a loss per token of the mask [B, T]."""
    if method.source in ("steps", "outcomes"):
        return _steps(method, models.policy.token_scores(batch.tokens, packed=batch.packed), batch)
    judge = _singles if method.source == "singles" else _pairs
    return judge(method, *_scores(method, models, batch), batch)


def _scores(method: Preference, models: Models, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
    """Scores [B], or [B, K] of K heads; and the summed log-probs [B] that the loss takes."""
    if method.score is None:
        return models.policy.scores(batch.tokens, batch.lengths, packed=batch.packed), {}
    logp, _ = models.policy.logp(batch.tokens, batch.mask, 1.0, packed=batch.packed)
    sums = {"logp": logp}
    columns = {name: batch.mask.sum(1) if name == "lengths" else _needed(batch, name, method)
               for name in method.columns_of("score")}
    score = method.score(logp, batch.mask, **columns)
    if method.needs_reference:
        sums["ref_logp"] = _needed(batch, "ref_logp", method)
        score = score - method.score(sums["ref_logp"], batch.mask, **columns)
    return score, {name: sum_logp(x, batch.mask) for name, x in sums.items()
                   if any(column.endswith(f"_{name}") for column in method.columns_of("loss"))}


def _replies(method: Preference, sums: Mapping[str, Tensor],
             batch: Batch) -> dict[str, Tensor]:  # [U, 1] of pairs, [U]
    """The columns that the loss takes by keyword: chosen_length, rejected_ref_logp, reply_logp, ..."""
    rows = {**sums, "length": batch.mask.sum(1).clamp(min=1)}
    out = {}
    for name in method.columns_of("loss"):
        side, _, column = name.partition("_")
        x = rows[column]
        out[name] = x if side == "reply" else x[0 if side == "chosen" else 1::2, None]
    return out


def _pairs(method: Preference, score: Tensor, sums: Mapping[str, Tensor],
           batch: Batch) -> tuple[Tensor, Stats]:
    assert batch.rows_per_unit == 2, (f"{method.name} needs pairs, and the batch has "
                                      f"{batch.rows_per_unit} row(s) a unit")
    score = score if score.dim() == 2 else score[:, None]
    chosen, rejected = score.view(batch.units, 2, score.shape[1]).unbind(1)  # [U, K]
    margin = torch.zeros_like(chosen) if batch.margin is None else batch.margin[:, None].expand_as(chosen)
    loss = method.loss(chosen, rejected, margin, **_replies(method, sums, batch))
    loss = (loss if batch.votes is None else loss * batch.votes).mean(1)
    columns = {"disagreement": (chosen - rejected).std(1)} if chosen.shape[1] > 1 else {}
    chosen, rejected = chosen.mean(1), rejected.mean(1)
    right = (chosen > rejected) + 0.5 * (chosen == rejected)  # a tie is half right
    columns |= {"loss": loss, "accuracy": right, "margin": chosen - rejected, "chosen": chosen,
                "rejected": rejected}
    return loss, Stats({name: _mean(x) for name, x in columns.items()}, units={"accuracy": right})


def _singles(method: Preference, score: Tensor, sums: Mapping[str, Tensor],
             batch: Batch) -> tuple[Tensor, Stats]:
    label, baseline = _needed(batch, "label", method), _needed(batch, "baseline", method)
    loss = method.loss(score, label, baseline, **_replies(method, sums, batch))
    wanted, unwanted = label > 0, label <= 0
    right = torch.where(wanted, score > baseline, score < baseline).to(loss)
    stats = {
        "loss": _mean(loss), "accuracy": _mean(right), "baseline": _mean(baseline),
        "chosen": _mean(score, wanted), "rejected": _mean(score, unwanted),
    }
    return loss, Stats(stats, units={"accuracy": right})


def _steps(method: Preference, score: Tensor, batch: Batch) -> tuple[Tensor, Stats]:  # [B, T]
    label, mask = _needed(batch, "label", method), batch.mask
    loss = torch.where(mask, method.loss(score, label), 0.0)
    hit = (label * score > 0) + 0.5 * (score == 0)  # a score of 0 is half right
    stats = {
        "loss": _mean(loss, mask), "accuracy": _mean(hit, mask),
        "accuracy_right": _mean(hit, mask & (label > 0)), "accuracy_wrong": _mean(hit, mask & (label < 0)),
    }
    return loss, Stats(stats)


def policy_objective(method: Policy, temperature: float, models: Models,
                     batch: Batch) -> tuple[Tensor, Stats]:
    """surrogate * correction + kl_in_loss KL + value_weight value loss - entropy bonus, each [B, T], under
    the method's one weight. Rows flagged `imitate` have the loss -log pi and a weight of their own
    (PPO-ptx)."""
    adv, imitate = _needed(batch, "adv", method), None if batch.imitate is None else batch.imitate[:, None]
    mask = batch.mask if imitate is None else batch.mask & ~imitate
    logp, entropy, teacher_kl = _policy_logp(method, models, batch, temperature)
    old_logp = logp.detach() if batch.old_logp is None else batch.old_logp
    known = {"entropy": entropy, "old_logp": old_logp, "lengths": mask.sum(1), "teacher_kl": teacher_kl}

    def columns_of(place: str) -> dict[str, Tensor | None]:
        return {name: known[name] if name in known else _needed(batch, name, method)
                for name in method.columns_of(place)}

    made = method.surrogate(logp, old_logp, adv, mask, **columns_of("surrogate"))
    loss, clipped = _two_columns(method, made, mask)
    stats = _policy_stats(batch, mask, logp, old_logp, entropy, clipped)
    pull = _pull(loss, logp)
    if pull is not None:
        stats.columns["pull"] = list(pull)
    if teacher_kl is not None:
        stats["teacher_kl"] = _mean(teacher_kl, mask)
    if batch.correction is not None:
        loss = loss * batch.correction
        stats.update(_correction_stats(batch, mask, old_logp))
    if method.kl_in_loss:
        far = method.kl_in_loss * method.kl_estimator(logp, _needed(batch, "ref_logp", method),
                                                      **columns_of("kl_estimator")) * mask
        loss = loss + far
        if pull is not None and (back := _pull(far, logp)) is not None:
            both = torch.where(mask, back.abs(), 0.0).sum()
            stats["kl_share"] = Mean(both, both + torch.where(mask, pull.abs(), 0.0).sum())
    if method.entropy:
        loss = loss - method.entropy * entropy
    if method.critic:
        value_loss, value_stats = _value_loss(method, models, batch, mask)
        loss = loss + method.value_weight * value_loss
        stats.update(value_stats)
    stats["loss"] = _mean(loss, mask)
    if imitate is not None:
        loss = torch.where(imitate, -logp, loss)
        stats["ptx_loss"] = _mean(-logp, batch.mask & imitate)
    return loss, stats


def _pull(loss: Tensor, logp: Tensor) -> Tensor | None:  # [B, T]
    """-d loss / d log pi of each token: how the loss pulls at it. None where no gradient is taken."""
    if not (loss.requires_grad and logp.requires_grad):
        return None
    (slope,) = torch.autograd.grad(loss.sum(), logp, retain_graph=True, allow_unused=True)
    return None if slope is None else -slope


def _two_columns(method: Policy, made: object, mask: Tensor) -> tuple[Tensor, Tensor]:
    """What a surrogate, which may be a user's, returned: the loss and what was clipped, both [B, T]."""
    if not isinstance(made, tuple) or len(made) != 2:
        raise ValueError(f"surrogate {function_name(method.surrogate)} of {method.name} returned "
                         f"{_shape(made)}: expected a tuple of two, loss [B, T] and clipped [B, T] (where "
                         "the ratio was clipped), a value of each token.")
    loss, clipped = made
    if not isinstance(loss, Tensor) or loss.shape != mask.shape:
        raise ValueError(f"surrogate {function_name(method.surrogate)} of {method.name} returned "
                         f"{_shape(loss)} as the loss: expected [B, T], here {list(mask.shape)}, a value of "
                         "each token; the mean is taken by the row's weight.")
    return loss, clipped


def _shape(value: object) -> str:
    return f"a tensor {list(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"


def _policy_logp(method: Policy, models: Models, batch: Batch,
                 temperature: float) -> tuple[Tensor, Tensor, Tensor | None]:
    """Log-prob and entropy [B, T]; and KL(policy || teacher) [B, T], where the surrogate takes it."""
    if "teacher_kl" not in method.wanted:
        return *models.policy.logp(batch.tokens, batch.mask, temperature, packed=batch.packed), None
    assert models.teacher is not None, "a row that takes teacher_kl needs a teacher"
    with torch.no_grad():
        teacher = models.teacher.choices(batch.tokens, batch.mask, packed=batch.packed)
    policy = models.policy.choices(batch.tokens, batch.mask, packed=batch.packed)
    logp, entropy, far = choice_columns(policy, batch.tokens, temperature, teacher)
    return logp, entropy, far


def _value_loss(method: Policy, models: Models, batch: Batch,
                mask: Tensor) -> tuple[Tensor, dict[str, Statistic]]:
    """The value loss [B, T] and its statistics."""
    returns, value = _needed(batch, "returns", method), models.critic.value(batch.tokens, packed=batch.packed)
    loss = surrogate.clipped_value(value, _needed(batch, "value", method), returns, clip=method.value_clip)
    loss = torch.where(mask, loss, 0.0)
    columns = {"value_loss": loss, "value": value, "return": returns}
    target, error = (widest(torch.where(mask, x.detach(), 0.0)) for x in (returns, value - returns))
    explained = ExplainedVariance(mask.sum(), target.sum(), (target**2).sum(), error.sum(), (error**2).sum())
    return loss, {**{name: _mean(x, mask) for name, x in columns.items()}, "explained_variance": explained}


def _policy_stats(batch: Batch, mask: Tensor, logp: Tensor, old_logp: Tensor, entropy: Tensor,
                  clipped: Tensor) -> Stats:
    logp = logp.detach()
    ratio = torch.where(mask, (logp - old_logp).exp(), 0.0)
    stats: dict[str, Statistic] = {
        "entropy": _mean(entropy, mask),
        "clip_fraction": _mean(clipped, mask),
        "ratio_max": Max(ratio.max()),
        # KL(old || new) on samples of the old policy: never negative
        "approx_kl": _mean(kl.k3(old_logp, logp), mask),
    }
    assert batch.adv is not None
    columns = {"logp": logp, "entropy": entropy, "ratio": ratio, "adv": batch.adv}
    if batch.ref_logp is not None:
        columns["kl"] = kl.k3(logp, batch.ref_logp) * mask
        stats |= {"kl": _mean(columns["kl"], mask), "kl_k1": _mean(kl.k1(logp, batch.ref_logp), mask)}
    if batch.teacher_logp is not None:
        stats["teacher_kl"] = _mean(kl.k1(logp, batch.teacher_logp), mask)
    if batch.sampler_logp is not None:
        stats["mismatch"] = _mean((batch.sampler_logp - old_logp).abs(), mask)
    return Stats(stats, columns)


def _correction_stats(batch: Batch, mask: Tensor, old_logp: Tensor) -> dict[str, Statistic]:
    assert batch.correction is not None and batch.sampler_logp is not None
    weight = widest(torch.where(mask, batch.correction, 0.0))
    return {"mismatch_kl": _mean(kl.k3(batch.sampler_logp, old_logp), mask),
            "corrected_away": _mean(batch.correction == 0, mask),
            "effective_share": EffectiveShare(mask.sum(), weight.sum(), (weight**2).sum())}


def _mean(x: Tensor, mask: Tensor | None = None) -> Mean:
    """The mean of x over the mask, as sum and count, without a gradient."""
    x = x.detach().to(torch.promote_types(x.dtype, torch.float32))
    mask = torch.ones_like(x, dtype=torch.bool) if mask is None else mask
    return Mean(torch.where(mask, x, 0.0).sum(), mask.sum())


def _needed(batch: Batch, column: str, method: Method) -> Tensor:
    x: Tensor | None = getattr(batch, column)
    if x is None:
        raise ValueError(f"{method.name} needs batch.{column}, and it is None: let the {method.source} "
                         "assembly line fill it.")
    return x

"""Scored rollouts -> columns -> minibatches: credit, weights and order, as functions of batches.

`RolloutBatches` calls them one after another; so do the tests, on an enumerable language.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from postgrad.maths import credit
from postgrad.maths.noise import seed_of
from postgrad.maths.packing import concat_rows, to_device
from postgrad.methods import Policy
from postgrad.models import Models
from postgrad.records import Batch, Prompt, Rollout, Scored
from postgrad.training.batches.checkpointing import pick_rows
from postgrad.training.batches.episodes import episode_batch, group_rows, join_episodes, split_episodes
from postgrad.training.batches.shuffled import model_logp, no_grad_forward
from postgrad.training.distributed.virtual_ranks import SINGLE_RANK, VirtualRanks

Show = Callable[[Prompt], Sequence[int]]  # the tokens that a teacher reads in place of a prompt's own

SOFT_SHARE = 5  # the soft length limit takes the last fifth of the budget


def rollout_batch(rollouts: Sequence[Rollout]) -> Batch:
    """Rollouts as padded rows: prompt and reply, the sampled tokens masked, with the sampler's log-probs."""
    rows = [row for r in rollouts for row in r.rows]
    read, written = (np.array([len(x) for x in part])[:, None]
                     for part in ([r.prompt_tokens for r in rows], [r.tokens for r in rows]))
    column = np.arange(int((read + written).max()))
    prompt, reply = column < read, (column >= read) & (column < read + written)  # [B, T]
    tokens, mask, logp = np.zeros(reply.shape, np.int64), reply.copy(), np.zeros(reply.shape, np.float32)
    tokens[prompt] = concat_rows([r.prompt_tokens for r in rows])
    tokens[reply] = concat_rows([r.tokens for r in rows])
    logp[reply] = concat_rows([r.logp for r in rows], np.float32)
    if any(r.mask for r in rows):
        mask[reply] = concat_rows([r.mask or [True] * len(r.tokens) for r in rows], bool)
    routes = None
    if any(r.routes is not None for r in rows):
        shape = next(r.routes.shape[1:] for r in rows if r.routes is not None)
        routes = torch.zeros(*tokens.shape, *shape, dtype=torch.int16)
        for row, r in zip(routes, rows, strict=True):
            if r.routes is not None:
                row[: len(r.routes)] = r.routes
    several = len(rows) > len(rollouts)
    episode = torch.tensor([i for i, r in enumerate(rollouts) for _ in r.rows]) if several else None
    trained = torch.from_numpy(mask)
    return Batch(ids=tuple(r.prompt.id for r in rows), tokens=torch.from_numpy(tokens), mask=trained,
                 lengths=torch.from_numpy((read + written)[:, 0]), weight=trained.float(), episode=episode,
                 sampler_logp=torch.from_numpy(logp), routes=routes)


def token_rewards(rows: Sequence[Scored], mask: Tensor, method: Policy, budget: int,
                  episode: Tensor | None = None) -> Tensor:  # [B, T]
    """The score on the last token of an episode, or per token where the verdict has it so; penalties on the
    last token. rows: one per episode."""
    mask = join_episodes(mask, episode)
    score = episode_scores(rows, method, budget)
    dense = torch.zeros(mask.shape, device=mask.device)
    for i, s in enumerate(rows):
        if s.verdict.per_token is not None and s.verdict.given:
            assert len(s.verdict.per_token) == len(s.rollout.sampled), "a reward for each sampled token"
            dense[i, mask[i]] = torch.tensor(s.verdict.per_token, dtype=torch.float32).to(mask.device)
            score[i] -= s.verdict.score
    return split_episodes(credit.place_reward(to_device(score, mask.device), mask) + dense, episode)


def episode_scores(rows: Sequence[Scored], method: Policy, budget: int) -> Tensor:  # [B]
    """One score a row, minus the penalties of truncated and (DAPO) overlong replies. Rows with a failed
    verdict are masked."""
    score = torch.tensor([s.verdict.score for s in rows], dtype=torch.float32)
    if method.truncated_penalty:
        score -= method.truncated_penalty * torch.tensor([not s.rollout.finished for s in rows]).float()
    if not method.overlong:
        return score
    lengths = torch.tensor([len(s.rollout.sampled) for s in rows])
    return score + credit.overlong(lengths, budget, max(1, budget // SOFT_SHARE))


def credit_columns(batch: Batch, reward: Tensor, method: Policy, models: Models, *, group_size: int,
                   kl: float, tokens_per_pass: int, temperature: float = 1.0, several: bool = True,
                   show: Show | None = None, virtual_ranks: VirtualRanks = SINGLE_RANK) -> Batch:
    """Adds advantages and the other columns of a collection; credit sees whole groups. kl: the current
    coefficient of the KL in the reward. several: more than one update, so old_logp is needed; otherwise the
    ratio is 1 and it stays None. show: see `teacher_columns`."""
    old = entropy = ref = value = teacher = None
    facts: dict[str, float] = {}
    early = {name for place in ("credit", "choose", "mark", "correction")
             for name in method.columns_of(place)}
    early |= {"old_logp"} if method.correction else set()
    if several or method.kl_in_reward > 0 or early & {"old_logp", "entropy"}:
        old, entropy = model_logp(models.policy, batch, tokens_per_pass, temperature, virtual_ranks)
    if method.needs_reference:
        assert models.reference is not None, f"{method.name} needs a reference"
        ref, _ = model_logp(models.reference, replace(batch, routes=None), tokens_per_pass, temperature,
                            virtual_ranks)
    if "teacher_logp" in method.wanted:
        teacher = teacher_columns(batch, models, tokens_per_pass, temperature, show, virtual_ranks)
    if method.critic:
        (value,) = no_grad_forward(lambda b: (models.critic.value(b.tokens, packed=b.packed),), batch,
                                   tokens_per_pass, virtual_ranks)
    if method.kl_in_reward > 0:
        assert old is not None and ref is not None
        reward = credit.kl_penalty(reward, old, ref, batch.mask, kl)
        gap = torch.where(batch.mask, old - ref, 0.0)
        facts["kl_reply"] = float(gap.sum() / batch.mask.any(1).sum().clamp(min=1))
    if method.scale_rewards:
        reward = credit.scale_rewards(reward, batch.mask)
    batch = replace(batch, old_logp=old, ref_logp=ref, teacher_logp=teacher, value=value,
                    entropy=entropy if "entropy" in early else None)
    whole = episode_batch(batch)
    adv = method.credit(join_episodes(reward, batch.episode), whole.mask, group_size,
                        **further_columns(whole, method.columns_of("credit")))
    adv = split_episodes(adv, batch.episode)
    returns = adv + value if value is not None else None
    if method.whiten:
        adv = credit.whiten(adv, batch.mask)
    return replace(batch, mask=trained_mask(batch, method), adv=adv, returns=returns,
                   old_logp=old if several or "old_logp" in early else None, facts=facts)


def teacher_columns(batch: Batch, models: Models, tokens_per_pass: int, temperature: float,
                    show: Show | None, virtual_ranks: VirtualRanks = SINGLE_RANK) -> Tensor:  # [B, T]
    """The teacher's log-probs of the sampled tokens. show: what it reads in place of a prompt's tokens."""
    assert models.teacher is not None, "a row that wants teacher_logp needs a teacher"
    if show is None:
        return model_logp(models.teacher, replace(batch, routes=None), tokens_per_pass, temperature,
                          virtual_ranks)[0]
    rows = [replace(s.rollout, prompt_tokens=tuple(show(s.rollout.prompt))) for s in batch.scored]
    read = rollout_batch(rows).to(batch.mask.device)
    read = replace(read, mask=read.mask & batch.mask.any(1)[:, None])  # a row whose verdict failed has none
    logp, _ = model_logp(models.teacher, read, tokens_per_pass, temperature, virtual_ranks)
    out = torch.zeros(batch.mask.shape, dtype=logp.dtype, device=logp.device)
    out[batch.mask] = logp[read.mask]
    return out


def trained_mask(batch: Batch, method: Policy) -> Tensor:  # [B, T]
    """The sampled tokens that are trained."""
    if not method.mask_truncated:
        return batch.mask
    finished = torch.tensor([s.rollout.finished for s in batch.scored], device=batch.mask.device)
    return batch.mask & finished[:, None]


def further_columns(batch: Batch, names: Sequence[str]) -> dict[str, Tensor]:
    """The columns that a row's function wants, by name."""
    computed = {"lengths": lambda: batch.mask.sum(1), "parts": lambda: part_scores(batch)[0],
                "part_weights": lambda: part_scores(batch)[1]}
    return {name: computed[name]() if name in computed else getattr(batch, name) for name in names}


def part_scores(batch: Batch) -> tuple[Tensor, Tensor]:  # [B, K] each
    """The parts of the verdicts and their weights; NaN where a part was not judged. A score that is no sum is
    one part."""
    verdicts = [s.verdict for s in batch.scored]
    names = sorted({name for verdict in verdicts for name in verdict.weights})
    scores = [[v.parts.get(name, math.nan) for name in names] or [v.score] for v in verdicts]
    weights = [[v.weights.get(name, 0.0) for name in names] or [1.0] for v in verdicts]
    return (torch.tensor(scores, dtype=torch.float32, device=batch.mask.device),
            torch.tensor(weights, dtype=torch.float32, device=batch.mask.device))


def minibatches(batch: Batch, method: Policy, *, group_size: int, budget: int, seed: int,
                step: int) -> list[Batch]:
    """A collection as one batch per optimizer step: epochs * minibatches of whole groups, shuffled by (seed,
    step, epoch) where an epoch has several."""
    rows_of = group_rows(batch, group_size)
    groups = len(rows_of)
    count = min(method.minibatches, groups)
    out = []
    for epoch in range(method.epochs):
        order = torch.arange(groups)
        if count > 1:
            shuffler = torch.Generator().manual_seed(seed_of(seed, "minibatch", step, epoch))
            order = torch.randperm(groups, generator=shuffler)
        for part in order.tensor_split(count):
            rows = [row for g in part.tolist() for row in rows_of[g]]
            picked = batch if rows == list(range(len(batch))) else pick_rows(batch, rows)
            out.append(weigh_minibatch(picked, method, budget, group_size))
    return out


def weigh_minibatch(batch: Batch, method: Policy, budget: int, group_size: int = 1) -> Batch:
    """Adds the weights of the optimizer step, over the tokens that the method chooses, its marks and its
    correction. group_size: for methods that weigh by prompt."""
    whole = episode_batch(batch)
    counted = whole.mask
    if method.choose:
        counted = counted & method.choose(whole.mask, whole.adv,
                                          **further_columns(whole, method.columns_of("choose")))
    marked = correction = None
    if method.mark:
        mark = method.mark(counted, whole.adv, **further_columns(whole, method.columns_of("mark")))
        marked = split_episodes(counted & mark, batch.episode)
    if method.correction:
        ratio = method.correction(whole.sampler_logp, whole.old_logp, whole.mask,
                                  **further_columns(whole, method.columns_of("correction")))
        correction = split_episodes(ratio, batch.episode)
    by_prompt = {"group_size": group_size} if method.columns_of("weigh") else {}
    weight = split_episodes(method.weigh(counted, budget, **by_prompt), batch.episode)
    return replace(batch, weight=weight, marked=marked, correction=correction)

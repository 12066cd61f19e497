"""Rollouts -> Batch: sample, score, credit, weigh."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace

import torch
from torch import Tensor

from postgrad.batches.deck import Deck, assemble, seen
from postgrad.maths import credit
from postgrad.maths.noise import seed_of
from postgrad.records import Batch, Prompt, Rollout, Scored, Verdict, pad_rows


@dataclass(frozen=True, kw_only=True)
class Rollouts:
    """How rollouts are made and used. Two numbers say how many: prompts_per_step and group_size; the rest is derived."""

    prompts: int = 2000         # training prompts drawn from the task
    prompts_per_step: int = 16
    group_size: int = 8
    max_new_tokens: int = 64
    temperature: float = 1.0
    epochs: int = 1             # passes over each set of rollouts
    minibatches: int = 1        # optimizer steps per pass
    resample_limit: int = 3     # DAPO: further draws, at most, for groups that all scored the same

    def __post_init__(self):
        for name in ("prompts", "prompts_per_step", "group_size", "max_new_tokens", "epochs", "minibatches"):
            if getattr(self, name) < 1:
                raise ValueError(f"rollouts.{name} is {getattr(self, name)}: it must be at least 1.")
        if self.prompts_per_step % self.minibatches:
            raise ValueError(f"{self.prompts_per_step} prompts cannot be split into {self.minibatches} minibatches: set "
                             f"rollouts.minibatches to a divisor, e.g. {_divisor(self.prompts_per_step, self.minibatches)}.")
        if not self.temperature > 0:
            raise ValueError(f"rollouts.temperature is {self.temperature}: samples of a group must differ, "
                             "so it must be above 0.")


def _divisor(number: int, near: int) -> int:
    return max(d for d in range(1, min(number, near) + 1) if number % d == 0)


Judge = Callable[[Sequence[Rollout]], Sequence[Verdict]]


class RolloutBatches:
    """Prompt -> rollout -> verdict -> credit -> weight. Epochs and minibatches live here, and so does DAPO's resampling."""

    def __init__(self, prompts: Sequence[Prompt], *, sample: Callable, judge: Judge, models, method,
                 settings: Rollouts, steps: int, seed: int, tokens_per_pass: int, device="cpu"):
        if settings.group_size < 2 and not method.critic and method.name != "reinforce":
            raise ValueError(f"{method.name} compares the samples of a group: rollouts.group_size is {settings.group_size}, "
                             "set it to 2 or more.")
        for role, needed in (("reference", method.reference), ("critic", method.critic)):
            if needed and getattr(models, role) is None:
                raise ValueError(f"{method.name} needs a {role} model and there is none: give Models({role}=...).")
        self.sample, self.judge, self.models, self.method, self.settings = sample, judge, models, method, settings
        self.steps, self.step, self.seed, self.tokens_per_pass, self.device = steps, 0, seed, tokens_per_pass, device
        self.deck = Deck(prompts, seed)
        self.held: list[Batch] = []  # minibatches of the present rollouts that are still to be trained on

    def __iter__(self) -> Iterator[Batch]:
        while self.step < self.steps:
            self.step += 1
            if not self.held:
                self.held = self.minibatches(self.rollouts())
            yield self.held.pop(0).to(self.device)

    # Prompt -> Scored

    def rollouts(self) -> tuple[list[list[Scored]], dict[str, float]]:
        """The groups of one collection, and what was measured on the way."""
        began = time.perf_counter()
        wanted, groups, drawn, flat = self.settings.prompts_per_step, [], 0, 0
        tries = 1 + (self.settings.resample_limit if self.method.resample_flat else 0)
        for turn in range(tries):
            fresh = self.draw(wanted - len(groups), turn)
            drawn += len(fresh)
            level = [is_flat(group) for group in fresh]
            flat += sum(level)
            last = turn == tries - 1
            groups += [g for g, same in zip(fresh, level, strict=True) if last or not same]
            if len(groups) == wanted:
                break
        rows = [s for group in groups for s in group]
        facts = describe(rows, self.settings.group_size)
        facts |= {"flat_groups": flat / drawn, "resampled": float(drawn - wanted), "time/sample": time.perf_counter() - began}
        return groups, facts

    def draw(self, count: int, turn: int) -> list[list[Scored]]:
        prompts = self.deck.take(count)
        groups = self.sample(prompts, self.settings.group_size, seed_of(self.seed, "rollout", self.step, turn), self.step)
        verdicts = iter(self.judge([r for group in groups for r in group]))
        return [[Scored(rollout=r, verdict=next(verdicts)) for r in group] for group in groups]

    # Scored -> Batch

    def minibatches(self, collected) -> list[Batch]:
        """The rollouts as batches, one for each optimizer step: weights are re-derived for each."""
        groups, facts = collected
        began = time.perf_counter()
        batch = self.columns([s for group in groups for s in group])
        facts |= {"time/score": time.perf_counter() - began, "tokens": float(batch.lengths.sum())}
        size = len(groups) // self.settings.minibatches
        out = []
        for epoch in range(self.settings.epochs):
            order = range(len(groups))
            if self.settings.minibatches > 1:
                shuffler = torch.Generator().manual_seed(seed_of(self.seed, "minibatch", self.step, epoch))
                order = torch.randperm(len(groups), generator=shuffler).tolist()
            for i in range(self.settings.minibatches):
                rows = [g * self.settings.group_size + k for g in order[i * size: (i + 1) * size]
                        for k in range(self.settings.group_size)]
                out.append(replace(self.weighed(batch, rows), facts=facts))
        return out

    def columns(self, rows: Sequence[Scored]) -> Batch:
        """All rollouts of a collection with their advantages. Credit looks at whole groups, so it comes before any split."""
        tokens = [[*s.rollout.prompt_tokens, *s.rollout.tokens] for s in rows]
        masks = [[False] * len(s.rollout.prompt_tokens) + [s.verdict.error is None] * len(s.rollout.tokens) for s in rows]
        logp = [[0.0] * len(s.rollout.prompt_tokens) + list(s.rollout.logp) for s in rows]
        ids = [f"{s.rollout.prompt.id}/{i % self.settings.group_size}" for i, s in enumerate(rows)]
        base = assemble(ids, tokens, masks)
        batch = Batch(**base, weight=base["mask"].float(), sampler_logp=pad_rows(logp, fill=0.0, dtype=torch.float32),
                      scored=tuple(rows))
        batch = batch.to(self.device)
        several = self.settings.epochs * self.settings.minibatches > 1
        old = self.logp(self.models.policy, batch) if several or self.method.kl_in_reward > 0 else None
        ref = self.logp(self.models.reference, batch) if self.method.reference else None
        value = seen(lambda b: self.models.critic.value(b.tokens), batch, self.tokens_per_pass) if self.method.critic else None
        reward = self.rewards(rows, batch.mask)
        if self.method.kl_in_reward > 0:
            reward = credit.kl_penalty(reward, old, ref, batch.mask, self.method.kl_in_reward)
        adv = self.method.credit(reward, batch.mask, self.settings.group_size, value)
        returns = adv + value if self.method.critic else None
        if self.method.whiten:
            adv = credit.whiten(adv, batch.mask)
        return replace(batch, adv=adv, old_logp=old if several else None, ref_logp=ref, value=value, returns=returns)

    def logp(self, model, batch: Batch) -> Tensor:  # [B, T]
        return seen(lambda b: model.logp(b.tokens, b.mask, self.settings.temperature)[0], batch, self.tokens_per_pass)

    def rewards(self, rows: Sequence[Scored], mask: Tensor) -> Tensor:  # [B, T]
        """The score on the last token; where a verdict has spread it over the tokens, only what was added to it since."""
        score, dense = self.scores(rows), torch.zeros(mask.shape)
        for i, s in enumerate(rows):
            if s.verdict.per_token is not None:
                assert len(s.verdict.per_token) == len(s.rollout.tokens), "a reward for each sampled token"
                at = len(s.rollout.prompt_tokens)
                dense[i, at: at + len(s.rollout.tokens)] = torch.tensor(s.verdict.per_token, dtype=torch.float32)
                score[i] -= s.verdict.score
        return credit.place_reward(score.to(self.device), mask) + torch.where(mask, dense.to(self.device), 0.0)

    def scores(self, rows: Sequence[Scored]) -> Tensor:  # [B]
        """One score a row, DAPO's length penalty included. Rows whose verdict failed are masked, so credit passes over them."""
        score = torch.tensor([s.verdict.score for s in rows], dtype=torch.float32)
        if self.method.overlong:
            lengths = torch.tensor([len(s.rollout.tokens) for s in rows])
            score = score + credit.overlong(lengths, self.settings.max_new_tokens, max(1, self.settings.max_new_tokens // 5))
        return score

    def weighed(self, batch: Batch, rows: list[int]) -> Batch:
        """These rows, shortest first (so that micro-batches hold little padding), with the weights of their own step."""
        index = torch.tensor(sorted(rows, key=lambda i: int(batch.lengths[i])), device=batch.tokens.device)
        cut = {f.name: getattr(batch, f.name)[index] for f in fields(batch) if isinstance(getattr(batch, f.name), Tensor)}
        names = index.tolist()
        part = replace(batch, ids=tuple(batch.ids[i] for i in names), scored=tuple(batch.scored[i] for i in names), **cut)
        return replace(part, weight=self.method.weigh(part.mask, self.settings.max_new_tokens))

    # What decides the future

    def state(self) -> dict:
        return {"step": self.step, "at": self.deck.at, "held": [_plain(b) for b in self.held]}

    def restore(self, state: dict) -> None:
        self.step, self.deck.at, self.held = state["step"], state["at"], [_batch(b) for b in state["held"]]


def is_flat(group: Sequence[Scored]) -> bool:
    """All scores equal: the group says nothing about which sample was better. A failed verdict has no say."""
    return len({s.verdict.score for s in group if s.verdict.error is None}) <= 1


def describe(rows: Sequence[Scored], group_size: int) -> dict[str, float]:
    """The facts of a collection that a reader of the log looks at first. A verdict that failed has no part in the reward."""
    groups = [[s for s in rows[i: i + group_size] if s.verdict.error is None] for i in range(0, len(rows), group_size)]
    scores = [torch.tensor([s.verdict.score for s in group], dtype=torch.float64) for group in groups if group]
    judged = [s for group in groups for s in group]
    facts = {"reward": torch.cat(scores).mean().item() if scores else 0.0,
             "reward_std": sum(x.std(unbiased=False).item() for x in scores) / max(len(scores), 1),
             "length": sum(len(s.rollout.tokens) for s in rows) / len(rows),
             "truncated": sum(not s.rollout.finished for s in rows) / len(rows),
             "errors": float(sum(s.verdict.error is not None for s in rows))}
    for name in sorted({name for s in judged for name in s.verdict.parts}):
        facts[f"reward/{name}"] = sum(s.verdict.parts.get(name, 0.0) for s in judged) / len(judged)
    return facts


def _plain(batch: Batch) -> dict:
    """A held batch as tensors and plain values. The gold answer is left out: the verdict has been given."""
    held = {f.name: getattr(batch, f.name) for f in fields(batch) if isinstance(getattr(batch, f.name), Tensor)}
    scored = [{"prompt": {"id": s.rollout.prompt.id, "messages": [dict(m) for m in s.rollout.prompt.messages]},
               "rollout": {f.name: getattr(s.rollout, f.name) for f in fields(Rollout) if f.name != "prompt"},
               "verdict": asdict(s.verdict)} for s in batch.scored]
    return {"columns": held, "ids": list(batch.ids), "facts": dict(batch.facts), "scored": scored}


def _batch(plain: dict) -> Batch:
    scored = []
    for s in plain["scored"]:
        prompt = Prompt(id=s["prompt"]["id"], messages=tuple(s["prompt"]["messages"]))
        sampled = {k: tuple(v) if isinstance(v, list) else v for k, v in s["rollout"].items()}
        said = {k: tuple(v) if isinstance(v, list) else v for k, v in s["verdict"].items()}
        scored.append(Scored(rollout=Rollout(prompt=prompt, **sampled), verdict=Verdict(**said)))
    return Batch(ids=tuple(plain["ids"]), facts=plain["facts"], scored=tuple(scored), **plain["columns"])

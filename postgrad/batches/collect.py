"""Prompt -> Scored: the half of an assembly line that samples and asks the judge, whatever is made of the rollouts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace

import torch
from torch import Tensor

from postgrad.batches.deck import Deck, assemble, seen
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


class Collector:
    """Samples groups, has them judged, and turns each collection into batches: how (`minibatches`) is each line's own."""

    def __init__(self, prompts: Sequence[Prompt], *, sample: Callable, judge: Judge, models, method,
                 settings: Rollouts, steps: int, seed: int, tokens_per_pass: int, device="cpu"):
        if method.reference and models.reference is None:
            raise ValueError(f"{method.name} needs a reference model and there is none: give Models(reference=...).")
        self.sample, self.judge, self.models, self.method, self.settings = sample, judge, models, method, settings
        self.steps, self.step, self.seed, self.tokens_per_pass, self.device = steps, 0, seed, tokens_per_pass, device
        self.deck = Deck(prompts, seed)
        self.held: list[Batch] = []  # minibatches of the present rollouts that are still to be trained on

    def __iter__(self) -> Iterator[Batch]:
        while self.step < self.steps:
            self.step += 1
            if not self.held:
                self.held = self.minibatches(*self.rollouts())
            yield self.held.pop(0).to(self.device)

    def minibatches(self, groups: list[list[Scored]], facts: dict[str, float]) -> list[Batch]:
        raise NotImplementedError

    def rollouts(self) -> tuple[list[list[Scored]], dict[str, float]]:
        """The groups of one collection, and what was measured on the way."""
        began = time.perf_counter()
        wanted, groups, drawn, flat = self.settings.prompts_per_step, [], 0, 0
        tries = 1 + (self.settings.resample_limit if getattr(self.method, "resample_flat", False) else 0)
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

    def sampled(self, rows: Sequence[Scored]) -> Batch:
        """The rows as columns, before any credit. A row whose verdict failed has an empty mask."""
        batch = as_batch([s.rollout for s in rows])
        sound = torch.tensor([s.verdict.error is None for s in rows])
        ids = tuple(f"{s.rollout.prompt.id}/{i % self.settings.group_size}" for i, s in enumerate(rows))
        return replace(batch, ids=ids, mask=batch.mask & sound[:, None], scored=tuple(rows)).to(self.device)

    def logp(self, model, batch: Batch, temperature: float | None = None) -> Tensor:  # [B, T]
        """At the temperature that was sampled at, unless another is named."""
        temperature = self.settings.temperature if temperature is None else temperature
        return seen(lambda b: model.logp(b.tokens, b.mask, temperature, packed=b.packed)[0], batch, self.tokens_per_pass)

    # What decides the future

    def state(self) -> dict:
        return {"step": self.step, "at": self.deck.at, "held": [_plain(b) for b in self.held]}

    def restore(self, state: dict) -> None:
        self.step, self.deck.at, self.held = state["step"], state["at"], [_batch(b) for b in state["held"]]


def as_batch(rollouts: Sequence[Rollout]) -> Batch:
    """Rollouts as rows: prompt and sampled tokens, the sampled ones masked, with the sampler's log-probs."""
    tokens = [[*r.prompt_tokens, *r.tokens] for r in rollouts]
    masks = [[False] * len(r.prompt_tokens) + [True] * len(r.tokens) for r in rollouts]
    logp = [[0.0] * len(r.prompt_tokens) + list(r.logp) for r in rollouts]
    base = assemble([r.prompt.id for r in rollouts], tokens, masks)
    return Batch(**base, weight=base["mask"].float(), sampler_logp=pad_rows(logp, fill=0.0, dtype=torch.float32))


def pick(batch: Batch, rows: list[int]) -> Batch:
    """These rows of a batch, in this order."""
    index = torch.tensor(rows, device=batch.tokens.device)
    cut = {f.name: getattr(batch, f.name)[index] for f in fields(batch) if isinstance(getattr(batch, f.name), Tensor)}
    return replace(batch, ids=tuple(batch.ids[i] for i in rows), scored=tuple(batch.scored[i] for i in rows), **cut)


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
    return {"columns": held, "ids": list(batch.ids), "rows_per_unit": batch.rows_per_unit, "facts": dict(batch.facts),
            "scored": scored}


def _batch(plain: dict) -> Batch:
    scored = []
    for s in plain["scored"]:
        prompt = Prompt(id=s["prompt"]["id"], messages=tuple(s["prompt"]["messages"]))
        sampled = {k: tuple(v) if isinstance(v, list) else v for k, v in s["rollout"].items()}
        said = {k: tuple(v) if isinstance(v, list) else v for k, v in s["verdict"].items()}
        scored.append(Scored(rollout=Rollout(prompt=prompt, **sampled), verdict=Verdict(**said)))
    return Batch(ids=tuple(plain["ids"]), rows_per_unit=plain["rows_per_unit"], facts=plain["facts"], scored=tuple(scored),
                 **plain["columns"])

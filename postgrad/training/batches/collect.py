"""Prompt -> Scored: samples are drawn and judged, whatever is made of them afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar, Generic, TypeVar

import numpy as np
import torch

from postgrad.maths.noise import seed_of
from postgrad.maths.packing import concat_rows
from postgrad.methods import Method
from postgrad.models import Models
from postgrad.records import Batch, Prompt, Reward, Rollout, Scored, require_verdicts
from postgrad.system.settings import NOT_NEGATIVE, Settings, setting
from postgrad.training.batches.ahead import AsyncCollector, Collection, LiveWeights, WeightSource
from postgrad.training.batches.facts import rollout_metrics
from postgrad.training.batches.keep import dump_batch, load_batch
from postgrad.training.batches.shuffled import Shuffled
from postgrad.training.distributed.sharding import unshard
from postgrad.training.distributed.virtual_ranks import SINGLE_RANK, VirtualRanks
from postgrad.training.oom import oom_phase
from postgrad.training.stats import Deferred

# how many prompts, the number of the try -> their judged groups
Draw = Callable[[int, int], list[list[Scored]]]


@dataclass(frozen=True, kw_only=True)
class Rollouts(Settings):
    """How rollouts are made and used.

    Two numbers say how many: prompts_per_step and group_size; the rest is derived.
    """

    prompts: int = setting(2000, "training prompts drawn from the task",
                           "more where a run comes round to the same prompts; a task with fewer gives all it "
                           "has")
    prompts_per_step: int = setting(16, "prompts of one collection", "more: a steadier gradient, in "
                                    "proportion more sampling; fewer on a slow machine")
    group_size: int = setting(8, "samples of each prompt", "more: steadier advantages, in proportion more "
                              "sampling; fewer than 4 gives GRPO little to compare; more where flat_groups "
                              "is high")
    max_new_tokens: int | None = setting(None, "the most tokens of a reply; none: as the task says, else by "
                                         "the model's size", "more where `truncated` is above a few percent: "
                                         "a cut answer cannot be right; less saves memory and time")
    temperature: float = setting(1.0, "of the sampling; 1 is the model's own distribution",
                                 "seldom: what is trained is the policy at that temperature; a little above "
                                 "1 where all samples of a group say the same")
    collections: int = setting(40, "collections of rollouts, where steps is left open",
                               "as steps: more while the held-out figures still rise")
    resample_limit: int = setting(3, "further draws, at most, for groups that all scored the same (DAPO); "
                                  "what is flat after the last is dropped", "more where flat_groups stays "
                                  "high and the method resamples", within=NOT_NEGATIVE)

    turns: int | None = setting(None, "the most replies of an episode, where the task plays; none: as the "
                                "task says, else 8",
                                "more where episodes end without a verdict; each costs a reply")
    async_depth: int = setting(0, "collections sampled while earlier ones are trained on, at most; "
                               "0: on-policy, in step", "1 with a remote sampler where time/wait is no small "
                               "part of time/step; 2 where the time of a collection varies much",
                               within=NOT_NEGATIVE)
    max_concurrent: int = setting(1024, "sequences that are decoded at once, at most", "less where memory "
                                  "runs out in sampling: speed, never the result")
    release: bool = setting(False, "the sampler's cache and its copy of the weights are given back while the "
                            "policy is trained", "where memory runs out: graphs are captured anew in each "
                            "collection, for the memory of its cache")
    truncate: str = setting("refuse", "prompts that do not fit the model with their reply: refuse, or drop "
                            "(leave out)", "drop where a few long prompts can be spared")

    prefix: ClassVar[str] = "rollouts."

    def __post_init__(self):
        super().__post_init__()
        if self.truncate not in ("refuse", "drop"):
            raise ValueError(f"rollouts.truncate is {self.truncate!r}: expected refuse or drop; a prompt "
                             "that is cut is another prompt than the one that is judged.")
        for name in ("prompts", "prompts_per_step", "group_size", "max_new_tokens", "collections",
                     "turns", "max_concurrent"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise ValueError(f"rollouts.{name} is {getattr(self, name)}: it must be at least 1.")
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"rollouts.temperature is {self.temperature}: samples of a group must differ, "
                             "so it must be above 0.")

    @property
    def budget(self) -> int:
        """The most tokens of a reply; 64 of settings that nobody fitted to a model."""
        return 64 if self.max_new_tokens is None else self.max_new_tokens

    @property
    def max_rollout_tokens(self) -> int:
        """The most tokens that the policy writes in a rollout: of an episode, those of all its replies."""
        return self.budget * (self.turns or 1)

    @property
    def written(self) -> int:
        """The most tokens that the policy writes in a collection."""
        return self.prompts_per_step * self.group_size * self.max_rollout_tokens


def collect(draw: Draw, count: int, group_size: int, again: int | None = None) -> Collection:
    """`count` groups. again: groups with equal scores are dropped and others drawn for them, so often at
    most, so that there may be fewer in the end, or none; None: they are kept."""
    began = time.perf_counter()
    groups: list[list[Scored]] = []
    dropped: list[list[Scored]] = []
    flat = 0
    for turn in range(1 + (again or 0)):
        fresh = draw(count - len(groups), turn)
        if not turn:
            require_verdicts([s.verdict for group in fresh for s in group])
        for group in fresh:
            level = is_flat(group)
            flat += level
            (groups if again is None or not level else dropped).append(group)
        if len(groups) == count:
            break
    drawn = groups + dropped
    facts = rollout_metrics([s for group in drawn for s in group], group_size)
    facts |= {"flat_groups": flat / len(drawn), "resampled": float(len(drawn) - count),
              "time/sample": time.perf_counter() - began}
    return Collection(groups, dropped, facts)


def scored_batch(rows: Sequence[Scored], group_size: int) -> Batch:
    """Judged rollouts as columns, before any credit. A row whose verdict failed has an empty mask."""
    batch, each = rollout_batch([s.rollout for s in rows]), rows
    ids = [f"{name}/{i % group_size}" for i, name in enumerate(s.rollout.prompt.id for s in rows)]
    if any(s.rollout.earlier for s in rows):  # an episode of several rows
        ids = [name + (f".{k}" if s.rollout.earlier else "") for name, s in zip(ids, rows, strict=True)
               for k in range(len(s.rollout.rows))]
        each = [replace(s, rollout=replace(row, earlier=())) if s.rollout.earlier else s
                for s in rows for row in s.rollout.rows]
    sound = torch.tensor([s.verdict.given for s in each])
    return replace(batch, ids=tuple(ids), mask=batch.mask & sound[:, None], scored=tuple(each))


def rollout_batch(rollouts: Sequence[Rollout]) -> Batch:
    """Rollouts as rows: the prompt and what came after it, the sampled tokens masked, with the sampler's
    log-probs. An episode of several rows has them side by side."""
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
    several = len(rows) > len(rollouts)
    episode = torch.tensor([i for i, r in enumerate(rollouts) for _ in r.rows]) if several else None
    trained = torch.from_numpy(mask)
    return Batch(ids=tuple(r.prompt.id for r in rows), tokens=torch.from_numpy(tokens), mask=trained,
                 lengths=torch.from_numpy((read + written)[:, 0]), weight=trained.float(), episode=episode,
                 sampler_logp=torch.from_numpy(logp))


def is_flat(group: Sequence[Scored]) -> bool:
    """All scores equal: the group says nothing about which sample was better. A failed verdict has no say."""
    return len({s.verdict.score for s in group if s.verdict.given}) <= 1


def without_update(batch: Batch) -> Batch:
    """A batch that is shown and not learned from: a step without an update."""
    return replace(batch, weight=torch.zeros_like(batch.weight))


MethodT = TypeVar("MethodT", bound=Method)


class RolloutSource(Generic[MethodT]):
    """An assembly line from prompts: collects, then makes batches of the collection
    (`batches_of` is each line's own).

    sample(prompts, group_size, seed,
           step) -> groups of rollouts. virtual_ranks: the prompts of a draw are dealt to
    them, and each lane is sampled and judged by itself, by the rank that has it; every rank has all of it.
    source: whose weights write; without one, those that are trained.
    """

    def __init__(self, prompts: Sequence[Prompt], *, sample: Callable, reward: Reward, models: Models,
                 method: MethodT, settings: Rollouts, steps: int, seed: int, tokens_per_pass: int,
                 device="cpu",
                 virtual_ranks: VirtualRanks = SINGLE_RANK, source: WeightSource | None = None):
        if method.needs_reference and models.reference is None:
            raise ValueError(f"{method.name} needs a reference model and there is none: give "
                             "Models(reference=...).")
        self.sample = sample
        self.reward = reward
        self.models = models
        self.method = method
        self.settings = settings
        self.steps = steps
        self.step = 0
        self.seed = seed
        self.tokens_per_pass = tokens_per_pass
        self.device = device
        self.virtual_ranks = virtual_ranks
        self.prompts = Shuffled(prompts, seed)
        self.source = source or LiveWeights()
        depth = settings.async_depth
        self.ahead = AsyncCollector(depth, self.collection, self.source) if depth else None
        self.sampled_at = 0  # optimizer steps behind the weights that wrote the present rollouts
        self.waiting: list[Batch] = []  # minibatches of the present rollouts that are still to be trained on

    def __iter__(self) -> Iterator[Batch]:
        while self.step < self.steps:
            self.step += 1
            if not self.waiting:
                with oom_phase("sampling"), unshard(self.models):
                    groups, dropped, facts, self.sampled_at = self.next_collection()
                made = self.batches_of(groups or dropped[: self.settings.prompts_per_step], facts)
                self.waiting = made if groups else [without_update(made[0])]
            yield self.dated(self.waiting.pop(0).to(self.device))

    def next_collection(self) -> Collection:
        made = self.step - 1
        if self.ahead:
            each = max(1, self.method.updates(self.settings.prompts_per_step))
            return self.ahead.take(made, -(-(self.steps - made) // each))
        self.source.keep(made)()
        drawn = self.collection(self.step, made)
        self.source.check(made, 0)
        return drawn

    def collection(self, number: int, step: int) -> Collection:
        """number: decides the seeds. step: optimizer steps behind the weights that write it."""
        again = self.settings.resample_limit if getattr(self.method, "resample_flat", False) else None
        drawn = collect(partial(self.draw, number=number, policy_step=step + 1),
                        self.settings.prompts_per_step, self.settings.group_size, again)
        return drawn._replace(step=step)

    def dated(self, batch: Batch) -> Batch:
        """With how old its rollouts are, where they may be."""
        if not self.ahead:
            return batch
        return replace(batch, facts={**batch.facts, "staleness": float(self.step - 1 - self.sampled_at)})

    def batches_of(self, groups: list[list[Scored]], facts: dict[str, float | Deferred]) -> list[Batch]:
        raise NotImplementedError

    def draw(self, count: int, turn: int, number: int = 0, policy_step: int = 0) -> list[list[Scored]]:
        """The next prompts of the stream, sampled and judged. number: of the collection."""
        prompts = self.prompts.take(count)
        seed = seed_of(self.seed, "rollout", number, turn)
        dealt = self.virtual_ranks.deal([p.id for p in prompts])

        def judged(numbers: list[int]) -> list[list[Scored]]:
            groups = self.sample([prompts[i] for i in numbers], self.settings.group_size, seed, policy_step)
            verdicts = iter(self.reward.score([r for group in groups for r in group]) if groups else ())
            return [[Scored(rollout=r, verdict=next(verdicts)) for r in group] for group in groups]

        drawn = replace(self.virtual_ranks, even=False).map(judged, dealt, "gathered rollouts")
        found = {i: group for numbers, groups in zip(dealt, drawn, strict=True)
                 for i, group in zip(numbers, groups, strict=True)}
        return [found[i] for i in range(count)]

    # what decides the future

    def state(self) -> dict:
        ahead = {"ahead": self.ahead.state(), "sampled_at": self.sampled_at} if self.ahead else {}
        held = [dump_batch(b) for b in self.waiting]
        return {"step": self.step, "at": self.prompts.at, "held": held, **ahead}

    def restore(self, state: dict) -> None:
        self.step = state["step"]
        self.prompts.at = state["at"]
        self.waiting = [load_batch(b) for b in state["held"]]
        if self.ahead:
            self.ahead.restore(state["ahead"], {p.id: p for p in self.prompts.items})
            self.sampled_at = state["sampled_at"]

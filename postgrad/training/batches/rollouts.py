"""Prompts -> rollouts -> verdicts -> credit -> weights -> Batch, for the policy rows of the table. Rows that
train on the best samples: selected.py."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

import torch

from postgrad.maths.diversity import repetition
from postgrad.maths.kl import adaptive_coefficient
from postgrad.maths.noise import seed_of
from postgrad.maths.packing import to_cpu
from postgrad.methods import Method, Policy
from postgrad.models import Models
from postgrad.records import Batch, Prompt, Reward, Rollout, Sampling, Scored, require_verdicts
from postgrad.system.settings import COUNT, NOT_NEGATIVE, SHARE, Range, Settings, setting
from postgrad.system.throughput import repeatable
from postgrad.training.batches.async_collector import AsyncCollector, Collection, LiveWeights, WeightSource
from postgrad.training.batches.checkpointing import dump_batch, load_batch
from postgrad.training.batches.columns import (
    Show,
    credit_columns,
    minibatches,
    rollout_batch,
    token_rewards,
)
from postgrad.training.batches.ptx import PtxMix
from postgrad.training.batches.shuffled import Shuffled
from postgrad.training.distributed.sharding import unshard
from postgrad.training.distributed.virtual_ranks import SINGLE_RANK, VirtualRanks
from postgrad.training.loop import zero_weight
from postgrad.training.oom import oom_phase
from postgrad.training.stats import Deferred, read_scalars


def rollout_metrics(rows: Sequence[Scored], group_size: int) -> dict[str, float | Deferred]:
    """Reward, length, truncation and errors of a collection. A failed verdict does not count in the reward.

    Deferred: computed when the log reads them, so that a GPU does not wait.
    """
    figures = Deferred(lambda: compute_rollout_metrics(rows, group_size))

    def figure(name: str) -> Deferred:
        return Deferred(lambda: figures.result[name])

    parts = sorted({name for s in rows if s.verdict.given for name in s.verdict.parts})
    names = ["reward", "reward_std", "length", "sampled", "truncated", "repetition", "errors",
             "same_replies", "contradicted",
             *(f"reward/{name}" for name in parts),
             *sorted({name for s in rows for name in s.verdict.metrics}),
             *(("turns", "new_rows") if any(s.rollout.episode for s in rows) else ())]
    return {name: figure(name) for name in names}


def compute_rollout_metrics(rows: Sequence[Scored], group_size: int) -> dict[str, float]:
    groups = [[s for s in rows[i: i + group_size] if s.verdict.given]
              for i in range(0, len(rows), group_size)]
    scores = [torch.tensor([s.verdict.score for s in group], dtype=torch.float64) for group in groups
              if group]
    judged = [s for group in groups for s in group]
    written = sum(len(s.rollout.sampled) for s in rows)
    parts: dict[str, list[float]] = {}
    for s in judged:
        for name, score in s.verdict.parts.items():  # absent: there was nothing to judge
            parts.setdefault(name, []).append(score)
    own: dict[str, list[float]] = {}
    for s in rows:
        for name, figure in s.verdict.metrics.items():
            own.setdefault(name, []).append(figure)
    facts = {name: sum(given) / len(given) for name, given in own.items()} | {
        "reward": float(torch.cat(scores).mean()) if scores else 0.0,
        "reward_std": sum(read_scalars([x.std(unbiased=False) for x in scores])) / max(len(scores), 1),
        "length": written / len(rows), "sampled": float(written),
        "truncated": sum(not s.rollout.finished for s in rows) / len(rows),
        "repetition": sum(repetition(s.rollout.sampled) for s in rows) / len(rows),
        "errors": float(sum(s.verdict.error is not None for s in rows)),
        **count_contradictions(groups),
        "turns": sum(count_replies(s.rollout) for s in rows) / len(rows),
        "new_rows": float(sum(len(s.rollout.earlier) for s in rows))}
    return facts | {f"reward/{name}": sum(given) / len(given) for name, given in parts.items()}


def count_contradictions(groups: Sequence[Sequence[Scored]]) -> dict[str, float]:
    """Replies of one turn that say the same as an earlier one to their prompt, and those of them that are
    scored otherwise, by more than half of the range of all scores."""
    scores = [s.verdict.score for group in groups for s in group]
    half = (max(scores) - min(scores)) / 2 if scores else 0.0
    same = contradicted = 0
    for group in groups:
        known: dict[tuple[int, ...], float] = {}
        for s in group:
            if not s.rollout.turns:
                first = known.setdefault(tuple(s.rollout.tokens), s.verdict.score)
                contradicted += abs(first - s.verdict.score) > half
        same += sum(not s.rollout.turns for s in group) - len(known)
    return {"same_replies": float(same), "contradicted": float(contradicted)}


def count_replies(rollout: Rollout) -> int:
    """Assistant turns of an episode."""
    return sum(turn.role == "assistant" for row in rollout.rows for turn in row.turns)


Draw = Callable[[int, int], list[list[Scored]]]  # (prompts, attempt) -> scored groups
Sample = Callable[[list[Prompt], int, int, int], list[list[Rollout]]]  # (prompts, group_size, seed, step)
MethodT = TypeVar("MethodT", bound=Method)


@dataclass(frozen=True, kw_only=True)
class Rollouts(Settings):
    """How rollouts are sampled and used. A collection is prompts_per_step groups of group_size samples."""

    prompts: int = setting(2000, "training prompts drawn from the task",
                           "more where a run comes round to the same prompts; a task with fewer gives all it "
                           "has", within=COUNT)
    prompts_per_step: int = setting(16, "prompts of one collection", "more: a steadier gradient, in "
                                    "proportion more sampling; fewer on a slow machine", within=COUNT)
    group_size: int = setting(8, "samples of each prompt", "more: steadier advantages, in proportion more "
                              "sampling; fewer than 4 gives GRPO little to compare; more where flat_groups "
                              "is high", within=COUNT)
    max_new_tokens: int | None = setting(None, "the most tokens of a reply; none: as the task says, else by "
                                         "the model's size", "more where `truncated` is above a few percent: "
                                         "a cut answer cannot be right; less saves memory and time",
                                         within=COUNT)
    temperature: float = setting(1.0, "of the sampling; 1 is the model's own distribution",
                                 "seldom: what is trained is the policy at that temperature; a little above "
                                 "1 where all samples of a group say the same")
    top_k: int = setting(0, "rollouts are sampled from the k likeliest tokens; 0: all. Trained is the full "
                         "distribution, and a token counts by the share of it that was sampled from",
                         "seldom: where unlikely tokens spoil replies; temperature alone has no such bias",
                         within=NOT_NEGATIVE)
    top_p: float = setting(1.0, "nucleus sampling: from the likeliest tokens with this total probability; "
                           "as top_k", "as top_k", within=Range("above 0 and at most 1",
                                                               lambda x: 0 < x <= 1))
    min_p: float = setting(0.0, "from tokens at least this fraction as likely as the likeliest; as top_k",
                           "as top_k", within=SHARE)
    collections: int | None = setting(None, "collections of rollouts, where steps is left open; none: 40, "
                                      "and 400 on a GPU for models above 50M parameters",
                                      "as steps: more while the held-out figures still rise", within=COUNT)
    resample_limit: int = setting(3, "further draws, at most, for groups that all scored the same (DAPO); "
                                  "what is flat after the last is dropped", "more where flat_groups stays "
                                  "high and the method resamples", within=NOT_NEGATIVE)

    turns: int | None = setting(None, "the most replies of an episode, where the task plays; none: as the "
                                "task says, else 8",
                                "more where episodes end without a verdict; each costs a reply", within=COUNT)
    async_depth: int = setting(0, "collections sampled while earlier ones are trained on, at most; "
                               "0: on-policy, in step", "1 with a remote sampler where time/wait is no small "
                               "part of time/step; 2 where the time of a collection varies much",
                               within=NOT_NEGATIVE)
    max_concurrent: int = setting(1024, "sequences that are decoded at once, at most", "less where memory "
                                  "runs out in sampling: speed, never the result", within=COUNT)
    release: bool = setting(False, "the sampler's cache and its copy of the weights are given back while the "
                            "policy is trained", "where memory runs out: graphs are captured again in each "
                            "collection, for the memory of its cache")
    skip_bad: bool = setting(False, "rows of the task's file that cannot be read are left out and counted, "
                             "instead of refused", "where a few rows of a large file are broken")
    truncate: str = setting("refuse", "prompts that do not fit the model with their reply: refuse, or drop "
                            "(leave out)", "drop where a few long prompts can be spared")

    prefix: ClassVar[str] = "rollouts."

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.truncate not in ("refuse", "drop"):
            raise ValueError(f"rollouts.truncate is {self.truncate!r}: expected refuse or drop; a prompt "
                             "that is cut is another prompt than the one that is judged.")
        if not 0 < self.temperature < float("inf"):
            raise ValueError(f"rollouts.temperature is {self.temperature}: samples of a group must differ, "
                             "so it must be above 0.")

    @property
    def budget(self) -> int:
        """The most tokens of a reply; 64 where no model has filled it in."""
        return 64 if self.max_new_tokens is None else self.max_new_tokens

    @property
    def sampling(self) -> Sampling:
        return Sampling(max_new_tokens=self.budget, temperature=self.temperature, top_k=self.top_k,
                        top_p=self.top_p, min_p=self.min_p)

    @property
    def max_rollout_tokens(self) -> int:
        """The most sampled tokens of a rollout, over all replies of an episode."""
        return self.budget * (self.turns or 1)

    @property
    def max_collection_tokens(self) -> int:
        """The most sampled tokens of a collection."""
        return self.prompts_per_step * self.group_size * self.max_rollout_tokens


def collect(draw: Draw, count: int, group_size: int, resample: int | None = None) -> Collection:
    """Draws `count` groups. resample: flat groups are dropped and drawn again, up to this many times, so that
    fewer groups may remain, or none; None: flat groups are kept."""
    began = time.perf_counter()
    groups: list[list[Scored]] = []
    dropped: list[list[Scored]] = []
    flat_groups = 0
    for attempt in range(1 + (resample or 0)):
        fresh = draw(count - len(groups), attempt)
        if not attempt:
            require_verdicts([s.verdict for group in fresh for s in group])
        for group in fresh:
            level = is_flat(group)
            flat_groups += level
            (groups if resample is None or not level else dropped).append(group)
        if len(groups) == count:
            break
    drawn = groups + dropped
    facts = rollout_metrics([s for group in drawn for s in group], group_size)
    facts |= {"flat_groups": flat_groups / len(drawn), "resampled": float(len(drawn) - count),
              "time/sample": time.perf_counter() - began}
    return Collection(groups, dropped, facts)


def is_flat(group: Sequence[Scored]) -> bool:
    """Whether all scores are equal, failed verdicts left out: such a group has no advantage to learn from."""
    return len({s.verdict.score for s in group if s.verdict.given}) <= 1


def rows_of_episodes(ids: Sequence[str], episodes: Sequence[Scored]) -> tuple[list[str], list[Scored]]:
    """(ids, rows) of episodes, some of which have several rows."""
    names = [name + (f".{k}" if s.rollout.earlier else "") for name, s in zip(ids, episodes, strict=True)
             for k in range(len(s.rollout.rows))]
    return names, [replace(s, rollout=replace(row, earlier=())) if s.rollout.earlier else s
                   for s in episodes for row in s.rollout.rows]


def scored_batch(rows: Sequence[Scored], group_size: int) -> Batch:
    """Scored rollouts as a batch, before credit. A row whose verdict failed has an empty mask."""
    batch, each = rollout_batch([s.rollout for s in rows]), rows
    ids = [f"{name}/{i % group_size}" for i, name in enumerate(s.rollout.prompt.id for s in rows)]
    if any(s.rollout.earlier for s in rows):
        ids, each = rows_of_episodes(ids, rows)
    sound = torch.tensor([s.verdict.given for s in each])
    return replace(batch, ids=tuple(ids), mask=batch.mask & sound[:, None], scored=tuple(each))


class RolloutSource(Generic[MethodT]):
    """A batch source from prompts: samples a collection, scores it, and makes batches of it (`batches_of`).

    source: the weights that sample; default: the ones in training. virtual_ranks: each lane samples and
    scores its share of the prompts; every rank ends with the whole collection.
    """

    def __init__(self, prompts: Sequence[Prompt], *, sample: Sample, reward: Reward, models: Models,
                 method: MethodT, settings: Rollouts, steps: int, seed: int, tokens_per_pass: int,
                 device: str = "cpu", virtual_ranks: VirtualRanks = SINGLE_RANK,
                 source: WeightSource | None = None):
        if method.needs_reference and models.reference is None:
            raise ValueError(f"{method.name} needs a reference model and there is none: give "
                             "Models(reference=...).")
        self.sample, self.reward, self.models, self.method = sample, reward, models, method
        self.settings, self.steps, self.step, self.seed = settings, steps, 0, seed
        self.tokens_per_pass, self.device, self.virtual_ranks = tokens_per_pass, device, virtual_ranks
        self.prompts = Shuffled(prompts, seed)
        self.source = source or LiveWeights()
        depth = settings.async_depth
        self.ahead = AsyncCollector(depth, self.collection, self.source) if depth else None
        self.sampled_at = 0  # optimizer steps of the weights that sampled the current collection
        self.waiting: list[Batch] = []  # minibatches of the collection, not yet trained on

    def __iter__(self) -> Iterator[Batch]:
        while self.step < self.steps:
            self.step += 1
            if not self.waiting:
                with oom_phase("sampling"), unshard(self.models):
                    groups, dropped, facts, self.sampled_at = self.next_collection()
                made = self.batches_of(groups or dropped[: self.settings.prompts_per_step], facts)
                self.waiting = made if groups else [zero_weight(made[0])]
            yield self.with_staleness(self.waiting.pop(0).to(self.device))

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
        """number: decides the seeds. step: optimizer steps of the weights that sample."""
        drawn = collect(partial(self.draw, number=number, policy_step=step + 1),
                        self.settings.prompts_per_step, self.settings.group_size, self.resample())
        return drawn._replace(step=step)

    def resample(self) -> int | None:
        """How often flat groups are drawn again; None: they are kept."""
        return None

    def with_staleness(self, batch: Batch) -> Batch:
        """Adds the staleness of an asynchronous collection, in optimizer steps, to its metrics."""
        if not self.ahead:
            return batch
        return replace(batch, facts={**batch.facts, "staleness": float(self.step - 1 - self.sampled_at)})

    def batches_of(self, groups: list[list[Scored]], facts: dict[str, float | Deferred]) -> list[Batch]:
        raise NotImplementedError

    def draw(self, count: int, attempt: int, number: int = 0, policy_step: int = 0) -> list[list[Scored]]:
        """Samples and scores the next `count` prompts. number: of the collection."""
        prompts = self.prompts.take(count)
        seed = seed_of(self.seed, "rollout", number, attempt)
        dealt = self.virtual_ranks.deal([p.id for p in prompts])

        def score(numbers: list[int]) -> list[list[Scored]]:
            groups = self.sample([prompts[i] for i in numbers], self.settings.group_size, seed, policy_step)
            verdicts = iter(self.reward.score([r for group in groups for r in group]) if groups else ())
            return [[Scored(rollout=r, verdict=next(verdicts)) for r in group] for group in groups]

        drawn = replace(self.virtual_ranks, even=False).map(score, dealt, "gathered rollouts")
        by_number = {i: group for numbers, groups in zip(dealt, drawn, strict=True)
                     for i, group in zip(numbers, groups, strict=True)}
        return [by_number[i] for i in range(count)]

    def state(self) -> dict[str, Any]:
        ahead = {"ahead": self.ahead.state(), "sampled_at": self.sampled_at} if self.ahead else {}
        held = [dump_batch(b) for b in self.waiting]
        return {"step": self.step, "at": self.prompts.at, "held": held, **ahead}

    def restore(self, state: dict[str, Any]) -> None:
        self.step = state["step"]
        self.prompts.at = state["at"]
        self.waiting = [load_batch(b) for b in state["held"]]
        if self.ahead:
            self.ahead.restore(state["ahead"], {p.id: p for p in self.prompts.items})
            self.sampled_at = state["sampled_at"]


class RolloutBatches(RolloutSource[Policy]):
    """Batches of the policy rows, with their epochs and minibatches, and the KL coefficient of the reward.

    target: the KL per reply, in nats, to which the coefficient adapts, by at most a fifth of `gain` a
    collection; None: it is fixed. mix: texts imitated beside the rollouts (PPO-ptx). show: see
    `teacher_columns`.
    """

    def __init__(self, prompts: Sequence[Prompt], *, target: float | None = None, gain: float = 0.1,
                 mix: PtxMix | None = None, show: Show | None = None, **common: Any):
        super().__init__(prompts, **common)
        method = self.method
        if method.compares and self.settings.group_size < 2:
            raise ValueError(f"{method.name} compares the samples of a group: rollouts.group_size is "
                             f"{self.settings.group_size}, set it to 2 or more.")
        if method.critic and self.models.critic is None:
            raise ValueError(f"{method.name} needs a critic model and there is none: give "
                             "Models(critic=...).")
        if method.teacher and self.models.teacher is None:
            raise ValueError(f"{method.name} needs a teacher and there is none: give Models(teacher=...).")
        if method.shown and show is None:
            raise ValueError(f"the teacher of {method.name} is shown a demonstration, and nobody says which: "
                             "give show=...")
        if target is not None and not method.kl_in_reward > 0:
            raise ValueError("an adaptive KL coefficient needs a method with the KL in its reward and a "
                             f"coefficient to start from; {method.name} has {method.kl_in_reward}: use ppo, "
                             "reinforce or rloo.")
        self.kl, self.target, self.gain, self.mix = method.kl_in_reward, target, gain, mix
        self.show = show if method.shown else None

    def batches_of(self, groups: list[list[Scored]], facts: dict[str, float | Deferred]) -> list[Batch]:
        """One batch for each optimizer step; the metrics of the collection go with the first."""
        began = time.perf_counter()
        s = self.settings
        rows = [scored for group in groups for scored in group]
        batch = scored_batch(rows, s.group_size).to(self.device)
        reward = token_rewards(rows, batch.mask, self.method, s.max_rollout_tokens, batch.episode)
        batch = credit_columns(batch, reward, self.method, self.models, group_size=s.group_size, kl=self.kl,
                               tokens_per_pass=self.tokens_per_pass, temperature=s.temperature,
                               several=self.method.updates(len(groups)) > 1, show=self.show,
                               virtual_ranks=self.virtual_ranks)
        facts |= self.adapt_kl(batch.facts["kl_reply"]) if self.method.kl_in_reward > 0 else {}
        parts = minibatches(batch, self.method, group_size=s.group_size, budget=s.max_rollout_tokens,
                            seed=self.seed, step=self.step)
        later = {name: fact for name, fact in repeatable(facts).items() if name != "sampled"}
        facts |= {"time/score": time.perf_counter() - began}
        parts = [replace(part, facts=(later if i else facts) | {"tokens": float(to_cpu(part.lengths).sum())})
                 for i, part in enumerate(parts)]
        return [self.mix.into(part) for part in parts] if self.mix else parts

    def resample(self) -> int | None:
        return self.settings.resample_limit if self.method.resample_flat else None

    def after(self, row: Mapping[str, float]) -> None:
        """A hook: past the method's kl_stop the rest of the collection is dropped."""
        if self.method.kl_stop and row["approx_kl"] > self.method.kl_stop:
            self.waiting.clear()

    def adapt_kl(self, observed: float) -> dict[str, float]:
        """The metrics of the KL in the reward; adapts the coefficient for the next collection."""
        facts = {"kl_coefficient": self.kl, "kl_reply": observed}
        if self.target is not None:
            self.kl = adaptive_coefficient(self.kl, observed, self.target, self.gain)
        return facts

    def state(self) -> dict[str, Any]:
        return super().state() | {"kl": self.kl, "mix": self.mix.texts.at if self.mix else 0}

    def restore(self, state: dict[str, Any]) -> None:
        super().restore(state)
        self.kl = state["kl"]
        if self.mix:
            self.mix.texts.at = state["mix"]

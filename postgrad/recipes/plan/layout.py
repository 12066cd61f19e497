"""The GPUs of a training, how they can be divided between training and sampling, and what each way takes.

Together: every GPU samples its share and then trains its share, in turn, as torchrun with `shard=true` does.
Apart: some train, the others sample, and the weights go from one to the other through a folder; then sampling
can run ahead. Left out on purpose: pipelines of layers, experts, offloading.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

from postgrad.methods import Method
from postgrad.models.families import Config
from postgrad.recipes.plan.cards import NODE, Card
from postgrad.recipes.plan.costs import SLOTS, Costs, Work
from postgrad.recipes.plan.simulation import ReplyLengths, Times, sampling_seconds, simulate
from postgrad.training.memory import Memory, Setup, estimate

PASSES = (8192, 4096, 2048, 1024)  # tokens
FREE = 0.1    # of a GPU, for what is not counted
DISK = 1e9    # bytes a second through a folder, one way: not measured
DEPTHS = (0, 1, 2, 4)
SHARES = (1 / 8, 1 / 4, 3 / 8, 1 / 2, 5 / 8, 3 / 4, 7 / 8)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """trainers, samplers: GPUs; together: they are the same ones. tensor: GPUs of one sampler."""

    trainers: int
    samplers: int
    together: bool
    tensor: int = 1

    @property
    def engines(self) -> int:
        """How many samplers there are."""
        return self.samplers // self.tensor

    @property
    def words(self) -> str:
        if self.together:
            return f"{self.trainers} train and sample in turn"
        each = f", {self.tensor} a sampler" if self.tensor > 1 else ""
        return f"{self.trainers} train, {self.samplers} sample{each}"


@dataclass(frozen=True, kw_only=True)
class Option:
    """One way to do it. training, sampling: bytes of a GPU, part by part. parts: seconds of sampling, of
    scoring and host work, of the update, of handing over weights. times: on the clock of a simulation. notes:
    what stands in the way today."""

    layout: Layout
    ahead: int
    tokens_per_pass: int
    training: dict[str, float]
    sampling: dict[str, float]
    parts: dict[str, float]
    times: Times
    notes: tuple[str, ...] = ()


def trainer_memory(needs: Memory, costs: Costs, ranks: int) -> dict[str, float]:
    """A trainer's GPU: its part of all that stands, activations, and two layers and the embeddings while they
    are whole."""
    parts = {"weights": needs.weights / ranks, "gradients": needs.gradients / ranks,
             "optimizer": needs.optimizer / ranks, "activations": needs.activations}
    if ranks > 1:
        outer = 2 * costs.head * (1 if costs.shape.tie_word_embeddings else 2)
        parts["whole for a while"] = outer + 2 * (costs.weights - outer) / costs.layers
    return parts


def memory_by_pass(shape: Config, method: Method, work: Work, held: Setup) -> list[tuple[int, Memory]]:
    """The memory of a training on one GPU by the tokens of a pass, most first."""
    found = []
    for tokens in PASSES:
        rows = max(1, round(tokens / (work.prompt + work.reply)))
        setup = replace(held, rows=rows, tokens=max(1, tokens // rows))
        found.append((tokens, estimate(shape, method, setup)))
    return found


def sampler_memory(costs: Costs, tensor: int, rows: int, longest: int,
                   room: float) -> tuple[dict[str, float], int]:
    """The memory of a sampler's GPU, and how many rows it can write at once: 0 where none fits."""
    weights, each = costs.weights / tensor, longest * costs.cached / tensor
    slots = min(rows, SLOTS, int(max(0.0, room - weights) // each))
    return {"weights": weights, "cache": slots * each}, slots


def plan_options(shape: Config, method: Method, count: int, card: Card, work: Work, lengths: ReplyLengths,
            held: Setup) -> list[Option]:
    """Every way that fits, quickest first."""
    room, costs, found = (1 - FREE) * card.memory, Costs(shape, card), []
    needs = {alone: memory_by_pass(shape, method, work, replace(held, compiled=alone)) for alone in (True,
                                                                                                     False)}
    for layout in layouts(costs, count):
        fitting = ((tokens, parts, memory.stays) for tokens, memory in needs[layout.trainers == 1]
                   if sum((parts := trainer_memory(memory, costs, layout.trainers)).values()) <= room)
        tokens, training, stays = next(fitting, (0, {}, {}))
        if not tokens:
            continue
        rows = -(-work.rows // layout.engines)
        beside = 0.0
        if layout.together:
            beside = training["weights"] + training["optimizer"] + sum(stays.values()) / layout.trainers
        sampling, slots = sampler_memory(costs, layout.tensor, rows, work.prompt + lengths.longest,
                                         room - beside)
        sampling |= {"the trainer's part": beside} if beside else {}
        here = replace(work, tokens_per_pass=tokens)
        for ahead in () if not slots else (0,) if layout.together else DEPTHS:
            parts, times = step_timing(costs, method, here, lengths, layout, slots, ahead)
            found.append(Option(layout=layout, ahead=ahead, tokens_per_pass=tokens, training=training,
                                sampling=sampling, parts=parts, times=times, notes=layout_notes(layout,
                                                                                                ahead)))
    return sorted(found, key=lambda option: option.times.step)


def layouts(costs: Costs, count: int) -> Iterator[Layout]:
    tensor = 1
    while costs.weights / tensor > 0.6 * costs.card.memory and tensor < NODE:
        tensor *= 2
    yield Layout(trainers=count, samplers=count, together=True)
    for share in SHARES:
        samplers = round(count * share / tensor) * tensor
        if tensor <= samplers < count:
            yield Layout(trainers=count - samplers, samplers=samplers, together=False, tensor=tensor)


def step_timing(costs: Costs, method: Method, work: Work, lengths: ReplyLengths, layout: Layout, slots: int,
           ahead: int) -> tuple[dict[str, float], Times]:
    """Seconds of the parts of a step, and of the step."""
    engines, ranks = layout.engines, layout.trainers

    def sample(rng: random.Random) -> float:
        dealt = lengths.draw(-(-work.rows // engines), rng)
        read = costs.forward(work.prompts * work.prompt / engines, 0) / layout.tensor
        return read + sampling_seconds(dealt, slots, lambda n, at: costs.token(n, work.prompt + at,
                                                                               layout.tensor))

    extra = sum((method.needs_reference, bool(ahead) or method.updates(work.prompts) > 1,
                 getattr(method, "critic", False), getattr(method, "teacher", False)))
    score = extra * costs.forward(work.computed, work.sampled) / ranks + work.rows * costs.fitted.row
    update = getattr(method, "epochs", 1) * costs.update(work, ranks)
    link = costs.card.near if ranks <= NODE else costs.card.far
    hand = (costs.weights / link if ranks > 1 else 0.0) if layout.together else costs.weights / DISK
    written_by_trainer = 0.0 if layout.together else hand  # training waits until the folder is written
    times = simulate(sample, score + update + written_by_trainer, hand, ahead)
    return {"sampling": times.sampling, "scoring": score, "training": update,
            "weights": hand + written_by_trainer}, times


def layout_notes(layout: Layout, ahead: int) -> tuple[str, ...]:
    found = []
    if ahead and layout.trainers > 1:
        found.append("rollouts.async_depth with several training processes is not built")
    if layout.tensor > 1:
        found.append("a sampler of several GPUs is vLLM's: ours has one")
    return tuple(found)

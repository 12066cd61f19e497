"""The training loop: one for every algorithm. And the state that decides a run's future."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

import torch

from postgrad.maths.noise import widest
from postgrad.models import Models, is_adapted
from postgrad.models.checkpoint import random_state, restore_random
from postgrad.models.experts import replaying
from postgrad.models.model_set import check_finite
from postgrad.models.pass_noise import PassNoise, noisy_pass
from postgrad.models.weights import shard_like
from postgrad.records import Batch
from postgrad.system.throughput import memory_taken
from postgrad.training.oom import iterate_in_phase, oom_phase
from postgrad.training.optim import Optim
from postgrad.training.stats import Stats, resolve_deferred

SKIPS_IN_A_ROW = 5

Objective = Callable[[Models, Batch], tuple[torch.Tensor, Stats]]
State = dict[str, Any]


class StepInfo(NamedTuple):
    """What a hook sees after an optimizer step."""

    step: int
    batch: Batch
    stats: Stats
    row: dict[str, float]
    models: Models


class BatchSource(Protocol):
    """Yields one batch for each optimizer step; its state decides the batches to come."""

    def __iter__(self) -> Iterator[Batch]: ...

    def state(self) -> State: ...

    def restore(self, state: State) -> None: ...


class RunLog(Protocol):
    """What the loop needs of a run folder."""

    @property
    def next_step(self) -> int: ...

    def log(self, step: int, row: Mapping[str, float]) -> None: ...

    def event(self, kind: str, text: str, step: int | None = None, **data: object) -> None: ...


def train(models: Models, batches: Iterable[Batch], objective: Objective, optim: Optim, run: RunLog,
          hooks: Iterable[Callable[[StepInfo], None]] = (),
          meanwhile: Callable[[], None] = lambda: None) -> None:
    """One optimizer step per batch, whatever the algorithm.

    The loss of a step is (loss * weight).sum() over its micro-batches. meanwhile: runs on the host after each
    backward pass is launched, while a GPU computes it.
    """
    @oom_phase("training")
    def micro_step(micro: Batch) -> tuple[torch.Tensor, Stats]:
        with (noisy_pass(models.decoders(), PassNoise(step, micro.ids, micro.lengths, micro.packed)),
              replaying(models.policy, micro.routes, micro.packed)):
            loss, seen = objective(models, micro)
            part = (loss * micro.weight).sum()
            part.backward()
        optim.gather()
        meanwhile()
        return widest(part.detach()), seen

    began = time.perf_counter()
    for step, batch in enumerate(iterate_in_phase("scoring", batches), start=run.next_step):
        stats = Stats()
        total: torch.Tensor | float = 0.0
        sampled = time.perf_counter()
        for part, seen in optim.virtual_ranks.map(micro_step, batch.split(optim.tokens_per_pass),
                                                  "gathered the statistics of the step", optim.end_lane,
                                                  zero_weight):
            total = total + part
            stats.add(seen)
        scalars, facts = (total, optim.clip(), batch.weight.any()), resolve_deferred(batch.facts)
        results, (loss, norm, rows) = stats.read(*scalars)  # synchronizes with the device
        row = {**facts, **results, **optim.step(step, loss, bool(rows), norm)}
        now = time.perf_counter()
        row |= {"time/train": now - sampled, "time/step": now - began, "memory": memory_taken()}
        began = now
        run.log(step, row)
        if row["skipped"]:
            report_skip(run, step, batch, row, models, optim)
        for hook in hooks:
            hook(StepInfo(step, batch, stats, row, models))


def zero_weight(batch: Batch) -> Batch:
    """The batch with all weights 0: it is computed and logged, and adds nothing to the gradient."""
    return replace(batch, weight=torch.zeros_like(batch.weight))


def report_skip(run: RunLog, step: int, batch: Batch, row: Mapping[str, float], models: Models,
                optim: Optim) -> None:
    """Logs a step without an update. After SKIPS_IN_A_ROW non-finite ones, or where a weight is not finite,
    raises."""
    why = (f"loss {row['loss']}, gradient norm {row['grad_norm']}" if optim.skips_in_a_row else
           "no row of the batch is trained on")
    run.event("skipped", f"step {step}: {why}; the weights were left as they were", step=step,
              ids=list(batch.ids))
    if optim.skips_in_a_row:
        check_finite(models)
    if optim.skips_in_a_row >= SKIPS_IN_A_ROW:
        raise ValueError(f"{optim.skips_in_a_row} steps in a row gave no finite loss and gradient (last: "
                         f"step {step}, rows {', '.join(batch.ids[:3])} ...): lower optim.lr or look at "
                         "these rows; the last checkpoint is sound.")


def state_of(models: Models, optim: Optim, batches: BatchSource) -> State:
    """Everything that decides the rest of a run, except the policy's weights: a checkpoint is also a model
    folder and holds those. The model folder has a LoRA adapter merged, so the adapter itself is kept here."""
    apart = {name: m.state_dict() for name, m in models.trained().items()
             if name != "policy" or is_adapted(m)}
    return {"models": apart, "optim": optim.state(), "batches": batches.state(), "random": random_state()}


def restore_state(state: State, models: Models, optim: Optim, batches: BatchSource) -> None:
    """The inverse of `state_of`."""
    for name, tensors in state["models"].items():
        model = getattr(models, name)
        now = model.state_dict()
        model.load_state_dict({key: shard_like(x, now[key]) if key in now else x
                               for key, x in tensors.items()})
    optim.restore(state["optim"])
    batches.restore(state["batches"])
    restore_random(state["random"])

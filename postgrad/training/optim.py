"""The optimizer: its settings, AdamW on float32 master weights, gradient accumulation over micro-batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch

from postgrad.maths import schedule
from postgrad.models import Adapters, Decoder, Models
from postgrad.models.kernels import add_gradients
from postgrad.models.model_set import set_compute
from postgrad.models.weights import full_tensor, is_sharded, shard_like
from postgrad.system.processes import world
from postgrad.system.settings import ABOVE_ZERO, COUNT, NOT_NEGATIVE, POSITIVE, SHARE, Settings, setting
from postgrad.training.adamw import AdamW, AdamW8bit
from postgrad.training.distributed.sharding import shard, shard_decoder
from postgrad.training.distributed.virtual_ranks import current_virtual_ranks
from postgrad.training.oom import oom_phase


@dataclass(frozen=True, kw_only=True)
class OptimSettings(Settings):
    """AdamW, the learning-rate schedule, precision, and the size of a micro-batch."""

    lr: float | None = setting(None, "the learning rate; none: by the model's size",
                               "the first thing to change: a third of it where kl or grad_norm runs away or "
                               "the reward falls, three times it where nothing moves; larger models want "
                               "smaller rates", within=POSITIVE)
    schedule: str = setting("constant",
                            "learning-rate schedule: constant, linear or cosine, to 0 at the last step",
                            "constant where a run may be made longer; a falling one ends steadier",
                            choices=tuple(schedule.SCHEDULES))
    warmup: int = setting(0, "warmup steps, from a rate of 0", "5 to 10, or a tenth of the steps, "
                          "where the first steps jump or the model is large", within=NOT_NEGATIVE)
    max_grad_norm: float = setting(1.0, "gradient clipping by norm",
                                   "lower where single steps throw the model off; higher where grad_norm is "
                                   "above it at every step", within=ABOVE_ZERO)
    weight_decay: float = setting(0.0, "AdamW's decoupled weight decay",
                                  "0.1 in pretraining; 0 is right for short runs on a trained model",
                                  within=NOT_NEGATIVE)
    beta1: float = setting(0.9, "AdamW's decay of the first moment", "hardly ever", within=SHARE)
    beta2: float = setting(0.99, "AdamW's decay of the second moment",
                           "0.999 for long runs with small steps, 0.95 where the loss has spikes",
                           within=SHARE)
    moments: int = setting(32, "bits of AdamW's two moments: 32, or 8, quantised in blocks of 256, with a "
                           "step in float32", "8 where memory runs out: 2 bytes a trained weight in place "
                           "of 8, and a slower step", choices=(32, 8))
    tokens_per_pass: int | None = setting(None, "tokens of a micro-batch; none: 2,048 on a CPU, "
                                          "8,192 on a GPU",
                                          "less where memory runs out, more where a GPU is idle: speed, "
                                          "never the result", within=COUNT)
    precision: str = setting("auto",
                             "fp32, or bf16 with fp32 master weights; auto: bf16 on a GPU, fp32 on a CPU",
                             "fp32 to compare two runs to the last digits on a GPU",
                             choices=("auto", "fp32", "bf16"))
    compile: bool | None = setting(None, "torch.compile on a GPU: a slower first step, faster others; "
                                   "none: where the run is long enough to gain",
                                   "false where the compiler fails; true to measure")
    recompute: bool = setting(False, "activation checkpointing: each layer keeps its input alone and "
                              "recomputes the rest in the backward pass; same bits",
                              "where memory runs out and fewer "
                              "tokens_per_pass do not help: slower, for most of the activations")
    virtual_ranks: int | None = setting(None, "lanes that a step's work is dealt to; none: as many as "
                                        "torchrun starts, 1 without it",
                                        "where a run resumes with more processes than it starts with: its "
                                        "bits depend on the lanes, not on the processes", within=COUNT)
    shard: bool = setting(False, "FSDP2: weights, gradients and optimizer state are sharded over the "
                          "ranks that torchrun starts", "where a model and its optimizer do not fit one GPU; "
                          "without it every rank holds all of them")
    adapter: Adapters = setting(group=Adapters)

    prefix: ClassVar[str] = "optim."

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shard:
            self.check_shard()

    def check_shard(self) -> None:
        if self.adapter.dora:
            raise ValueError("optim.shard and optim.adapter.dora are true: the norms of DoRA are those of "
                             "whole rows; leave one of them out.")
        if self.moments == 8:
            raise ValueError("optim.shard is true and optim.moments is 8: blocks of moments are those of "
                             "whole weights; leave one of them out.")
        if self.adapter.modules_to_save:
            raise ValueError("optim.shard is true, and optim.adapter.modules_to_save names layers that every "
                             "rank would hold whole; leave one of them out.")

    @property
    def divides(self) -> bool:
        """Whether models are sharded: shard=true and more than one rank."""
        return self.shard and world() > 1

    def half(self, on_gpu: bool) -> bool:
        """Whether models compute in bfloat16."""
        return self.precision == "bf16" or (self.precision == "auto" and on_gpu)

    def dividing(self, device: str) -> Callable[[Decoder], None] | None:
        """Shards a model before its weights are read; None: it stays whole."""
        if not self.divides:
            return None
        on_gpu = torch.device(device).type == "cuda"
        return partial(shard_decoder, half=on_gpu and self.half(on_gpu))

    @property
    def at_once(self) -> int:
        """Tokens of a no-grad forward."""
        return 8192 if self.tokens_per_pass is None else self.tokens_per_pass

    def per_pass(self, on_gpu: bool) -> int:
        """Tokens of a micro-batch."""
        return self.at_once if on_gpu or self.tokens_per_pass is not None else 2048


def add_to_masters(taken: Sequence[tuple[Any, Any]]) -> None:
    """Adds the gradients of parameters to those of their masters. taken: (parameter, master) of each."""
    fresh = [master for _, master in taken if master.grad is None]
    for master in fresh:
        master.grad = torch.empty_like(master)
    if fresh:
        torch._foreach_zero_([master.grad for master in fresh])
    add_gradients([master.grad for _, master in taken], [p.grad for p, _ in taken])
    for p, _ in taken:
        p.grad = None


class Optim:
    """AdamW over the trained models. tokens: about how many a step trains on, where that is known.

    A step with a non-finite loss or gradient leaves the weights unchanged. bfloat16 weights have float32
    masters, which the optimizer updates; the weights are the rounded masters.
    """

    def __init__(self, models: Models, settings: OptimSettings, steps: int, tokens: int | None = None):
        if settings.lr is None:
            raise ValueError("optim.lr is open, and nothing here chooses it: name one, e.g. optim.lr=3e-4.")
        set_compute(models, settings, steps, tokens)
        self.settings, self.steps = settings, steps
        self.virtual_ranks = current_virtual_ranks(settings.virtual_ranks, settings.divides)
        if settings.divides:
            on_gpu = models.decoders()[0].head.is_cuda
            shard(models, half=on_gpu and settings.half(on_gpu))
        self.params = [p for m in models.trained().values() for p in m.parameters() if p.requires_grad]
        self.rounded = [p for p in self.params if p.dtype == torch.bfloat16]
        self.masters = [p.detach().float() for p in self.rounded]
        exact = iter(self.masters)
        self.stepped = [next(exact) if p.dtype == torch.bfloat16 else p for p in self.params]
        kind = AdamW8bit if settings.moments == 8 else AdamW
        self.adam = kind(self.stepped, betas=(settings.beta1, settings.beta2),
                         weight_decay=settings.weight_decay)
        self.summed: list[torch.Tensor | None] = [None] * len(self.stepped)  # over the lanes so far
        # FSDP reduces sharded gradients in the backward pass; adapters are not sharded
        self.apart = self.virtual_ranks.apart or (settings.divides and not any(map(is_sharded, self.stepped)))
        self.skips_in_a_row = 0
        self.factor = 1.0  # of the rate: less than 1 where the guard has halved it

    @property
    def tokens_per_pass(self) -> int:
        return self.settings.per_pass(any(p.is_cuda for p in self.params))

    def lr(self, step: int) -> float:
        assert self.settings.lr is not None, "a run's rate is chosen before its optimizer is made"
        share = schedule.SCHEDULES[self.settings.schedule](step, self.steps, self.settings.warmup)
        return self.settings.lr * self.factor * share

    @torch.no_grad()
    def gather(self) -> None:
        """Adds the micro-batch's bfloat16 gradients to the masters' float32 gradients."""
        if taken := [pair for pair in zip(self.rounded, self.masters, strict=True)
                     if pair[0].grad is not None]:
            add_to_masters(taken)

    @torch.no_grad()
    def end_lane(self) -> None:
        """Adds the gradient of a lane (on several ranks: of one lane each) to the running sum over lanes."""
        if self.apart:
            self.summed = self.virtual_ranks.add(self.summed, [p.grad for p in self.stepped], self.stepped,
                                         "summed their gradients")
            for p in self.stepped:
                p.grad = None

    def take_sum(self) -> None:
        """Sets the gradients to their sum over all lanes."""
        if self.apart:
            for p, grad in zip(self.stepped, self.summed, strict=True):
                p.grad = grad
            self.summed = [None] * len(self.stepped)

    def clip(self) -> torch.Tensor:
        """Clips the step's gradient by norm; returns the norm before clipping."""
        self.take_sum()
        return full_tensor(torch.nn.utils.clip_grad_norm_(self.stepped, self.settings.max_grad_norm))

    @oom_phase("training")
    def step(self, step: int, loss: float, rows: bool = True, norm: float | None = None) -> dict[str, float]:
        """One update; none if loss or norm is not finite (a fault) or no row is trained on (not one).
        norm: the result of `clip`, if it was called before. Returns the step's metrics."""
        norm = float(self.clip()) if norm is None else norm
        fault = not (math.isfinite(loss) and math.isfinite(norm))
        if rows and not fault:
            self.adam.step(self.lr(step))
            self.round()
        self.adam.zero_grad()
        self.skips_in_a_row = self.skips_in_a_row + 1 if fault else 0
        return {"loss": loss, "grad_norm": norm, "lr": self.lr(step), "skipped": float(fault or not rows)}

    @torch.no_grad()
    def round(self) -> None:
        if self.masters:
            torch._foreach_copy_(self.rounded, self.masters)

    def state(self) -> dict[str, Any]:
        return {"skips_in_a_row": self.skips_in_a_row,
                "masters": {str(i): m for i, m in enumerate(self.masters)},
                "adam": {str(i): s for i, s in self.adam.state.items()}}

    @torch.no_grad()
    def restore(self, state: dict[str, Any]) -> None:
        self.skips_in_a_row = state["skips_in_a_row"]
        for i, master in enumerate(self.masters):
            master.copy_(state["masters"][str(i)])
        self.round()
        self.adam.restore(state["adam"], shard_like)

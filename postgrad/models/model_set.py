"""The models of a run, the precision in which they compute, and whether they are compiled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch

from postgrad.models.decoder import Decoder
from postgrad.models.hf_model import HFModel
from postgrad.models.kernels.fused import GPU_TRAINING_LAYER, report_refusal
from postgrad.models.layer import layer_spec
from postgrad.models.protocols import LanguageModel, Scorer, Trainable
from postgrad.models.recompute import set_recompute
from postgrad.models.weights import is_sharded
from postgrad.system.throughput import compiling_pays


@dataclass
class Models:
    """Up to five: the policy and the critic are trained; reference, reward model and teacher are fixed."""

    # a LanguageModel, or where a scalar head is trained a Scorer; Trainable
    policy: Any
    reference: LanguageModel | None = None
    critic: Any = None                      # a Critic, Trainable
    reward: Scorer | None = None
    teacher: LanguageModel | None = None

    def trained(self) -> dict[str, Trainable]:
        return {name: m for name in ("policy", "critic") if (m := getattr(self, name)) is not None}

    def decoders(self) -> list[Decoder | HFModel]:
        """The networks behind them, each once: several models may share one."""
        networks: list[Decoder | HFModel] = []
        for model in filter(None, (self.policy, self.reference, self.critic, self.reward, self.teacher)):
            while hasattr(model, "body"):
                model = model.body
            if isinstance(model, Decoder | HFModel) and not any(model is m for m in networks):
                networks.append(model)
        return networks


def check_finite(models: Models) -> None:
    """Raises where a network holds a weight that is no finite number: no step could repair it."""
    for decoder in models.decoders():
        for name, p in decoder.named_parameters():
            mine = p.detach()
            mine = mine.to_local() if is_sharded(mine) else mine
            if not mine.isfinite().all():
                bad = mine.numel() - int(mine.isfinite().sum())
                raise ValueError(f"{name} of a model that is opened holds {bad:,} weights that are no finite "
                                 "numbers (nan or inf): its file is damaged, or its training had diverged; "
                                 "begin with another checkpoint or model.")


class ComputeSettings(Protocol):
    """The optimizer settings that `set_compute` reads."""

    @property
    def compile(self) -> bool | None: ...

    @property
    def recompute(self) -> bool: ...

    @property
    def divides(self) -> bool: ...

    def half(self, on_gpu: bool) -> bool: ...

    def per_pass(self, on_gpu: bool) -> int: ...


def set_compute(models: Models, settings: ComputeSettings, steps: int = 0, tokens: int | None = None) -> None:
    """Sets precision, compilation and activation checkpointing of the models of a run.

    On a GPU bf16 is the dtype of the weights themselves; on a CPU only of matrix products.
    steps, tokens: of the run, as `should_compile` takes them.
    """
    for decoder in models.decoders():
        on_gpu = decoder.head.is_cuda
        half, compiled = settings.half(on_gpu), should_compile(decoder, settings, steps, tokens)
        decoder.compiled = compiled and on_gpu and half and not settings.divides
        if half and on_gpu and not settings.divides:
            decoder.to(torch.bfloat16)
        decoder.precision = torch.bfloat16 if half and not on_gpu else None
        set_recompute(decoder, settings.recompute)
        if decoder.compiled and isinstance(decoder, Decoder):
            reason = GPU_TRAINING_LAYER.supports(layer_spec(decoder.config, 0))
            if reason:
                report_refusal(GPU_TRAINING_LAYER, reason)


def should_compile(decoder: Decoder | HFModel, settings: ComputeSettings, steps: int,
                   tokens: int | None) -> bool:
    """Whether a model is compiled on a GPU: by the settings, else if that pays over the run's steps of
    `tokens` tokens each; True if `tokens` is unknown."""
    if settings.compile is not None:
        return settings.compile
    if tokens is None or not isinstance(decoder, Decoder):
        return True
    return compiling_pays(sum(p.numel() for p in decoder.parameters()), decoder.config.num_hidden_layers,
                          tokens, steps, settings.per_pass(on_gpu=True))

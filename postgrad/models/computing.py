"""How the models of a run compute: in which precision, whether through the compiler, and what they keep."""

from __future__ import annotations

from typing import Protocol

import torch

from postgrad.models import Decoder, Models
from postgrad.models.kernels.fused import GPU_TRAINING_LAYER, report
from postgrad.models.layer import layer_spec
from postgrad.models.recompute import set_recompute
from postgrad.system.throughput import compiling_pays


class ComputeSettings(Protocol):
    """What the settings of an optimizer say of it."""

    @property
    def compile(self) -> bool | None: ...

    @property
    def recompute(self) -> bool: ...

    @property
    def divides(self) -> bool: ...

    def half(self, on_gpu: bool) -> bool: ...

    def per_pass(self, on_gpu: bool) -> int: ...


def set_compute(models: Models, settings: ComputeSettings, steps: int = 0, tokens: int | None = None) -> None:
    """The precision in which the models of a run compute, whether they are compiled, and what they keep.

    On a GPU bf16 is the type of the weights themselves; on a CPU only of the products of matrices.
    steps, tokens: of the run, as `compiles` takes them.
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
                report(GPU_TRAINING_LAYER, reason)


def should_compile(decoder, settings: ComputeSettings, steps: int, tokens: int | None) -> bool:
    """Whether a model goes through the compiler on a GPU: as the settings say; where they say nothing, if
    that pays in the run's steps of about so many tokens each, and if nobody knows how many."""
    if settings.compile is not None:
        return settings.compile
    if tokens is None or not isinstance(decoder, Decoder):
        return True
    return compiling_pays(sum(p.numel() for p in decoder.parameters()), decoder.config.num_hidden_layers,
                          tokens, steps, settings.per_pass(on_gpu=True))

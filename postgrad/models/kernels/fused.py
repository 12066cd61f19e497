"""What each fused kernel can run, declared over the description of a layer (layer.py). No torch.

A fused kernel computes several operations at once, so it fixes the norm, the activation and where biases
stand. A layer that it cannot run takes the plain path, one operation after another, each by its own kernel;
`report_refusal` says so once, with the reason.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from postgrad.models.families import ACTIVATIONS
from postgrad.models.layer import LayerSpec, NormSpec


@dataclass(frozen=True, kw_only=True)
class FusedKernel:
    """biases: fused matrices that may have one: "qkv", "o", "gate_up", "down". norm_before: needs plain RMS
    norms before both sublayers and at the end, whose 1 / rms it computes; norm_after: may have norms after a
    sublayer. scales, caps, parts_of_heads: may scale queries or what a sublayer adds, may cap scores, may
    rotate a part of each head. experts: an MLP may be a mixture of them. dtypes: by torch's names; none
    given: every floating type."""

    name: str
    device: str                             # "cpu" or "cuda"
    dtypes: tuple[str, ...] = ()
    norm_before: bool = True
    norm_after: bool = False
    qk_norms: tuple[str, ...] = ("",)
    biases: tuple[str, ...] = ()
    activations: tuple[str, ...] = ("silu",)
    scales: bool = False
    caps: bool = False
    parts_of_heads: bool = False
    experts: bool = False

    def supports(self, layer: LayerSpec, dtype: str | None = None, device: str | None = None) -> str | None:
        """None where the kernel runs such a layer; else the reason why it does not."""
        if device not in (None, self.device):
            return f"it is for {self.device}"
        if dtype is not None and self.dtypes and dtype not in self.dtypes:
            return f"it has no {dtype}"
        if layer.mlp.router is not None and not self.experts:
            return "it has no experts"
        if layer.activation not in self.activations:
            return f"it has no activation {layer.activation}"
        if layer.qk_norm not in self.qk_norms:
            return f"it has no norm of queries and keys by {layer.qk_norm}"
        for matrix in layer.matrices:
            fused = next(half for half in layer.halves if matrix in half.inside)
            short = fused.fused if matrix in fused.inputs else matrix.short
            if matrix.bias and short not in self.biases:
                return f"it has no bias in {matrix.name}"
        if not self.scales and {layer.query_scale, *(half.scale for half in layer.halves)} != {1}:
            return "it scales neither queries nor what a sublayer adds"
        if not self.caps and layer.score_cap is not None:
            return "it does not cap scores"
        if not self.parts_of_heads and layer.rotated is not None:
            return f"it rotates whole heads, not {layer.rotated} numbers of each"
        if not self.norm_after and any(half.after for half in layer.halves):
            return "it has no norm after a sublayer"
        if self.norm_before:
            if not all(half.before for half in layer.halves):
                return "it needs a norm before each sublayer"
            norms = [norm for half in layer.halves for norm in half.norms]
            return next(filter(None, map(self.supports_norm, norms)), None)
        return None

    def supports_norm(self, norm: NormSpec) -> str | None:
        if norm.is_plain_rms or not self.norm_before:
            return None
        more = "subtracts the mean" if norm.kind == "layer" else "has no weight, or a bias"
        return f"{norm.name} {more}, and it computes x / rms(x) * weight"


# a decode step through all layers in one call of C (cpu.py, decode.c)
C_DECODE_STEP = FusedKernel(name="the fused decode step in C", device="cpu", dtypes=("float32",),
                            biases=("qkv", "o"), norm_after=True, qk_norms=("", "head"), scales=True,
                            caps=True, parts_of_heads=True, experts=True,
                            activations=("silu", "gelu_pytorch_tanh"))
# a decode step of six kernels a layer (gpu_decode.py)
GPU_DECODE_STEP = FusedKernel(name="the fused decode step on the GPU", device="cuda",
                              qk_norms=("", "head"))
# attention on a GPU, in training and in decoding (gpu_training.py, decode_attention.py)
GPU_ATTENTION = FusedKernel(name="attention on the GPU", device="cuda", norm_before=False, norm_after=True,
                            qk_norms=("", "head", "projection"), scales=True, experts=True,
                            biases=("qkv", "o", "gate_up", "down"), activations=ACTIVATIONS)
# a layer in compiled training, q, k, v and gate, up as one product each (gpu_training.py)
GPU_TRAINING_LAYER = FusedKernel(name="the fused layer in training", device="cuda", norm_before=False,
                                 qk_norms=("", "head", "projection"), biases=("qkv", "o", "gate_up"))


def first_refusal(kernel: FusedKernel, layers: Sequence[LayerSpec], norm: NormSpec, dtype: str,
                  device: str) -> str | None:
    """Why a kernel that runs all layers and the last norm does not run these; None where it does."""
    reasons = (*(kernel.supports(layer, dtype, device) for layer in layers), kernel.supports_norm(norm))
    return next(filter(None, reasons), None)


@cache
def report_refusal(kernel: FusedKernel, reason: str) -> None:
    """One sentence in the log, once for each reason."""
    logging.getLogger("postgrad").warning("postgrad: %s is not used, so that a step is slower: %s.",
                                          kernel.name, reason)

"""The decoder's kernels: the same functions in plain torch, in C for the CPU and in Triton for a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace

import torch
from torch import Tensor

from postgrad.maths.logprob import PLAIN, Softmax
from postgrad.models.kernels import cpu, plain

# a vocabulary, and numbers of gradients, from which on they have kernels of their own
LARGE, MANY = 4096, 1 << 23


@cache
def kernels_for(device: torch.device, dtype: torch.dtype,
                precision: torch.dtype | None = None) -> ModuleType | SimpleNamespace:
    """The fastest implementation that works here, for weights of this type; precision:
    that of the products on a CPU."""
    if device.type == "cuda":
        from postgrad.models.kernels import gpu, launchers
        launchers.build_quickly()
        return gpu
    found = cpu if device.type == "cpu" and dtype == torch.float32 and cpu.c_library() is not None else plain
    return (SimpleNamespace(**vars(found) | {"linear": plain.half_linear}) if precision == torch.bfloat16
            else found)


def softmax_for(head: Tensor) -> Softmax:
    """The passes over the vocabulary's logits; of a small vocabulary torch's own, for which no kernels have
    to be compiled."""
    if head.is_cuda and head.dtype != torch.float64 and len(head) >= LARGE and has_triton():
        from postgrad.models.kernels import vocab_softmax
        return vocab_softmax.SOFTMAX
    return PLAIN


def add_gradients(sums: Sequence[Tensor], parts: Sequence[Tensor]) -> None:
    """sums[i] += parts[i] for all i: bfloat16 to float32 on a GPU in one launch, for which torch takes one
    each; of few numbers torch's, as above."""
    if sums[0].is_cuda and sum(x.numel() for x in sums) >= MANY and has_triton():
        from postgrad.models.kernels import gradient_sums
        gradient_sums.add_by_kernel(sums, parts)
    else:
        torch._foreach_add_(sums, parts)


@cache
def has_triton() -> bool:
    return find_spec("triton") is not None

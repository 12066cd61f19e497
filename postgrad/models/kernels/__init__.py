"""The decoder's kernels: the same functions in plain torch, in C for the CPU and in Triton for a GPU."""

from __future__ import annotations

from functools import cache
from types import ModuleType, SimpleNamespace

import torch

from postgrad.models.kernels import cpu, plain


@cache
def kernels_for(device: torch.device, dtype: torch.dtype,
                precision: torch.dtype | None = None) -> ModuleType | SimpleNamespace:
    """The fastest implementation that works here, for weights of this type; precision:
    that of the products on a CPU."""
    if device.type == "cuda":
        from postgrad.models.kernels import gpu
        return gpu
    found = cpu if device.type == "cpu" and dtype == torch.float32 and cpu.library() is not None else plain
    return (SimpleNamespace(**vars(found) | {"linear": plain.half_linear}) if precision == torch.bfloat16
            else found)

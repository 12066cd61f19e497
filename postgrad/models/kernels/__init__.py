"""The decoder's kernels: the same functions in plain torch, in C for the CPU and in Triton for a GPU."""

from __future__ import annotations

from functools import cache
from types import ModuleType, SimpleNamespace

import torch

from postgrad.models.kernels import plain


@cache
def kernels_for(device: torch.device, precision: torch.dtype | None = None) -> ModuleType | SimpleNamespace:
    """The fastest implementation that works here."""
    if device.type == "cuda":
        from postgrad.models.kernels import gpu
        return gpu
    return SimpleNamespace(**vars(plain) | {"linear": plain.half_linear}) if precision == torch.bfloat16 else plain

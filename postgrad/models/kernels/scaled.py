"""What the kernels of a step of sampling have in common: they divide a row of a product by the rms of what
it is a product of, and start while the kernel before them ends."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _scale(x, row, width, eps, WIDE: tl.constexpr):
    """1 / rms of a row of x."""
    i = tl.arange(0, WIDE)
    value = tl.load(x + row * width + i, i < width, 0.0).to(tl.float32)
    return tl.rsqrt(tl.sum(value * value) / width + eps)


def launched(product: Tensor, x: Tensor | None, most: int = 1 << 20) -> dict:
    """What a kernel is told of it: WIDE, the columns of x that it reads at once, `most` of them."""
    early = starts_early(product)
    return ({"WIDE": 0 if x is None else min(most, triton.next_power_of_2(x.shape[1])), "EARLY": early}
            | ({"launch_pdl": True} if early else {}))


def starts_early(x: Tensor) -> bool:
    """From Hopper on a kernel can start while the one before it ends."""
    return x.is_cuda and torch.cuda.get_device_capability(x.device)[0] >= 9

"""Weights in the order in which the C code multiplies few rows by them (product.c).

What a row gives does not depend on how many stand beside it, however few, bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from postgrad.models.kernels.compiled import call


class Panels:
    """A matrix [outputs, inputs] as a copy of its own, which is filled anew when the weights have changed."""

    def __init__(self, outputs: int, inputs: int):
        self.outputs, self.inputs = outputs, inputs
        width = call("panel")
        self.values = torch.zeros(-(-outputs // width) * width * inputs)

    @classmethod
    def like(cls, parts: Sequence[Tensor]) -> Panels:
        return cls(sum(map(len, parts)), parts[0].shape[1])

    def fill(self, parts: Sequence[Tensor]) -> None:  # [outputs, inputs] together
        """The outputs of all parts, one after another."""
        first = 0
        for part in parts:
            call("pack", *part.shape, first, part.contiguous(), self.values)
            first += len(part)

    def product(self, x: Tensor) -> Tensor:  # [R, inputs] -> [R, outputs]
        R = x.shape[0]
        y = torch.empty(R, self.outputs)
        call("product", R, self.inputs, self.outputs, x.contiguous(), self.values, y)
        return y

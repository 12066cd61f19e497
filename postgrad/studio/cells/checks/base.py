"""Which cell an invariant belongs to, and how two numbers are held against each other."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

Function = Callable[..., Any]      # an edited function
Check = Callable[[Function], None]  # raises AssertionError with what it saw
CHECKS: dict[str, list[Check]] = defaultdict(list)
Figures = Tensor | float | list[float]
D = torch.float64


def invariant_of(cell: str) -> Callable[[Check], Check]:
    """Says which cell an invariant belongs to."""
    def place(check: Check) -> Check:
        CHECKS[cell].append(check)
        return check
    return place


def vector(*numbers: float) -> Tensor:
    return torch.tensor(numbers, dtype=D)


def number_text(x: object) -> str:
    if isinstance(x, Tensor):
        return number_text(x.tolist())
    if isinstance(x, list | tuple):
        return f"({', '.join(map(number_text, x))})"
    return f"{x:.4g}" if isinstance(x, float) else str(x)


def assert_close(got: Figures, wanted: Figures, tolerance: float = 1e-6) -> None:
    """Equal to rounding, or a sentence with both."""
    a, b = (torch.as_tensor(x, dtype=D) for x in (got, wanted))
    b = b.expand_as(a) if b.dim() == 0 else b
    equal = a.shape == b.shape and torch.allclose(a, b, 0.0, tolerance)
    assert equal, f"{number_text(got)} instead of {number_text(wanted)}"


def gradient_at(f: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    x = at.clone().requires_grad_()
    value = f(x).sum()
    return torch.autograd.grad(value, x)[0] if value.requires_grad else torch.zeros_like(x)

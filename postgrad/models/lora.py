"""Low-rank adapters: W x + (alpha / rank) B A x with W frozen (Hu et al. 2021, arXiv:2106.09685).

With the adapters off the model is the one it started from, so a reference model costs no second copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class LoRA(nn.Module):
    """A linear layer with an adapter. B starts at zero, so at first the layer is unchanged."""

    def __init__(self, base: nn.Linear, rank: int, alpha: float, generator: torch.Generator):
        super().__init__()
        self.base, self.scale, self.on = base, alpha / rank, True
        w = base.weight
        a = torch.randn(rank, base.in_features, generator=generator) / base.in_features**0.5
        self.lora_A = nn.Parameter(a.to(w.device, w.dtype))
        self.lora_B = nn.Parameter(w.new_zeros(base.out_features, rank))

    def forward(self, x: Tensor) -> Tensor:
        y = self.base(x)
        return y + (x @ self.lora_A.T @ self.lora_B.T) * self.scale if self.on else y

    def merged(self) -> nn.Linear:
        self.base.weight.data += self.scale * (self.lora_B @ self.lora_A).data
        return self.base


def add_lora(model: nn.Module, *, rank: int, generator: torch.Generator, alpha: float | None = None,
             targets=TARGETS) -> nn.Module:
    """Freezes the model and puts an adapter on each linear layer whose name is in targets. Returns the same model."""
    if rank < 1:
        raise ValueError(f"LoRA rank is {rank}: it must be at least 1.")
    model.requires_grad_(False)
    found = [(parent, name) for parent in list(model.modules()) for name, child in parent.named_children()
             if name in targets and isinstance(child, nn.Linear)]
    if not found:
        raise ValueError(f"no linear layer is named {' or '.join(targets)}: name layers that the model has.")
    for parent, name in found:
        setattr(parent, name, LoRA(getattr(parent, name), rank, 2 * rank if alpha is None else alpha, generator))
    return model


def adapters(model: nn.Module) -> list[LoRA]:
    return [m for m in model.modules() if isinstance(m, LoRA)]


@contextmanager
def adapters_off(model: nn.Module) -> Iterator[nn.Module]:
    """The model as it was before training, for as long as the block lasts."""
    for adapter in adapters(model):
        adapter.on = False
    try:
        yield model
    finally:
        for adapter in adapters(model):
            adapter.on = True


def merge(model: nn.Module) -> nn.Module:
    """Folds every adapter into its layer; the model is a plain decoder again."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, LoRA):
                setattr(parent, name, child.merged())
    return model.requires_grad_(True)

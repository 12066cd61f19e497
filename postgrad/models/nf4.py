"""Frozen linear layers in 4 bits: NF4, blocks of 64, with double quantisation (QLoRA, Dettmers et al. 2023,
arXiv:2305.14314, section 3). 4.127 bits a weight, dequantised in each forward and backward pass.

Through bitsandbytes (`pip install 'postgrad[qlora]'`) and not by hand: on one core it unpacks a 1536 x 576
matrix as fast as memory is copied, where a look-up in torch takes five times as long (bench/foreign.py).
Left out on purpose: paged optimizers, other 4-bit types, and a head or embedding in 4 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, cast

import torch
from torch import Tensor, nn

from postgrad.models.kernels import Kernels

BLOCK = 64


def bitsandbytes() -> ModuleType:
    """bitsandbytes.functional, imported on first use."""
    try:
        from bitsandbytes import functional
    except ImportError as error:
        raise ValueError("a model in 4 bits needs bitsandbytes: pip install 'postgrad[qlora]', or "
                         "leave bits=4 out.") from error
    return functional


def linear_layers(body: nn.Module) -> dict[str, LinearLayer]:
    """The linear layers by their paths, without the head, whose weight is read and which is never called."""
    head = getattr(body, "head", None)
    return {path: cast(LinearLayer, m) for path, m in body.named_modules()
            if isinstance(m, Linear4) or (isinstance(m, nn.Linear) and m.weight is not head) or is_conv1d(m)}


def is_conv1d(layer: nn.Module) -> bool:
    """Whether a layer is transformers' Conv1D (GPT-2): a linear layer whose weight is [in, out]."""
    return type(layer).__name__ == "Conv1D" and hasattr(layer, "nf")


class Linear4(nn.Module):
    """A linear layer with a frozen 4-bit weight, which stays on its device: `to` does not move it."""

    in_features: int
    out_features: int
    bias: nn.Parameter | None

    def __init__(self, layer: nn.Linear | Linear4, device: torch.device | str):
        super().__init__()
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.register_parameter("bias", layer.bias)
        if layer.weight.numel() % BLOCK:
            raise ValueError(f"a layer of {layer.out_features} x {layer.in_features} weights cannot be split "
                             f"into blocks of {BLOCK}, so it cannot be held in 4 bits: leave bits=4 out.")
        # A block a row: on a CPU bitsandbytes 0.50.2 unpacks wrongly where a block goes
        # over the end of a row.
        rows = layer.weight.detach().to(device, torch.float32).reshape(-1, BLOCK)
        self.codes, self.constants = bitsandbytes().quantize_4bit(rows, blocksize=BLOCK,
                                                                  compress_statistics=True, quant_type="nf4")

    def unpacked(self, dtype: torch.dtype) -> Tensor:  # [out, in]
        self.constants.dtype = dtype
        weight: Tensor = bitsandbytes().dequantize_4bit(self.codes, self.constants)
        return weight.view(self.out_features, self.in_features)

    @property
    def weight(self) -> Tensor:
        return self.unpacked(torch.float32)

    @property
    def nbytes(self) -> int:
        """Codes and the constants of the blocks; the tables of number formats are shared by all layers."""
        c = self.constants
        return sum(int(x.nbytes) for x in (self.codes, c.absmax, c.state2.absmax, c.offset))

    def forward(self, x: Tensor, ops: Kernels) -> Tensor:
        return _apply_linear4(x, self, ops)


LinearLayer = nn.Linear | Linear4  # or a Conv1D


class Linear4Function(torch.autograd.Function):
    """W x + b with W dequantised in both passes, so that none is saved for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, layer: Linear4, ops: Kernels) -> Tensor:
        ctx.layer, ctx.ops = layer, ops
        return ops.linear(x, layer.unpacked(x.dtype), layer.bias)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return ctx.ops.linear(grad, ctx.layer.unpacked(grad.dtype).T), None, None


_apply_linear4: Callable[..., Tensor] = Linear4Function.apply


def quantise(body: nn.Module, device: torch.device | str = "cpu") -> nn.Module:
    """Quantises the matrices of a model's layers one by one and moves it to the device, which needs no room
    for the full model."""
    if not hasattr(body, "ops"):
        config: Any = body.config
        raise ValueError(f"bits=4 is for the families that have a decoder here; {config.model_type} "
                         "runs through transformers: leave bits out.")
    if any(p.dim() == 3 for p in body.parameters()):
        raise ValueError("bits=4 is for matrices, and the weights of experts are not held in 4 bits: leave "
                         "bits out.")
    for path, layer in linear_layers(body).items():
        home, _, name = path.rpartition(".")
        setattr(body.get_submodule(home), name, Linear4(layer, device))
    return body.requires_grad_(False).to(device)


def held_bytes(model: nn.Module) -> int:
    """Bytes of a model's weights, 4-bit ones included."""
    return (sum(p.nbytes for p in model.parameters())
            + sum(m.nbytes for m in model.modules() if isinstance(m, Linear4)))

"""The decoder's kernels: the same functions in plain torch, in C for the CPU and in Triton for a GPU.

    plain.py             reference and fallback: the meaning of every function
    cpu.py               C: training and decoding in float32
    gpu.py               Triton, with gpu_training.py, gpu_decode.py and decode_attention.py
    fused.py             which layers a fused kernel supports, declared over their description
    vocab_softmax.py     log-softmax over the vocabulary; gradient_sums.py: accumulation of gradients
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from types import SimpleNamespace
from typing import TYPE_CHECKING, Protocol, cast

import torch
from torch import Tensor

from postgrad.maths.logprob import PLAIN, Softmax
from postgrad.models.kernels import cpu, plain
from postgrad.models.kernels.fused import FusedKernel

if TYPE_CHECKING:
    from postgrad.maths.packing import AttentionLayout, Packed, Spans
    from postgrad.models.blocks import Blocks

# least vocabulary, and numbers of gradients, for which kernels of their own pay
LARGE, MANY = 4096, 1 << 23


class Kernels(Protocol):
    """What plain.py, cpu.py and gpu.py define. N tokens packed end to end in training, R rows of one new
    token each in decoding."""

    FUSED_STEP: FusedKernel | None      # the layers that `fused_step` supports

    # training, with gradients
    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor: ...
    def rms_norm(self, x: Tensor, weight: Tensor, eps: float) -> Tensor: ...
    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor: ...
    def swiglu(self, a: Tensor, b: Tensor) -> Tensor: ...
    def attention_layout(self, spans: Spans, x: Tensor) -> Spans | AttentionLayout: ...
    def attention(self, q: Tensor, k: Tensor, v: Tensor, laid: Spans | AttentionLayout | Blocks,
                  window: int | None = None, cap: float | None = None) -> Tensor: ...

    # training, on a GPU alone
    def block_layout(self, packed: Packed, head_dim: int, sequences: int = 0) -> Blocks: ...
    def rotate_qkv(self, qkv: Tensor, cos: Tensor, sin: Tensor, H: int,
                   D: int) -> tuple[Tensor, Tensor, Tensor]: ...
    def attend_qkv(self, qkv: Tensor, cos: Tensor, sin: Tensor, laid: Blocks, heads: int, head_dim: int,
                   window: int | None = None) -> Tensor: ...
    def add_gated(self, x: Tensor, ab: Tensor, weight: Tensor) -> Tensor: ...

    # decoding
    def add_norm(self, x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> Tensor: ...
    def swiglu_joined(self, ab: Tensor) -> Tensor: ...
    def step_attention(self, qkv: Tensor, cos: Tensor, sin: Tensor, at: Tensor, slot: Tensor, prompt: Tensor,
                       prompt_length: Tensor, k_prompt: Tensor, v_prompt: Tensor, k_cache: Tensor,
                       v_cache: Tensor, window: int | None = None, cap: float | None = None) -> Tensor: ...
    def store_kv(self, k: Tensor, v: Tensor, place: Tensor, position: Tensor, k_prompt: Tensor,
                 v_prompt: Tensor) -> None: ...
    def packed_names(self, engine: object) -> set[str]: ...
    def fused_step(self, engine: object) -> Callable[..., Tensor] | None: ...
    def sample_tokens(self, logits: Tensor, u: Tensor, temperature: float) -> tuple[Tensor, Tensor]: ...
    def fused_sampler(self, rows: object) -> Callable[..., tuple[Tensor, Tensor]] | None: ...
    def record_tokens(self, token: Tensor, logp: Tensor, at: Tensor, slot: Tensor, shown: Tensor,
                      done: Tensor, count: Tensor, out: Tensor, logps: Tensor, ends: Tensor,
                      most: int) -> Tensor: ...
    def compact_rows(self, columns: Tensor, done: Tensor, hidden: Tensor, rows: Tensor, before: int,
                     nobody: Tensor) -> None: ...
    def nudge(self, x: Tensor) -> None: ...


@cache
def kernels_for(device: torch.device, dtype: torch.dtype, precision: torch.dtype | None = None) -> Kernels:
    """The fastest kernels for weights of this dtype on this device; precision: that of matrix products on a
    CPU."""
    if device.type == "cuda":
        from postgrad.models.kernels import gpu, launchers
        launchers.build_quickly()
        return cast(Kernels, gpu)
    module = cpu if device.type == "cpu" and dtype == torch.float32 and cpu.c_library() is not None else plain
    half = precision == torch.bfloat16
    return cast(Kernels, SimpleNamespace(**vars(module) | {"linear": plain.half_linear}) if half else module)


def softmax_for(head: Tensor) -> Softmax:
    """The log-softmax over the vocabulary; for a small one torch's own, which needs no compilation."""
    if head.is_cuda and head.dtype != torch.float64 and len(head) >= LARGE and has_triton():
        from postgrad.models.kernels import vocab_softmax
        return vocab_softmax.SOFTMAX
    return PLAIN


def add_gradients(sums: Sequence[Tensor], parts: Sequence[Tensor]) -> None:
    """sums[i] += parts[i] for all i. On a GPU, bfloat16 to float32 in one launch where there are many
    numbers; torch launches one kernel per tensor."""
    if sums[0].is_cuda and sum(x.numel() for x in sums) >= MANY and has_triton():
        from postgrad.models.kernels import gradient_sums
        gradient_sums.add_by_kernel(sums, parts)
    else:
        torch._foreach_add_(sums, parts)


@cache
def has_triton() -> bool:
    return find_spec("triton") is not None

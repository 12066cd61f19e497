"""A step of sampling through all layers in one call of C (decode.c), for the layers that it knows.

It knows what Llama, Mistral and Qwen2 have: a norm before each half, biases in the attention or none,
windows. Norms of queries and keys (Qwen3, OLMo 2) or after a half (OLMo 2) it does not know; there
Engine.step goes layer by layer.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from postgrad.models.kernels.compiled import call

NEEDED = ("before_attention", "before_mlp", "qkv", "o", "gate_up", "down")  # by the short names of layer.py
OPTIONAL = ("qkv_bias", "o_bias")
KEPT = ("k_prompt", "v_prompt", "k", "v")


class Layer(ctypes.Structure):
    """The struct of that name in decode.c."""

    _fields_ = [*((n, ctypes.c_void_p) for n in (*NEEDED, *OPTIONAL, *KEPT)), ("window", ctypes.c_int64)]


class Decoder(ctypes.Structure):
    _fields_ = [*((name, ctypes.c_int64) for name in "layers D F Hq Hkv Dh read capacity".split()),
                ("eps", ctypes.c_double),
                *((name, ctypes.c_void_p) for name in "multiply embed norm cos sin layer".split())]


@functools.cache
def blas() -> int | None:
    """Where the matrix product of torch's own BLAS is, by its Fortran name;
    None in builds that do not show it."""
    here = Path(torch.__file__).parent / "lib"
    for path in here.glob("libtorch_cpu.*"):
        lib = ctypes.CDLL(str(path))
        for name in ("sgemm_", "SGEMM"):
            if hasattr(lib, name):
                return ctypes.cast(getattr(lib, name), ctypes.c_void_p).value
    return None


def knows(names) -> bool:
    """Whether a layer with these weights, by their short names, is one that decode.c computes."""
    return {*NEEDED} <= {*names} <= {*NEEDED, *OPTIONAL}


def whole_step(engine) -> Callable | None:
    """Engine.step as one call for all layers; None where C cannot do it: no BLAS, or layers unknown to it."""
    c, w = engine.c, engine.weights
    if blas() is None or not all(knows(layer.fused()) for layer in engine.layers):
        return None
    layers = (Layer * len(engine.layers))()
    for i, (layer, spec) in enumerate(zip(layers, engine.layers, strict=True)):
        for name in (*NEEDED, *OPTIONAL):
            setattr(layer, name, w[f"{i}.{name}"].data_ptr() if f"{i}.{name}" in w else None)
        for name in KEPT:
            setattr(layer, name, getattr(engine, name)[i].data_ptr())
        layer.window = spec.window or 0
    D, F, heads = c.hidden_size, c.intermediate_size, c.num_attention_heads * c.head_dim
    pointers = (x.data_ptr() for x in (w["embed"], w["norm"], engine.cos, engine.sin))
    model = Decoder(c.num_hidden_layers, D, F, c.num_attention_heads, c.num_key_value_heads, c.head_dim,
                    engine.read, engine.new, c.rms_norm_eps, blas(), *pointers,
                    ctypes.cast(layers, ctypes.c_void_p).value)
    wide = max(heads + 2 * c.num_key_value_heads * c.head_dim, 3 * F)
    scratch = torch.empty(engine.rows * (2 * D + 2 * heads + wide))
    numbers = torch.empty(2 * engine.rows, dtype=torch.int64)

    def step(token: Tensor, at: Tensor, slot: Tensor, prompt: Tensor, prompt_length: Tensor) -> Tensor:
        out = torch.empty(len(token), D)
        rows = (x.contiguous() for x in (token, at, slot, prompt, prompt_length))
        call("decode", ctypes.byref(model), len(token), *rows, scratch, numbers, out)
        return out

    step.layers = layers  # the struct points to them
    return step

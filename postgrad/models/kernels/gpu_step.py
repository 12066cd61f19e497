"""A step of sampling through all layers on a GPU, six kernels a layer, for the layers that they know:

    qkv = x W                     with the weights of the norm in W
    y = what its keys tell        looking.py: scales by 1 / rms(x), rotates, keeps the new key, looks
    x += y W
    ab = x W                      as above
    y = gate of ab                _gate: scales by 1 / rms(x)
    x += y W

At a few hundred rows of a small model a kernel takes some microseconds, about as long as it takes to start
one, so what counts is that there are few. The products are cuBLAS's. A row's norm is a number that can as
well be multiplied after the product as before it: so no kernel stands between two products only for that.

They know what Llama, Mistral and Qwen3 have: a norm before each half, norms of each head's queries and keys
or none, windows. Other layers go kernel by kernel (Engine.step), with the same ones.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import triton
import triton.language as tl
from torch import Tensor
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait

from postgrad.models.kernels.looking import look_back

NEEDED = ("before_attention", "before_mlp", "qkv", "o", "gate_up", "down")  # by the short names of layer.py
OPTIONAL = ("q_norm", "k_norm")


@triton.jit
def _scale(x, row, width, eps, WIDE: tl.constexpr):
    """1 / rms of a row of x."""
    i = tl.arange(0, WIDE)
    value = tl.load(x + row * width + i, i < width, 0.0).to(tl.float32)
    return tl.rsqrt(tl.sum(value * value) / width + eps)


@triton.jit
def _gate(ab, x, out, F, width, eps, WIDE: tl.constexpr, EARLY: tl.constexpr, BLOCK: tl.constexpr):
    row, i = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside, scale = i < F, 1.0
    if EARLY:
        gdc_wait()
        gdc_launch_dependents()
    # loaded before the sum of squares, for which a row's threads wait for one another
    a = tl.load(ab + row * 2 * F + i, inside, 0.0).to(tl.float32)
    b = tl.load(ab + row * 2 * F + F + i, inside, 0.0).to(tl.float32)
    if WIDE:
        scale = _scale(x, row, width, eps, WIDE)
    a, b = a * scale, b * scale
    tl.store(out + row * F + i, a * tl.sigmoid(a) * b, inside)


def gate_halves(ab: Tensor, x: Tensor | None = None, eps: float = 0.0) -> Tensor:
    """As in plain.py. x: what ab is a product of, which has yet to be divided by its rms."""
    R, F = len(ab), ab.shape[1] // 2
    out, block = ab.new_empty(R, F), min(2048, triton.next_power_of_2(F))
    early, wide = starts_early(ab), 0 if x is None else x.shape[1]
    _gate[(R, triton.cdiv(F, block))](ab, ab if x is None else x, out, F, wide, eps, BLOCK=block, EARLY=early,
                                      WIDE=triton.next_power_of_2(wide) if wide else 0,
                                      **{"launch_pdl": True} if early else {})
    return out


def starts_early(x: Tensor) -> bool:
    """From Hopper on a kernel can start while the one before it ends: of these the gate, in which it pays."""
    return x.is_cuda and torch.cuda.get_device_capability(x.device)[0] >= 9


@triton.jit
def _nothing(x):
    gdc_wait()
    gdc_launch_dependents()


def nudge(x: Tensor) -> None:
    """A kernel that does nothing and may start while the one before it ends. After it an H200 goes through
    the kernels of replayed graphs in less time, until other work comes between; what it changes in the driver
    or the card is not known. `python bench/decoding.py --nudge` measures calls with it and without."""
    if starts_early(x):
        _nothing[(1,)](x, num_warps=1, launch_pdl=True)


def knows(names) -> bool:
    """Whether these kernels compute a layer with these weights, by their short names."""
    return {*NEEDED} <= {*names} <= {*NEEDED, *OPTIONAL}


def whole_step(engine) -> Callable | None:
    """Engine.step by these kernels; None where they do not know the layers. The weights of norms go into
    those of the products that read them: they are copies, taken anew before this is asked for."""
    c, w = engine.c, engine.weights
    by_head = all(norm.size == c.head_dim for layer in engine.layers for norm in layer.attention.inner)
    if not by_head or not all(knows(layer.fused()) for layer in engine.layers):
        return None
    for i, _ in enumerate(engine.layers):
        for norm, product in (("before_attention", "qkv"), ("before_mlp", "gate_up")):
            w[f"{i}.{product}"].mul_(w[f"{i}.{norm}"])
    eps, add_norm, cos, sin = c.rms_norm_eps, engine.ops.add_norm, engine.cos, engine.sin
    kept = [*zip(engine.k_prompt, engine.v_prompt, engine.k, engine.v, strict=True)]
    layers, short = engine.layers, ("qkv", "o", "gate_up", "down")

    def step(token: Tensor, at: Tensor, slot: Tensor, prompt: Tensor, prompt_length: Tensor) -> Tensor:
        x = w["embed"][token]
        for i, layer in enumerate(layers):
            qkv, o, gate_up, down = (w[f"{i}.{name}"].T for name in short)
            norms = (w[f"{i}.q_norm"], w[f"{i}.k_norm"]) if layer.attention.inner else None
            y = look_back(x @ qkv, cos, sin, at, slot, prompt, prompt_length, *kept[i], layer.window, norms,
                          eps, x)
            x.addmm_(y, o)
            x.addmm_(gate_halves(x @ gate_up, x, eps), down)
        return add_norm(x, None, w["norm"], eps)

    return step

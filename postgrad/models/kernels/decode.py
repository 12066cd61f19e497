"""A step of sampling through all layers in one call of C (decode.c), for the layers that it knows. It keeps
the matrices in panels (panels.py), and that of the vocabulary's logits.

It knows what Llama, Mistral and Qwen2 have: a norm before each half, biases in the attention or none,
windows. Norms of queries and keys (Qwen3, OLMo 2) or after a half (OLMo 2) it does not know; there
Engine.step goes layer by layer.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import torch
from torch import Tensor

from postgrad.models.kernels.compiled import call, check, pointer
from postgrad.models.kernels.panels import Panels

MATRICES = ("qkv", "o", "gate_up", "down")  # by the short names of layer.py
NEEDED = ("before_attention", "before_mlp", *MATRICES)
OPTIONAL = ("qkv_bias", "o_bias")
KEPT = ("k_prompt", "v_prompt", "k", "v")


class Layer(ctypes.Structure):
    """The struct of that name in decode.c."""

    _fields_ = [*((n, ctypes.c_void_p) for n in (*NEEDED, *OPTIONAL, *KEPT)), ("window", ctypes.c_int64)]


class Decoder(ctypes.Structure):
    _fields_ = [*((name, ctypes.c_int64) for name in "layers D F Hq Hkv Dh read capacity".split()),
                ("eps", ctypes.c_double),
                *((name, ctypes.c_void_p) for name in "embed norm cos sin layer".split())]


class Rows(ctypes.Structure):
    _fields_ = [*((name, ctypes.c_int64) for name in "width most ends".split()),
                ("temperature", ctypes.c_float),
                *((name, ctypes.c_void_p) for name in "u at slot shown done count out logp end".split())]


def knows(names) -> bool:
    """Whether a layer with these weights, by their short names, is one that decode.c computes."""
    return {*NEEDED} <= {*names} <= {*NEEDED, *OPTIONAL}


def in_panels(engine) -> set[str]:
    """The weights that `whole_step` keeps itself, by their names in the engine; none where it knows not all
    layers."""
    if not all(knows(layer.fused()) for layer in engine.layers):
        return set()
    return {"head", *(f"{i}.{name}" for i in range(len(engine.layers)) for name in MATRICES)}


def whole_step(engine) -> Callable | None:
    """Engine.step as one call for all layers; None where C does not know them."""
    c, w, panels = engine.c, engine.weights, engine.panels
    for name in engine.own:
        parts = [engine.merged[part] for part in engine.layout[name]]
        if name not in panels:
            panels[name] = Panels.like(parts)
        panels[name].fill(parts)
    if not panels:
        return None
    layers = (Layer * len(engine.layers))()
    for i, (layer, spec) in enumerate(zip(layers, engine.layers, strict=True)):
        for name in MATRICES:
            setattr(layer, name, panels[f"{i}.{name}"].values.data_ptr())
        for name in {*NEEDED, *OPTIONAL} - {*MATRICES}:
            setattr(layer, name, w[f"{i}.{name}"].data_ptr() if f"{i}.{name}" in w else None)
        for name in KEPT:
            setattr(layer, name, getattr(engine, name)[i].data_ptr())
        layer.window = spec.window or 0
    D, F, heads = c.hidden_size, c.intermediate_size, c.num_attention_heads * c.head_dim
    pointers = (x.data_ptr() for x in (w["embed"], w["norm"], engine.cos, engine.sin))
    model = Decoder(c.num_hidden_layers, D, F, c.num_attention_heads, c.num_key_value_heads, c.head_dim,
                    engine.read, engine.new, c.rms_norm_eps, *pointers,
                    ctypes.cast(layers, ctypes.c_void_p).value)
    wide = max(heads + 2 * c.num_key_value_heads * c.head_dim, 3 * F)
    scratch = torch.empty(engine.rows * (2 * D + 2 * heads + wide))
    numbers = torch.empty(2 * engine.rows, dtype=torch.int64)

    def step(token: Tensor, at: Tensor, slot: Tensor, prompt: Tensor, prompt_length: Tensor) -> Tensor:
        R = token.shape[0]
        out = torch.empty(R, D)
        rows = (x.contiguous() for x in (token, at, slot, prompt, prompt_length))
        call("decode", ctypes.byref(model), R, *rows, scratch, numbers, out)
        return out

    step.layers = layers  # the struct points to them
    return step


def chooser(rows) -> Callable[..., tuple[Tensor, Tensor]] | None:
    """(rows, n) -> the next tokens of the first n of these rows, the sampler's, chosen from their states and
    noted in one call, and where they stand in their slots; None where tokens are left out, or the likeliest
    is taken."""
    settings, engine = rows.settings, rows.engine
    if not (engine.independent and settings.whole and settings.temperature):
        return None
    size, width = rows.out.shape
    state = (rows.u, rows.at, rows.slot, rows.shown, rows.done, rows.count, rows.out, rows.logp, rows.ends)
    known = Rows(width, settings.max_new_tokens, len(rows.ends), settings.temperature,
                 *(pointer(x) for x in state))
    u, logp = torch.empty(size, dtype=torch.float64), torch.empty(size)
    token, where = torch.empty(2, size, dtype=torch.int64)

    def choose(rows, n: int) -> tuple[Tensor, Tensor]:
        head = engine.panels["head"]
        logits = torch.empty(n, head.outputs)
        check(call("choose", ctypes.byref(known), n, head.inputs, head.outputs, rows.hidden, head.values,
                   logits, u, token, logp, where))
        return token[:n], where[:n]

    return choose

"""The kernels in C on the CPU (cpu.c, attention.c), with the names and meanings of plain.py.

float32 only. What a row gives depends neither on the other rows nor on the number of threads, bit for bit.
Tensors that do not stand in memory as the C code reads them (a transposed view, say) are copied first.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from postgrad.models.kernels.compiled import call, check, library, pointer
from postgrad.models.kernels.decode import chooser, in_panels, whole_step
from postgrad.models.kernels.plain import keep, lay, linear, looking_back, nudge

__all__ = ["add_norm", "attend", "attention", "chooser", "gate", "gate_halves", "in_panels", "keep", "lay",
           "library", "linear", "look_back", "move_up", "norm", "note", "nudge", "pick", "place", "rotate",
           "whole_step"]


def add_norm(x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> Tensor:  # [R, D]
    assert x.is_contiguous(), "x is changed in place"
    y = torch.empty_like(x)
    call("add_norm", *x.shape, x, None if delta is None else delta.contiguous(), weight, eps, y)
    return y


def place(qkv: Tensor, cos: Tensor, sin: Tensor, position: Tensor, slot: Tensor, at: Tensor, k_cache: Tensor,
          v_cache: Tensor) -> Tensor:
    assert k_cache.is_contiguous() and v_cache.is_contiguous(), "the caches are changed in place"
    _, kv, capacity, head_dim = k_cache.shape
    q = qkv.new_empty(len(qkv), qkv.shape[1] // head_dim - 2 * kv, head_dim)
    tensors = (x.contiguous() for x in (qkv, cos, sin, position, slot, at))
    call("place", len(qkv), q.shape[1], kv, head_dim, capacity, *tensors, k_cache, v_cache, q)
    return q


def attend(q: Tensor, k_prompt: Tensor, v_prompt: Tensor, prompt: Tensor, prompt_length: Tensor,
           k_cache: Tensor, v_cache: Tensor, slot: Tensor, length: Tensor,
           window: int | None = None) -> Tensor:
    R, H, head_dim = q.shape
    _, kv, capacity, _ = k_cache.shape
    y = q.new_empty(R, H * head_dim)
    tensors = (x.contiguous()
               for x in (q, k_prompt, v_prompt, prompt, prompt_length, k_cache, v_cache, slot, length))
    call("attend", R, H, kv, head_dim, k_prompt.shape[2], capacity, window or 0, *tensors, y)
    return y


look_back = looking_back(place, attend)


def pick(logits: Tensor, u: Tensor,
         temperature: float) -> tuple[Tensor, Tensor]:  # [R, V], [R] -> tokens, logp [R]
    R = logits.shape[0]
    token, logp = torch.empty(R, dtype=torch.int64), torch.empty(R)
    check(call("pick", *logits.shape, logits.contiguous(), u.double().contiguous(), float(temperature), token,
               logp))
    return token, logp


def note(token: Tensor, logp: Tensor, at: Tensor, slot: Tensor, shown: Tensor, done: Tensor, count: Tensor,
         out: Tensor, logps: Tensor, ends: Tensor, most: int) -> Tensor:
    assert at.is_contiguous() and done.is_contiguous() and count.is_contiguous(), "they are changed in place"
    where = torch.empty_like(at)
    call("note", token.shape[0], out.shape[1], ends.shape[0], most, token, logp, at, slot, shown, done, count,
         out, logps, ends, where)
    return where


def move_up(columns: Tensor, done: Tensor, hidden: Tensor, rows: Tensor, before: int, nobody: Tensor) -> None:
    assert columns.is_contiguous() and hidden.is_contiguous(), "they are changed in place"
    call("move_up", rows.shape[0], before, *columns.shape, hidden.shape[1], rows, nobody, columns, done,
         hidden)


def norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:  # [..., D]
    return Norm.apply(x, weight, eps)


class Norm(Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        x = x.contiguous()
        y, inverse = torch.empty_like(x), x.new_empty(x.shape[:-1])
        call("norm", inverse.numel(), x.shape[-1], x, weight, eps, y, inverse)
        ctx.save_for_backward(x, weight, inverse)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, weight, inverse = ctx.saved_tensors
        N, D = inverse.numel(), x.shape[-1]
        dx, dweight, parts = torch.empty_like(x), torch.empty_like(weight), x.new_empty(N // 64 + 1, D)
        call("norm_backward", N, D, x, weight, inverse, dy.contiguous(), dx, parts, dweight)
        return dx, dweight, None


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:  # [N, H, head_dim], [N, head_dim / 2] twice
    return Rotate.apply(x, cos, sin)


class Rotate(Function):
    @staticmethod
    def forward(ctx, x, cos, sin):
        ctx.save_for_backward(cos, sin)
        return turned(x, cos, sin, 1.0)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        return turned(dy, *ctx.saved_tensors, -1.0), None, None


def turned(x: Tensor, cos: Tensor, sin: Tensor, sign: float) -> Tensor:
    x, y = flat(x), x.new_empty(x.shape)
    call("rotate", *x.shape, sign, x, x.stride(0), cos.contiguous(), sin.contiguous(), y)
    return y


def flat(x: Tensor) -> Tensor:  # [N, ...]
    """x with each x[n] in one piece; from one n to the next there may be a gap,
    as in a slice of a wider tensor."""
    return x if x[:1].is_contiguous() else x.contiguous()


def gate(a: Tensor, b: Tensor) -> Tensor:  # [N, F] twice
    return Gate.apply(a, b)


class Gate(Function):
    @staticmethod
    def forward(ctx, a, b):
        a, b, y = flat(a), flat(b), a.new_empty(a.shape)
        call("gate", *a.shape, a, a.stride(0), b, b.stride(0), y)
        ctx.save_for_backward(a, b)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        a, b = ctx.saved_tensors
        da, db = a.new_empty(a.shape), a.new_empty(a.shape)
        call("gate_backward", *a.shape, a, a.stride(0), b, b.stride(0), dy.contiguous(), da, db, a.shape[1])
        return da, db


def gate_halves(ab: Tensor) -> Tensor:  # [N, 2F] -> [N, F]
    return GateHalves.apply(ab) if torch.is_grad_enabled() and ab.requires_grad else gated(flat(ab))


def gated(ab: Tensor) -> Tensor:
    N, F = len(ab), ab.shape[1] // 2
    y = ab.new_empty(N, F)
    call("gate", N, F, ab, ab.stride(0), pointer(ab) + 4 * F, ab.stride(0), y)
    return y


class GateHalves(Function):
    @staticmethod
    def forward(ctx, ab):
        ab = flat(ab)
        ctx.save_for_backward(ab)
        return gated(ab)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        ab, = ctx.saved_tensors
        (N, F), out, step = dy.shape, ab.new_empty(ab.shape), ab.stride(0)
        halves = pointer(ab) + 4 * F, pointer(out) + 4 * F
        call("gate_backward", N, F, ab, step, halves[0], step, dy.contiguous(), out, halves[1], 2 * F)
        return out


class Sequences(ctypes.Structure):
    """The struct of that name in attention.c."""

    _fields_ = [*((n, ctypes.c_int64) for n in "N M Hq Hkv Dh window qn kn vn".split()),
                *((n, ctypes.c_void_p) for n in "q k v start stop prefix_start prefix_stop".split())]

    @classmethod
    def of(cls, q: Tensor, k: Tensor, v: Tensor, spans: tuple[Tensor, ...], window: int | None) -> Sequences:
        numbers = (len(q), len(spans[0]), q.shape[1], k.shape[1], q.shape[2], window or 0, q.stride(0),
                   k.stride(0), v.stride(0))
        return cls(*numbers, *(pointer(x) for x in (q, k, v, *spans)))


def attention(q: Tensor, k: Tensor, v: Tensor, spans, window: int | None = None) -> Tensor:
    """q [N, H, head_dim], k and v [N, fewer H, head_dim] -> [N, H,
    head_dim], over sequences that may share prefixes."""
    return Attention.apply(q, k, v, spans, window)


class Attention(Function):
    @staticmethod
    def forward(ctx, q, k, v, spans, window):
        q, k, v = flat(q), flat(k), flat(v)
        spans = tuple(x.contiguous()
                      for x in (spans.start, spans.stop, spans.prefix_start, spans.prefix_stop))
        y, lse = q.new_empty(q.shape), q.new_empty(q.shape[:2])
        call("attention", ctypes.byref(Sequences.of(q, k, v, spans, window)), y, lse)
        ctx.save_for_backward(q, k, v, y, lse)
        ctx.spans, ctx.window = spans, window
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        q, k, v, y, lse = ctx.saved_tensors
        dq, dk, dv = q.new_empty(q.shape), k.new_zeros(k.shape), v.new_zeros(v.shape)
        where = ctypes.byref(Sequences.of(q, k, v, ctx.spans, ctx.window))
        call("attention_backward", where, y, lse, dy.contiguous(), dq, dk, dv)
        return dq, dk, dv, None, None

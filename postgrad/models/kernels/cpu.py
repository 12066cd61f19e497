"""The kernels in C on the CPU (cpu.c), with the names and meanings of plain.py: compiled once with the machine's own compiler.

float32 only. What a row gives depends neither on the other rows nor on the number of threads, bit for bit. Tensors that do not
stand in memory as the C code reads them (a transposed view, say) are copied first.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import re
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from postgrad.models.kernels.plain import lay, linear

__all__ = ["add_norm", "attend", "attention", "gate", "gate_halves", "lay", "linear", "norm", "pick", "place", "rotate"]

SOURCE = Path(__file__).with_name("cpu.c")
OPTIONS = ["-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-fassociative-math",
           "-shared", "-fPIC"]
THREADS = (["-fopenmp"], ["-fopenmp-simd"])  # the second where the compiler has no OpenMP: one thread

KINDS = {"void": None, "int": ctypes.c_int, "count": ctypes.c_int64, "float": ctypes.c_float, "*": ctypes.c_void_p}


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled kernels; None, with one warning, where they cannot be made, or where POSTGRAD_KERNELS=plain forbids them."""
    if os.environ.get("POSTGRAD_KERNELS") == "plain":
        return None
    try:
        lib = ctypes.CDLL(str(build(shutil.which(os.environ.get("CC", "cc")))))
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:  # RuntimeError: no home folder
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1:]
        warnings.warn(f"no compiled kernels, so plain torch is used, which is slower: {' '.join(said)} "
                      "(install a C compiler as cc, or name one in $CC; POSTGRAD_KERNELS=plain silences this)", stacklevel=3)
        return None
    for result, name, parameters in signatures(SOURCE.read_text()):
        function = getattr(lib, name)
        function.argtypes, function.restype = [KINDS[p] for p in parameters], KINDS[result]
    return lib


def build(compiler: str | None) -> Path:
    """cpu.c as a shared library in the user's cache folder, under a name that changes with source, compiler and processor."""
    if compiler is None:
        raise OSError("no C compiler found")
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    key = hashlib.sha256("\n".join([SOURCE.read_text(), compiler, version, processor(), *OPTIONS]).encode()).hexdigest()[:16]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "postgrad"
    made = folder / f"kernels-{key}.so"
    if not made.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder) as work:  # moved in one step: two runs may build at the same time
            fresh = Path(work) / made.name
            for threads in THREADS:
                command = [compiler, *OPTIONS, *threads, str(SOURCE), "-o", str(fresh), "-lm"]
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode == 0:
                    break
            done.check_returncode()
            fresh.replace(made)
    return made


def processor() -> str:
    """What -march=native depends on."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    told = sorted({x for x in lines if x.startswith(("model name", "flags", "Features", "CPU"))})
    return "\n".join(told) or platform.processor()


def signatures(source: str) -> list[tuple[str, str, list[str]]]:
    """The functions that a C source offers: result, name, and the type of each parameter, "*" for any pointer."""
    found = re.findall(r"^(void|count) (\w+)\((.*?)\) \{", source, re.MULTILINE | re.DOTALL)
    return [(result, name, ["*" if "*" in p else p.split()[0] for p in inside.split(",")]) for result, name, inside in found]


def call(name: str, *args) -> int | None:
    """A C function by its name, with the number of threads before its arguments; tensors go as pointers, indices on trust."""
    return getattr(library(), name)(torch.get_num_threads(), *(_pointer(x) if isinstance(x, Tensor) else x for x in args))


def _pointer(x: Tensor) -> int:
    assert x.dtype in (torch.float32, torch.int64, torch.float64) and x.is_cpu, f"{x.dtype} on {x.device} is for plain.py"
    return x.data_ptr()


def add_norm(x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> Tensor:  # [R, D]
    assert x.is_contiguous(), "x is changed in place"
    y = torch.empty_like(x)
    call("add_norm", *x.shape, x, None if delta is None else delta.contiguous(), weight, eps, y)
    return y


def place(qkv: Tensor, cos: Tensor, sin: Tensor, position: Tensor, slot: Tensor, at: Tensor, k_cache: Tensor,
          v_cache: Tensor) -> Tensor:
    assert k_cache.is_contiguous() and v_cache.is_contiguous(), "the caches are changed in place"
    _, kv, room, head_dim = k_cache.shape
    q = qkv.new_empty(len(qkv), qkv.shape[1] // head_dim - 2 * kv, head_dim)
    call("place", len(qkv), q.shape[1], kv, head_dim, room, qkv.contiguous(), cos.contiguous(), sin.contiguous(),
         position.contiguous(), slot.contiguous(), at.contiguous(), k_cache, v_cache, q)
    return q


def attend(q: Tensor, k_prompt: Tensor, v_prompt: Tensor, prompt: Tensor, prompt_length: Tensor, k_cache: Tensor,
           v_cache: Tensor, slot: Tensor, length: Tensor, window: int | None = None) -> Tensor:
    R, H, head_dim = q.shape
    _, kv, room, _ = k_cache.shape
    y = q.new_empty(R, H * head_dim)
    tensors = (x.contiguous() for x in (q, k_prompt, v_prompt, prompt, prompt_length, k_cache, v_cache, slot, length))
    call("attend", R, H, kv, head_dim, k_prompt.shape[2], room, window or 0, *tensors, y)
    return y


def pick(logits: Tensor, u: Tensor, temperature: float) -> tuple[Tensor, Tensor]:  # [R, V], [R] -> tokens, logp [R]
    token, logp = torch.empty(len(logits), dtype=torch.int64), logits.new_empty(len(logits))
    bad = call("pick", *logits.shape, logits.contiguous(), u.double().contiguous(), float(temperature), token, logp)
    if bad >= 0:
        raise ValueError(f"row {bad} of the logits has no distribution (nan, +inf, or -inf everywhere): the model has "
                         "diverged, or every token is forbidden.")
    return token, logp


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
    """x with each x[n] in one piece; from one n to the next there may be a gap, as in a slice of a wider tensor."""
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
    call("gate", N, F, ab, ab.stride(0), _pointer(ab) + 4 * F, ab.stride(0), y)
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
        halves = _pointer(ab) + 4 * F, _pointer(out) + 4 * F
        call("gate_backward", N, F, ab, step, halves[0], step, dy.contiguous(), out, halves[1], 2 * F)
        return out


class Sequences(ctypes.Structure):
    """The struct of that name in cpu.c."""

    _fields_ = [*((n, ctypes.c_int64) for n in "N M Hq Hkv Dh window qn kn vn".split()),
                *((n, ctypes.c_void_p) for n in "q k v start stop prefix_start prefix_stop".split())]

    @classmethod
    def of(cls, q: Tensor, k: Tensor, v: Tensor, spans: tuple[Tensor, ...], window: int | None) -> Sequences:
        numbers = len(q), len(spans[0]), q.shape[1], k.shape[1], q.shape[2], window or 0, q.stride(0), k.stride(0), v.stride(0)
        return cls(*numbers, *(_pointer(x) for x in (q, k, v, *spans)))


def attention(q: Tensor, k: Tensor, v: Tensor, spans, window: int | None = None) -> Tensor:
    """q [N, H, head_dim], k and v [N, fewer H, head_dim] -> [N, H, head_dim], over sequences that may share prefixes."""
    return Attention.apply(q, k, v, spans, window)


class Attention(Function):
    @staticmethod
    def forward(ctx, q, k, v, spans, window):
        q, k, v = flat(q), flat(k), flat(v)
        spans = tuple(x.contiguous() for x in (spans.start, spans.stop, spans.prefix_start, spans.prefix_stop))
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

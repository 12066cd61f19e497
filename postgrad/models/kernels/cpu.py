"""The kernels in C on the CPU (cpu.c, attention.c, product.c, decode.c), float32, compiled once with the
machine's own compiler. Functions have the names and meanings of plain.py.

A row's result depends neither on the other rows nor on the number of threads, bit for bit. Tensors in another
memory layout than the C code reads (a transposed view, say) are copied first.
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
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from postgrad.models.kernels.fused import C_DECODE_STEP
from postgrad.models.kernels.plain import attention_after, attention_layout, linear, nudge, store_kv

__all__ = ["add_norm", "attend_cached", "attention", "attention_layout", "c_library", "compact_rows",
           "fused_sampler", "fused_step", "linear", "nudge", "packed_names", "record_tokens", "rms_norm",
           "rotate", "rotate_and_store", "sample_tokens", "step_attention", "store_kv", "swiglu",
           "swiglu_joined"]

SOURCES = tuple(Path(__file__).with_name(name) for name in ("cpu.c", "attention.c", "product.c",
                                                              "decode.c"))
HEADER = Path(__file__).with_name("cpu.h")
OPTIONS = ["-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros",
           "-fassociative-math", "-shared", "-fPIC"]
THREADS = (["-fopenmp"], ["-fopenmp-simd"])  # the second where the compiler has no OpenMP: one thread

KNOWN = (torch.float32, torch.int64, torch.float64, torch.bool)  # of tensors
KINDS = {"void": None, "int": ctypes.c_int, "count": ctypes.c_int64, "float": ctypes.c_float,
         "*": ctypes.c_void_p}


@functools.cache
def c_library() -> ctypes.CDLL | None:
    """The compiled kernels; None, with one warning, where they cannot be made, or where
    POSTGRAD_KERNELS=plain forbids them."""
    if os.environ.get("POSTGRAD_KERNELS") == "plain":
        return None
    try:
        lib = ctypes.CDLL(str(build_library(shutil.which(os.environ.get("CC", "cc")))))
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:  # RuntimeError: no home folder
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1:]
        warnings.warn(f"no compiled kernels, so plain torch is used, which is slower: {' '.join(said)} "
                      "(install a C compiler as cc, or name one in $CC; POSTGRAD_KERNELS=plain "
                      "silences this)",
                      stacklevel=3)
        return None
    for result, name, parameters in c_signatures(c_source()):
        function = getattr(lib, name)
        function.argtypes, function.restype = [KINDS[p] for p in parameters], KINDS[result]
    return lib


def build_library(compiler: str | None) -> Path:
    """The C sources as a shared library in the user's cache folder, under a name that changes with source,
    compiler and processor."""
    if compiler is None:
        raise OSError("no C compiler found")
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    key = hashlib.sha256("\n".join([c_source(), compiler, version, processor_flags(),
                                    *OPTIONS]).encode()).hexdigest()[:16]
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "postgrad"
    made = folder / f"kernels-{key}.so"
    if not made.exists():
        folder.mkdir(parents=True, exist_ok=True)
        # moved in one step: two runs may build at the same time
        with tempfile.TemporaryDirectory(dir=folder) as work:
            fresh = Path(work) / made.name
            for threads in THREADS:
                command = [compiler, *OPTIONS, *threads, *map(str, SOURCES), "-o", str(fresh), "-lm"]
                done = subprocess.run(command, capture_output=True, text=True)
                if done.returncode == 0:
                    break
            done.check_returncode()
            fresh.replace(made)
    return made


def c_source() -> str:
    return "\n".join(path.read_text() for path in (HEADER, *SOURCES))


def processor_flags() -> str:
    """What -march=native depends on."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    told = sorted({x for x in lines if x.startswith(("model name", "flags", "Features", "CPU"))})
    return "\n".join(told) or platform.processor()


def c_signatures(source: str) -> list[tuple[str, str, list[str]]]:
    """The functions that a C source offers: result, name, and the type of each parameter,
    "*" for any pointer."""
    found = re.findall(r"^(void|count) (\w+)\(([^;{]*?)\) \{", source, re.MULTILINE)
    return [(result, name, ["*" if "*" in p else p.split()[0] for p in inside.split(",")])
            for result, name, inside in found]


def call_c(name: str, *args) -> int | None:
    """A C function by its name, with the number of threads before its arguments; tensors go as pointers,
    indices on trust."""
    pointers = [c_pointer(x) if isinstance(x, Tensor) else x for x in args]
    return getattr(c_library(), name)(torch.get_num_threads(), *pointers)


class NoDistribution(ValueError):
    """Logits from which no token can be sampled. row: which."""

    def __init__(self, row: int):
        super().__init__(f"row {row} of the logits has no distribution (nan, +inf, or -inf everywhere): the "
                         "model has diverged, or every token is forbidden.")
        self.row = row

    def __reduce__(self) -> tuple[type[NoDistribution], tuple[int]]:
        return NoDistribution, (self.row,)


def check_sampled(bad: int | None) -> None:
    """Of the C functions that choose tokens: a row from which none can be chosen, or -1."""
    if bad is not None and bad >= 0:
        raise NoDistribution(bad)


def c_pointer(x: Tensor) -> int:
    assert x.dtype in KNOWN and x.is_cpu, f"{x.dtype} on {x.device} is for plain.py"
    return x.data_ptr()


class Panels:
    """A matrix [outputs, inputs], or one for each expert, as a copy of its own, which is refilled when the
    weights have changed."""

    def __init__(self, outputs: int, inputs: int, copies: int = 1):
        self.outputs, self.inputs = outputs, inputs
        width = call_c("panel")
        self.values = torch.zeros(copies, -(-outputs // width) * width * inputs)

    @classmethod
    def like(cls, parts: Sequence[Tensor]) -> Panels:
        if parts[0].dim() == 3:
            return cls(*parts[0].shape[1:], copies=len(parts[0]))
        return cls(sum(map(len, parts)), parts[0].shape[1])

    def fill(self, parts: Sequence[Tensor]) -> None:  # [outputs, inputs] together, or [copies, ., .]
        """The outputs of all parts, one after another."""
        copies = [parts] if parts[0].dim() == 2 else [[expert] for expert in parts[0]]
        for values, matrices in zip(self.values, copies, strict=True):
            first = 0
            for part in matrices:
                call_c("pack", *part.shape, first, part.contiguous(), values)
                first += len(part)

    def product(self, x: Tensor) -> Tensor:  # [R, inputs] -> [R, outputs]
        R = x.shape[0]
        y = torch.empty(R, self.outputs)
        call_c("product", R, self.inputs, self.outputs, x.contiguous(), self.values, y)
        return y


def add_norm(x: Tensor, delta: Tensor | None, weight: Tensor, eps: float) -> Tensor:  # [R, D]
    assert x.is_contiguous(), "x is changed in place"
    y = torch.empty_like(x)
    call_c("add_norm", *x.shape, x, None if delta is None else delta.contiguous(), weight, eps, y)
    return y


def rotate_and_store(qkv: Tensor, cos: Tensor, sin: Tensor, position: Tensor, slot: Tensor, at: Tensor,
                     k_cache: Tensor, v_cache: Tensor) -> Tensor:
    assert k_cache.is_contiguous() and v_cache.is_contiguous(), "the caches are changed in place"
    _, kv, capacity, head_dim = k_cache.shape
    q = qkv.new_empty(len(qkv), qkv.shape[1] // head_dim - 2 * kv, head_dim)
    tensors = (x.contiguous() for x in (qkv, cos, sin, position, slot, at))
    call_c("place", len(qkv), q.shape[1], kv, head_dim, cos.shape[1], capacity, *tensors, k_cache, v_cache, q)
    return q


def attend_cached(q: Tensor, k_prompt: Tensor, v_prompt: Tensor, prompt: Tensor, prompt_length: Tensor,
           k_cache: Tensor, v_cache: Tensor, slot: Tensor, length: Tensor,
           window: int | None = None, cap: float | None = None) -> Tensor:
    R, H, head_dim = q.shape
    _, kv, capacity, _ = k_cache.shape
    y = q.new_empty(R, H * head_dim)
    tensors = (x.contiguous()
               for x in (q, k_prompt, v_prompt, prompt, prompt_length, k_cache, v_cache, slot, length))
    call_c("attend", R, H, kv, head_dim, k_prompt.shape[2], capacity, window or 0, cap or 0.0, *tensors,
           y)
    return y


step_attention = attention_after(rotate_and_store, attend_cached)


def sample_tokens(logits: Tensor, u: Tensor,
         temperature: float) -> tuple[Tensor, Tensor]:  # [R, V], [R] -> tokens, logp [R]
    R = logits.shape[0]
    token, logp = torch.empty(R, dtype=torch.int64), torch.empty(R)
    check_sampled(call_c("pick", *logits.shape, logits.contiguous(), u.double().contiguous(),
                         float(temperature), token, logp))
    return token, logp


def record_tokens(token: Tensor, logp: Tensor, at: Tensor, slot: Tensor, shown: Tensor, done: Tensor,
                  count: Tensor, out: Tensor, logps: Tensor, ends: Tensor, most: int) -> Tensor:
    assert at.is_contiguous() and done.is_contiguous() and count.is_contiguous(), "they are changed in place"
    where = torch.empty_like(at)
    call_c("note", token.shape[0], out.shape[1], ends.shape[0], most, token, logp, at, slot, shown, done,
           count, out, logps, ends, where)
    return where


def compact_rows(columns: Tensor, done: Tensor, hidden: Tensor, rows: Tensor, before: int,
                 nobody: Tensor) -> None:
    assert columns.is_contiguous() and hidden.is_contiguous(), "they are changed in place"
    call_c("move_up", rows.shape[0], before, *columns.shape, hidden.shape[1], rows, nobody, columns, done,
         hidden)


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:  # [..., D]
    return NormFunction.apply(x, weight, eps)


class NormFunction(Function):
    @staticmethod
    def forward(ctx, x, weight, eps):
        x = x.contiguous()
        y, inverse = torch.empty_like(x), x.new_empty(x.shape[:-1])
        call_c("norm", inverse.numel(), x.shape[-1], x, weight, eps, y, inverse)
        ctx.save_for_backward(x, weight, inverse)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        x, weight, inverse = ctx.saved_tensors
        N, D = inverse.numel(), x.shape[-1]
        dx, dweight, parts = torch.empty_like(x), torch.empty_like(weight), x.new_empty(N // 64 + 1, D)
        call_c("norm_backward", N, D, x, weight, inverse, dy.contiguous(), dx, parts, dweight)
        return dx, dweight, None


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:  # [N, H, head_dim], [N, head_dim / 2] twice
    return RotateFunction.apply(x, cos, sin)


class RotateFunction(Function):
    @staticmethod
    def forward(ctx, x, cos, sin):
        ctx.save_for_backward(cos, sin)
        return rotate_by(x, cos, sin, 1.0)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        return rotate_by(dy, *ctx.saved_tensors, -1.0), None, None


def rotate_by(x: Tensor, cos: Tensor, sin: Tensor, sign: float) -> Tensor:
    x, y = contiguous_rows(x), x.new_empty(x.shape)
    call_c("rotate", *x.shape, cos.shape[1], sign, x, x.stride(0), cos.contiguous(), sin.contiguous(), y)
    return y


def contiguous_rows(x: Tensor) -> Tensor:  # [N, ...]
    """x with each x[n] in one piece; from one n to the next there may be a gap,
    as in a slice of a wider tensor."""
    return x if x[:1].is_contiguous() else x.contiguous()


def swiglu(a: Tensor, b: Tensor) -> Tensor:  # [N, F] twice
    return GateFunction.apply(a, b)


class GateFunction(Function):
    @staticmethod
    def forward(ctx, a, b):
        a, b, y = contiguous_rows(a), contiguous_rows(b), a.new_empty(a.shape)
        call_c("gate", *a.shape, a, a.stride(0), b, b.stride(0), y)
        ctx.save_for_backward(a, b)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        a, b = ctx.saved_tensors
        da, db = a.new_empty(a.shape), a.new_empty(a.shape)
        call_c("gate_backward", *a.shape, a, a.stride(0), b, b.stride(0), dy.contiguous(), da, db, a.shape[1])
        return da, db


def swiglu_joined(ab: Tensor) -> Tensor:  # [N, 2F] -> [N, F]
    if torch.is_grad_enabled() and ab.requires_grad:
        return swiglu(*ab.chunk(2, dim=1))
    ab, (N, F) = contiguous_rows(ab), (len(ab), ab.shape[1] // 2)
    y = ab.new_empty(N, F)
    call_c("gate", N, F, ab, ab.stride(0), c_pointer(ab) + 4 * F, ab.stride(0), y)
    return y


class SequencePointers(ctypes.Structure):
    """The struct of that name in attention.c."""

    _fields_ = [*((n, ctypes.c_int64) for n in "N M Hq Hkv Dh window qn kn vn".split()),
                ("cap", ctypes.c_double),
                *((n, ctypes.c_void_p) for n in "q k v start stop prefix_start prefix_stop".split())]

    @classmethod
    def of(cls, q: Tensor, k: Tensor, v: Tensor, spans: tuple[Tensor, ...],
           window: int | None, cap: float | None) -> SequencePointers:
        numbers = (len(q), len(spans[0]), q.shape[1], k.shape[1], q.shape[2], window or 0, q.stride(0),
                   k.stride(0), v.stride(0), cap or 0.0)
        return cls(*numbers, *(c_pointer(x) for x in (q, k, v, *spans)))


def attention(q: Tensor, k: Tensor, v: Tensor, spans, window: int | None = None,
              cap: float | None = None) -> Tensor:
    """q [N, H, head_dim], k and v [N, fewer H, head_dim] -> [N, H,
    head_dim], over sequences that may share prefixes."""
    return AttentionFunction.apply(q, k, v, spans, window, cap)


class AttentionFunction(Function):
    @staticmethod
    def forward(ctx, q, k, v, spans, *limits):
        q, k, v = contiguous_rows(q), contiguous_rows(k), contiguous_rows(v)
        spans = tuple(x.contiguous()
                      for x in (spans.start, spans.stop, spans.prefix_start, spans.prefix_stop))
        y, lse = q.new_empty(q.shape), q.new_empty(q.shape[:2])
        call_c("attention", ctypes.byref(SequencePointers.of(q, k, v, spans, *limits)), y, lse)
        ctx.save_for_backward(q, k, v, y, lse)
        ctx.spans, ctx.limits = spans, limits
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        q, k, v, y, lse = ctx.saved_tensors
        dq, dk, dv = q.new_empty(q.shape), k.new_zeros(k.shape), v.new_zeros(v.shape)
        where = ctypes.byref(SequencePointers.of(q, k, v, ctx.spans, *ctx.limits))
        call_c("attention_backward", where, y, lse, dy.contiguous(), dq, dk, dv)
        return dq, dk, dv, None, None, None


FUSED_STEP = C_DECODE_STEP
MATRICES = ("qkv", "o", "gate_up", "down")  # by the short names of layer.py
NEEDED = ("before_attention", "before_mlp", *MATRICES)
OPTIONAL = ("qkv_bias", "o_bias", "after_attention", "after_mlp", "q_norm", "k_norm")
KEPT = ("k_prompt", "v_prompt", "k", "v")
SCALES = ("cap", "query_scale", "attention_scale", "mlp_scale")


class LayerPointers(ctypes.Structure):
    """The struct of that name in decode.c."""

    _fields_ = [*((n, ctypes.c_void_p) for n in (*NEEDED, *OPTIONAL, "cos", "sin", *KEPT)),
                ("window", ctypes.c_int64), ("gelu", ctypes.c_int64),
                *((n, ctypes.c_double) for n in SCALES),
                ("router", ctypes.c_void_p), ("routes", ctypes.c_void_p),
                *((n, ctypes.c_int64) for n in "experts active width renormalised step".split())]


class DecoderPointers(ctypes.Structure):
    _fields_ = [*((n, ctypes.c_int64) for n in "layers D F widest Hq Hkv Dh half read capacity".split()),
                ("eps", ctypes.c_double), ("embed_scale", ctypes.c_double),
                *((name, ctypes.c_void_p) for name in "embed norm layer".split())]


class RowPointers(ctypes.Structure):
    _fields_ = [*((name, ctypes.c_int64) for name in "width most ends".split()),
                *((name, ctypes.c_double) for name in "temperature scale cap".split()),
                *((name, ctypes.c_void_p) for name in "u at slot shown done count out logp end".split())]


def packed_names(engine) -> set[str]:
    """The weights that `fused_step` keeps itself, by their names in the engine."""
    return {"head", *(f"{i}.{name}" for i in range(len(engine.layers)) for name in MATRICES)}


def fused_step(engine) -> Callable | None:
    """Engine.step as one call for all layers, where FUSED_STEP supports them; None without panels."""
    c, w, panels = engine.c, engine.weights, engine.panels
    for name in engine.own:
        parts = [engine.merged[part] for part in engine.layout[name]]
        if name not in panels:
            panels[name] = Panels.like(parts)
        panels[name].fill(parts)
    if not panels:
        return None
    tables = engine.tables()
    layers = (LayerPointers * len(engine.layers))()
    for i, (layer, spec) in enumerate(zip(layers, engine.layers, strict=True)):
        for name in MATRICES:
            setattr(layer, name, panels[f"{i}.{name}"].values.data_ptr())
        for name in {*NEEDED, *OPTIONAL} - {*MATRICES}:
            setattr(layer, name, w[f"{i}.{name}"].data_ptr() if f"{i}.{name}" in w else None)
        for name in KEPT:
            setattr(layer, name, getattr(engine, name)[i].data_ptr())
        layer.cos, layer.sin = (x.data_ptr() for x in tables[i])
        layer.window, layer.gelu = spec.window or 0, spec.activation == "gelu_pytorch_tanh"
        layer.cap, layer.query_scale = spec.score_cap or 0.0, spec.query_scale
        layer.attention_scale, layer.mlp_scale = spec.attention.scale, spec.mlp.scale
        if spec.mlp.router is not None:
            layer.router = w[f"{i}.router"].data_ptr()
            layer.routes = engine.routes[:, :, engine.mixed.index(i)].data_ptr()
            layer.experts, layer.active = spec.mlp.router.outputs, spec.mlp.active
            layer.width, layer.renormalised = spec.mlp.widths[0], spec.mlp.renormalised
            layer.step = engine.routes.stride(1)
    D, F, heads = c.hidden_size, c.intermediate_size, c.num_attention_heads * c.head_dim
    widest = max(F, *(layer.width for layer in layers))
    pointers = (x.data_ptr() for x in (w["embed"], w["norm"]))
    model = DecoderPointers(c.num_hidden_layers, D, F, widest, c.num_attention_heads, c.num_key_value_heads,
                            c.head_dim, c.rotary_dim // 2, engine.read, engine.new, c.rms_norm_eps,
                            engine.scales[0], *pointers,
                            ctypes.cast(layers, ctypes.c_void_p).value)
    wide = max(heads + 2 * c.num_key_value_heads * c.head_dim, 3 * widest)
    experts, active = (max(getattr(layer, name) for layer in layers) for name in ("experts", "active"))
    scratch = torch.empty(engine.rows * (4 * D + 2 * heads + wide + active) + c.num_attention_heads + experts)
    numbers = torch.empty((3 + active) * engine.rows, dtype=torch.int64)

    def step(token: Tensor, at: Tensor, slot: Tensor, prompt: Tensor, prompt_length: Tensor) -> Tensor:
        R = token.shape[0]
        out = torch.empty(R, D)
        rows = (x.contiguous() for x in (token, at, slot, prompt, prompt_length))
        call_c("decode", ctypes.byref(model), R, *rows, scratch, numbers, out)
        return out

    step.layers = layers  # the struct points to them
    return step


def fused_sampler(rows) -> Callable[..., tuple[Tensor, Tensor]] | None:
    """(rows, n) -> the next tokens of the first n of these rows, the sampler's, chosen from their states and
    noted in one call, and where they stand in their slots; None where tokens are left out, or the likeliest
    is taken."""
    settings, engine = rows.settings, rows.engine
    if not (engine.independent and settings.unfiltered and settings.temperature):
        return None
    size, width = rows.out.shape
    state = (rows.u, rows.at, rows.slot, rows.shown, rows.done, rows.count, rows.out, rows.logp, rows.ends)
    known = RowPointers(width, settings.max_new_tokens, len(rows.ends), settings.temperature,
                 engine.scales[1], engine.cap or 0.0, *(c_pointer(x) for x in state))
    u, logp = torch.empty(size, dtype=torch.float64), torch.empty(size)
    token, where = torch.empty(2, size, dtype=torch.int64)

    def choose(rows, n: int) -> tuple[Tensor, Tensor]:
        head = engine.panels["head"]
        logits = torch.empty(n, head.outputs)
        check_sampled(call_c("choose", ctypes.byref(known), n, head.inputs, head.outputs, rows.hidden,
                             head.values, logits, u, token, logp, where))
        return token[:n], where[:n]

    return choose

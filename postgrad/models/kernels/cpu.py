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
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path

import torch
from torch import Tensor

SOURCE = Path(__file__).with_name("cpu.c")
OPTIONS = ["-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math", "-shared", "-fPIC"]
THREADS = (["-fopenmp"], ["-fopenmp-simd"])  # the second where the compiler has no OpenMP: one thread


@functools.cache
def library() -> ctypes.CDLL | None:
    """The compiled kernels; None, with one warning, where they cannot be made, or where POSTGRAD_KERNELS=plain forbids them."""
    if os.environ.get("POSTGRAD_KERNELS") == "plain":
        return None
    try:
        lib = ctypes.CDLL(str(build(shutil.which(os.environ.get("CC", "cc")))))
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1:]
        warnings.warn(f"no compiled kernels, so plain torch is used, which is slower: {' '.join(said)} "
                      "(install a C compiler as cc, or name one in $CC; POSTGRAD_KERNELS=plain silences this)", stacklevel=3)
        return None
    lib.pick.restype = ctypes.c_int64
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


def call(name: str, *args) -> int:
    """A C function by its name: tensors go as pointers, whole numbers as int64, floats as float; the threads come first."""
    return getattr(library(), name)(torch.get_num_threads(), *map(_passed, args))


def _passed(x):
    if isinstance(x, Tensor):
        return ctypes.c_void_p(x.data_ptr())
    return ctypes.c_float(x) if isinstance(x, float) else None if x is None else ctypes.c_int64(x)


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


def gate_halves(ab: Tensor) -> Tensor:  # [R, 2F] -> [R, F]
    y = ab.new_empty(ab.shape[0], ab.shape[1] // 2)
    call("gate_halves", *y.shape, ab.contiguous(), y)
    return y


def pick(logits: Tensor, u: Tensor, temperature: float) -> tuple[Tensor, Tensor]:  # [R, V], [R] -> tokens, logp [R]
    token, logp = torch.empty(len(logits), dtype=torch.int64), logits.new_empty(len(logits))
    bad = call("pick", *logits.shape, logits.contiguous(), u.contiguous(), float(temperature), token, logp)
    if bad >= 0:
        raise ValueError(f"row {bad} of the logits has no distribution (nan, +inf, or -inf everywhere): the model has "
                         "diverged, or every token is forbidden.")
    return token, logp

"""The C sources of the kernels as a library, compiled once with the machine's own compiler."""

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
def library() -> ctypes.CDLL | None:
    """The compiled kernels; None, with one warning, where they cannot be made, or where
    POSTGRAD_KERNELS=plain forbids them."""
    if os.environ.get("POSTGRAD_KERNELS") == "plain":
        return None
    try:
        lib = ctypes.CDLL(str(build(shutil.which(os.environ.get("CC", "cc")))))
    except (OSError, RuntimeError, subprocess.SubprocessError) as error:  # RuntimeError: no home folder
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()[-1:]
        warnings.warn(f"no compiled kernels, so plain torch is used, which is slower: {' '.join(said)} "
                      "(install a C compiler as cc, or name one in $CC; POSTGRAD_KERNELS=plain "
                      "silences this)",
                      stacklevel=3)
        return None
    for result, name, parameters in signatures(source()):
        function = getattr(lib, name)
        function.argtypes, function.restype = [KINDS[p] for p in parameters], KINDS[result]
    return lib


def build(compiler: str | None) -> Path:
    """The C sources as a shared library in the user's cache folder, under a name that changes with source,
    compiler and processor."""
    if compiler is None:
        raise OSError("no C compiler found")
    version = subprocess.run([compiler, "--version"], capture_output=True, text=True, check=True).stdout
    key = hashlib.sha256("\n".join([source(), compiler, version, processor(),
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


def source() -> str:
    return "\n".join(path.read_text() for path in (HEADER, *SOURCES))


def processor() -> str:
    """What -march=native depends on."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    told = sorted({x for x in lines if x.startswith(("model name", "flags", "Features", "CPU"))})
    return "\n".join(told) or platform.processor()


def signatures(source: str) -> list[tuple[str, str, list[str]]]:
    """The functions that a C source offers: result, name, and the type of each parameter,
    "*" for any pointer."""
    found = re.findall(r"^(void|count) (\w+)\(([^;{]*?)\) \{", source, re.MULTILINE)
    return [(result, name, ["*" if "*" in p else p.split()[0] for p in inside.split(",")])
            for result, name, inside in found]


def call(name: str, *args) -> int | None:
    """A C function by its name, with the number of threads before its arguments; tensors go as pointers,
    indices on trust."""
    pointers = [pointer(x) if isinstance(x, Tensor) else x for x in args]
    return getattr(library(), name)(torch.get_num_threads(), *pointers)


def check(bad: int | None) -> None:
    """Of the C functions that choose tokens: a row from which none can be chosen, or -1."""
    if bad is not None and bad >= 0:
        raise ValueError(f"row {bad} of the logits has no distribution (nan, +inf, or -inf everywhere): the "
                         "model has diverged, or every token is forbidden.")


def pointer(x: Tensor) -> int:
    assert x.dtype in KNOWN and x.is_cpu, f"{x.dtype} on {x.device} is for plain.py"
    return x.data_ptr()

"""Compiles Triton's C launchers with -O0 instead of -O3: several are built before the first step of a short
run, and they only call Python and the driver. Triton's cache is used as usual."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any


@cache
def build_quickly() -> None:
    """Installs `build_launcher` in this process, unless another is set or Triton is too old for it."""
    if (how := knobs()) is not None and how.impl is None and compiler():
        how.impl = build_launcher


def knobs() -> Any:
    import triton  # here: it is only there where a GPU is
    return getattr(getattr(triton, "knobs", None), "build", None)


def compiler() -> str | None:
    """As Triton looks for it."""
    return os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")


def build_launcher(name: str, source: str, folder: str, library_dirs: Sequence[str],
                   include_dirs: Sequence[str], libraries: Sequence[str], flags: Sequence[str] = ()) -> str:
    """The file of the extension. flags: passed by newer versions of Triton."""
    made = Path(folder, name + sysconfig.get_config_var("EXT_SUFFIX"))
    scheme = sysconfig.get_default_scheme().replace("posix_local", "posix_prefix")  # Debian's has no headers
    headers = [*include_dirs, folder, sysconfig.get_paths(scheme)["include"], *knobs().backend_dirs]
    subprocess.run([compiler() or "cc", source, "-O0", "-shared", "-fPIC", "-Wno-psabi", "-o", str(made),
                    *(f"-l:{x}" if ".so" in x or x.endswith(".a") else f"-l{x}" for x in libraries),
                    *(f"-L{x}" for x in library_dirs), *(f"-I{x}" for x in headers if x), *flags],
                   check=True, stdout=subprocess.DEVNULL)
    return str(made)

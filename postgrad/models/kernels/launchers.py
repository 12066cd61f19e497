"""The C code by which Triton launches a kernel, compiled sooner.

Triton writes a small extension for each kind of arguments and has it compiled with -O3, several of them
before the first step of a short run. It only calls Python and the driver, so there is little to optimise. The
results are kept in Triton's cache as ever.
"""

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
    """From now on in this process, where nobody else has told Triton how to build. An older Triton cannot be
    told."""
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
    """The file of the extension. flags: what newer versions of Triton hand over too."""
    made = Path(folder, name + sysconfig.get_config_var("EXT_SUFFIX"))
    scheme = sysconfig.get_default_scheme().replace("posix_local", "posix_prefix")  # Debian's has no headers
    headers = [*include_dirs, folder, sysconfig.get_paths(scheme)["include"], *knobs().backend_dirs]
    subprocess.run([compiler() or "cc", source, "-O0", "-shared", "-fPIC", "-Wno-psabi", "-o", str(made),
                    *(f"-l:{x}" if ".so" in x or x.endswith(".a") else f"-l{x}" for x in libraries),
                    *(f"-L{x}" for x in library_dirs), *(f"-I{x}" for x in headers if x), *flags],
                   check=True, stdout=subprocess.DEVNULL)
    return str(made)

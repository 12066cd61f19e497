"""This machine, the commit of the code, the packages and extras that are installed."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

EXTRAS = {
    "gguf": "models from GGUF files",
    "data": "tables in parquet",
    "hf": "architectures through transformers",
    "qlora": "models in 4 bits",
    "math": "verifiers of maths",
    "json": "verifiers of JSON schemas",
    "gym": "the tasks of reasoning-gym",
    "vllm": "sampling with vLLM",
    "bench": "the benchmarks of lm-eval",
    "tinker": "serving the Tinker protocol",
    "trackio": "runs in trackio",
    "wandb": "runs in Weights & Biases",
    "tensorboard": "runs in TensorBoard",
    "mlflow": "runs in MLflow",
    "test": "make test",
}
"""What each extra adds."""

REQUIREMENT = re.compile(r"""(?P<package>[\w.-]+).*?(?:extra == ["'](?P<extra>[\w-]+)["'])?$""")


def processor_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")),
                platform.processor() or platform.machine())


def machine_facts() -> dict[str, Any]:
    """What a run keeps of the machine it is trained on: no name of it, and nobody's."""
    import torch
    return {"platform": platform.platform(), "cpu": processor_name(), "cores": os.cpu_count(),
            "gpus": [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]}


@cache
def code_commit(folder: str) -> str | None:
    """The commit that a folder of a git repository is at, "-dirty" behind it where files were changed; None
    elsewhere."""
    try:
        done = subprocess.run(["git", "-C", folder, "describe", "--always", "--dirty", "--abbrev=12",
                               "--exclude=*"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None


def memory_gb() -> float | None:
    """None where the system does not say."""
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    except (AttributeError, OSError, ValueError):
        return None


def requirements() -> list[tuple[str, str | None]]:
    """(package, extra or None) for every requirement of the installed postgrad."""
    try:
        lines = importlib.metadata.requires("postgrad") or []
    except importlib.metadata.PackageNotFoundError:
        raise ValueError("postgrad is not installed in this environment, so its extras are unknown: "
                         f"{sys.executable} -m pip install -e . in the checkout.") from None
    matches = [REQUIREMENT.match(line) for line in lines]
    return [(match["package"], match["extra"]) for match in matches if match]


def installed_version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def core_packages() -> dict[str, str | None]:
    return {package: installed_version(package) for package, extra in requirements() if extra is None}


def extras() -> dict[str, dict[str, Any]]:
    """For each extra what it adds, whether it is installed, and the packages that are missing."""
    packages: dict[str, list[str]] = {}
    for package, extra in requirements():
        if extra is not None:
            packages.setdefault(extra, []).append(package)
    missing = {extra: [package for package in names if installed_version(package) is None]
               for extra, names in packages.items()}
    return {extra: {"adds": EXTRAS.get(extra, ""), "installed": not absent, "missing": absent,
                    "install": f"pip install 'postgrad[{extra}]'"} for extra, absent in missing.items()}

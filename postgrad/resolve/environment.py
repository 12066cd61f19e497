"""What `postgrad env` tells: versions, machine, devices, kernels, the jail, extras."""

from __future__ import annotations

import os
import platform
from typing import Any

import torch

from postgrad import __version__
from postgrad.models.kernels.cpu import c_library
from postgrad.rewards.sandbox import tier
from postgrad.system.installation import core_packages, extras, memory_gb, processor_name


def describe_installation() -> dict[str, Any]:
    """Versions, machine, devices, kernels, jail and extras, as `postgrad env --json` prints them."""
    try:
        jail = tier()
    except ValueError as error:
        jail = f"none: {error}"
    return {
        "postgrad": __version__, "python": platform.python_version(), "platform": platform.platform(),
        "cpu": {"name": processor_name(), "cores": os.cpu_count(), "memory_gb": memory_gb(),
                "threads": torch.get_num_threads(),
                "kernels": "plain torch" if c_library() is None else "compiled"},
        "gpus": [{"device": f"cuda:{number}", "name": properties.name,
                  "memory_gb": round(properties.total_memory / 1e9, 1)}
                 for number in range(torch.cuda.device_count())
                 for properties in [torch.cuda.get_device_properties(number)]],
        "jail": jail, "packages": core_packages(), "extras": extras(),
    }

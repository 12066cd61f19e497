"""`postgrad env`: what this machine and this installation have, for a report or a program."""

from __future__ import annotations

import os
import platform
from typing import Any

from postgrad.cli.options import Command, CommandOptions
from postgrad.cli.output import print_json, print_table


def describe_installation() -> dict[str, Any]:
    """Versions, machine, devices, kernels, jail and extras, as `postgrad env --json` prints them."""
    import torch

    from postgrad import __version__
    from postgrad.models.kernels.cpu import c_library
    from postgrad.rewards.sandbox import tier
    from postgrad.system.installation import core_packages, extras, memory_gb, processor_name
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


def run_env(options: CommandOptions) -> None:
    facts = describe_installation()
    if options.json:
        return print_json(facts)
    cpu = facts["cpu"]
    print_table([{"": name, "value": value} for name, value in {
        "postgrad": facts["postgrad"], "python": facts["python"], "platform": facts["platform"],
        "cpu": f"{cpu['name']}, {cpu['cores']} cores, {cpu['memory_gb']} GB, {cpu['threads']} threads, "
               f"kernels: {cpu['kernels']}",
        "gpus": ", ".join(f"{gpu['device']} {gpu['name']} ({gpu['memory_gb']} GB)"
                          for gpu in facts["gpus"]) or "none",
        "jail": facts["jail"], **facts["packages"]}.items()])
    print_table([{"extra": name, "adds": extra["adds"],
                  "installed": "yes" if extra["installed"] else f"no: {extra['install']}"}
                 for name, extra in facts["extras"].items()], title="extras", whole=["installed"])
    return None


COMMANDS = (
    Command("env", "show the machine, the versions and the extras of this installation", CommandOptions,
            run_env, "Put its output into a report of a fault."),
)

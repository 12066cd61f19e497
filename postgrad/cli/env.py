"""`postgrad env`: what this machine and this installation have, for a report or a program."""

from __future__ import annotations

from dataclasses import dataclass

from postgrad.cli.options import Command, CommandOptions
from postgrad.cli.output import print_json, print_table
from postgrad.system.settings import setting


@dataclass(frozen=True, kw_only=True)
class EnvOptions(CommandOptions):
    check: str | None = setting(None, "trains two steps and samples there, held against the CPU, and prints "
                                "all of it as JSON: a self-test to send", metavar="DEVICE")


def run_env(options: EnvOptions) -> None:
    from postgrad.resolve.environment import describe_installation
    facts = describe_installation()
    if options.check:
        from postgrad.recipes.device_check import check_device_numbers
        return print_json(facts | {"check": check_device_numbers(options.check)})
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
    Command("env", "show the machine, the versions and the extras of this installation", EnvOptions,
            run_env, "Put its output into a report of a fault.\nOn a Mac: postgrad env --check mps"),
)

"""`postgrad memory`: what a method asks of a GPU, before it is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from postgrad.cli.options import Command, CommandOptions, options_from
from postgrad.cli.output import print_json, print_table
from postgrad.system.options import FootprintOptions
from postgrad.system.settings import setting

CARDS = (12, 24, 40, 80)  # GB
SHAPE = "1B, 7B, 13B or 70B; or tiny, a run, a model's folder or a hub id"
GB = 1e9


@dataclass(frozen=True, kw_only=True)
class MemoryOptions(FootprintOptions, CommandOptions):
    model: str = setting(about=SHAPE, metavar="MODEL|SIZE", positional=True)
    method: str = setting("ppo,dpo,grpo", "rows of the table", metavar="NAME,NAME")
    reward: str | None = setting(None, "who judges; without it: a model where there is a critic",
                                 choices=("model", "verifier"))


def run_memory(options: MemoryOptions) -> None:
    from postgrad.recipes.plan import method_memory
    parameters, rows = method_memory(options.model, options.method.split(","),
                                     options_from(FootprintOptions, options), options.reward)
    if options.json:
        return print_json({"model": options.model, "parameters": parameters, "methods": rows})
    trained = f"LoRA of rank {options.lora}" if options.lora else "all weights trained"
    print_table([memory_line(row) for row in rows],
                title=f"{options.model}: {parameters / 1e9:.2f}B parameters, {trained}, "
                      f"{options.bits} bits, GB")
    return print("The peak is the larger of sampling and updating, which take turns. Leave a tenth "
                 "of a card free.")


def memory_line(row: Mapping[str, Any]) -> dict[str, str]:
    fits = next((f"{card} GB" for card in CARDS if row["peak"] <= card * GB), f"over {CARDS[-1]} GB")
    sizes = {part: f"{size / GB:.1f}" for part, size in row.items()
             if part not in ("method", "models", "sampling", "updating")}
    return {"method": row["method"], "models": ", ".join(row["models"]), **sizes, "fits": fits}


COMMAND = Command("memory", "what a method asks of a GPU: weights, gradients, optimizer, activations, cache",
                  MemoryOptions, run_memory)

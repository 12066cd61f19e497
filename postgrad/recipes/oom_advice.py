"""What to say where a GPU ran out of memory: in which phase, and which setting to lower and by how much, by
the estimate of memory/ against the memory that the run can have."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch

from postgrad.models import Models
from postgrad.models.families import Config
from postgrad.recipes.base import RunConfig
from postgrad.recipes.defaults import FREE, RANK, WHOLE, memory_needs
from postgrad.recipes.rollouts import RolloutConfig
from postgrad.system.settings import flat_settings, replace_settings
from postgrad.training.memory import GB, Memory
from postgrad.training.oom import OutOfMemory

LEAST = 64  # tokens of a pass, and an eighth of it replies at once: below, fewer of them save next to nothing
Ladder = list[dict[str, object]]  # changes that save more and more


@contextmanager
def memory_advice(config, models: Models) -> Iterator[None]:
    """A block in which running out of memory becomes one sentence of advice, by the policy's shape; of an
    architecture that runs through transformers it is not known."""
    try:
        yield
    except OutOfMemory as error:
        shape = getattr(models.policy, "config", None)
        raise ValueError(advice(config, shape, error.phase, available(config.device))) from error


def available(device: str) -> float:
    """Bytes of a GPU that other processes leave to this one."""
    free, _ = torch.cuda.mem_get_info(torch.device(device))
    return float(free + torch.cuda.memory_reserved(torch.device(device)))


def advice(config, shape: object, phase: str, memory: float) -> str:
    """What fits is at most nine tenths of the memory, and of the estimate of what did not fit."""
    where = f"the GPU ran out of memory in {phase}, with {memory / GB:.0f} GB for this run"
    if not isinstance(shape, Config) or not isinstance(config, RunConfig):
        half = halved(config, "optim.tokens_per_pass", LEAST)[:1]
        fewer = [change_words(config, changes) for changes in half]
        fewer += [] if config.optim.recompute else ["recompute=true"]
        fewer += [] if config.optim.adapter.lora else [f"lora={RANK}"]
        said = f"set {', or '.join(fewer)}" if fewer else "take a smaller model or a larger GPU"
        return f"{where}: {said}."
    now = memory_needs(config, shape)
    room = (1 - FREE) * min(memory, in_phase(now, phase))
    proposals = []
    for ladder in ladders(config, phase):
        sizes = ((in_phase(memory_needs(replace_settings(config, changes), shape), phase), changes)
                 for changes in ladder)
        proposals += [f"{change_words(config, changes)} (about {size / GB:.1f} GB)"
                      for size, changes in sizes if size <= room][:1]
    need = f"{where}, where it needs about {in_phase(now, phase) / GB:.1f} GB"
    if not proposals:
        return (f"{need}: no setting brings it to {room / GB:.1f} GB; take a smaller model, a larger GPU, or "
                "several with shard=true.")
    return f"{need}: set {', or '.join(proposals[:2])}."


def in_phase(needed: Memory, phase: str) -> float:
    return needed.sampling if phase == "sampling" else needed.updating


def ladders(config, phase: str) -> list[Ladder]:
    """Ways to need less in a phase, those that change the result least first."""
    optim = config.optim
    passes, recompute = halved(config, "optim.tokens_per_pass", LEAST), {"optim.recompute": True}
    again = [] if optim.recompute else [recompute, *(recompute | changes for changes in passes)]
    found = [passes, again]
    if isinstance(config, RolloutConfig):
        if phase == "sampling":
            found = [halved(config, "rollouts.max_concurrent", LEAST // 8), *found]
        found += [[{"rollouts.release": True}]] if phase != "sampling" and not config.rollouts.release else []
    if not optim.adapter.lora and config.recipe not in WHOLE:
        rank = {"optim.adapter.lora": RANK}
        return [*found, [rank, rank | recompute]]
    return [*found, [{"optim.adapter.bits": 4}]] if optim.adapter.lora and optim.adapter.bits != 4 else found


def halved(config, key: str, least: int) -> Ladder:
    value, found = in_use(config)[key], []
    while (value := value // 2) >= least:
        found.append({key: value})
    return found


def in_use(config) -> dict:
    """The settings, and of tokens and slots as many as there are."""
    on_gpu = config.device.startswith("cuda")
    values = flat_settings(config) | {"optim.tokens_per_pass": config.optim.per_pass(on_gpu)}
    if isinstance(config, RolloutConfig):
        r = config.rollouts
        values["rollouts.max_concurrent"] = min(r.max_concurrent, r.prompts_per_step * r.group_size)
    return values


def change_words(config, changes: Mapping[str, object]) -> str:
    """{"rollouts.max_concurrent": 64} -> "rollouts.max_concurrent=64 instead of 128\""""
    before = in_use(config)

    def one(name: str, value: object) -> str:
        old, text = before[name], f"{name}={str(value).lower() if isinstance(value, bool) else value}"
        return f"{text} instead of {old}" if old and not isinstance(old, bool) else text
    return " and ".join(one(name, value) for name, value in changes.items())

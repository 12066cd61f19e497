"""Advice where a GPU or a machine runs out of memory: in which phase, and which setting to lower by how much,
by the estimate of training/memory against the memory there is."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch

from postgrad.models import Models
from postgrad.models.families import Config
from postgrad.recipes.base import RunConfig, TrainConfig
from postgrad.recipes.defaults import FREE, RANK, WHOLE, memory_needs
from postgrad.recipes.rollouts import RolloutConfig
from postgrad.system.settings import flat_settings, replace_settings, setting_text
from postgrad.training.memory import GB, Memory
from postgrad.training.oom import OutOfMemory

LEAST = 64  # tokens of a pass, and an eighth of it concurrent replies: below, fewer save next to nothing
Changes = dict[str, object]
Ladder = list[Changes]  # each saves more than the one before


@contextmanager
def memory_advice(config: TrainConfig, models: Models) -> Iterator[None]:
    """Turns OutOfMemory in its block into one sentence of advice."""
    on_gpu = config.device.startswith("cuda")
    room = 0.0 if on_gpu else available(config.device)  # before: what ran out is held until its error is gone
    try:
        yield
    except OutOfMemory as error:
        shape = getattr(models.policy, "config", None)
        room = available(config.device) if on_gpu else room
        raise ValueError(advice(config, shape, error.phase, room)) from error


def available(device: str) -> float:
    """Bytes of a GPU that other processes leave to this one; of a machine, those it has not taken yet."""
    if not device.startswith("cuda"):
        page, (limit, _) = os.sysconf("SC_PAGE_SIZE"), resource.getrlimit(resource.RLIMIT_AS)
        sizes = Path("/proc/self/statm")
        mapped, held = map(int, sizes.read_text().split()[:2] if sizes.exists() else (0, 0))
        room = page * (os.sysconf("SC_PHYS_PAGES") - held)
        return float(room if limit == resource.RLIM_INFINITY else min(limit - page * mapped, room))
    free, _ = torch.cuda.mem_get_info(torch.device(device))
    return float(free + torch.cuda.memory_reserved(torch.device(device)))


def advice(config: TrainConfig, shape: object, phase: str, memory: float) -> str:
    """A setting fits where it needs at most nine tenths of the memory, and of the estimate of what did not.

    shape: the policy's; not a Config where its architecture runs through transformers. memory: as in
    `available`.
    """
    on_gpu = config.device.startswith("cuda")
    where = (f"{'the GPU' if on_gpu else 'this machine'} ran out of memory in {phase}, with "
             f"{memory / GB:.0f} GB for this run")
    larger = "a larger GPU" if on_gpu else "a machine with more memory"
    if not isinstance(shape, Config) or not isinstance(config, RunConfig):
        half = halved(config, "optim.tokens_per_pass", LEAST)[:1]
        fewer = [change_words(config, changes) for changes in half]
        fewer += [] if config.optim.recompute else ["recompute=true"]
        fewer += [] if config.optim.adapter.lora else [f"lora={RANK}"]
        return f"{where}: " + (f"set {', or '.join(fewer)}." if fewer
                               else f"take a smaller model or {larger}.")
    needed = phase_bytes(memory_needs(config, shape), phase)
    room = (1 - FREE) * min(memory, needed)
    proposals = []
    for ladder in ladders(config, phase):
        sizes = ((phase_bytes(memory_needs(replace_settings(config, changes), shape), phase), changes)
                 for changes in ladder)
        proposals += [f"{change_words(config, changes)} (about {size / GB:.1f} GB)"
                      for size, changes in sizes if size <= room][:1]
    need = f"{where}, where it needs about {needed / GB:.1f} GB"
    if not proposals:
        return (f"{need}: no setting brings it to {room / GB:.1f} GB; take a smaller model"
                + (f", {larger}, or several with shard=true." if on_gpu else f" or {larger}."))
    return f"{need}: set {', or '.join(proposals[:2])}."


def phase_bytes(needed: Memory, phase: str) -> float:
    return needed.sampling if phase == "sampling" else needed.updating


def ladders(config: RunConfig, phase: str) -> list[Ladder]:
    """Ways to need less in a phase, those that change the result least first."""
    optim, recompute = config.optim, Changes({"optim.recompute": True})
    passes = halved(config, "optim.tokens_per_pass", LEAST)
    ways = [passes, [] if optim.recompute else [recompute, *(recompute | changes for changes in passes)]]
    if isinstance(config, RolloutConfig):
        if phase == "sampling":
            ways = [halved(config, "rollouts.max_concurrent", LEAST // 8), *ways]
        elif not config.rollouts.release:
            ways.append([{"rollouts.release": True}])
    if not optim.adapter.lora and config.recipe not in WHOLE:
        rank = Changes({"optim.adapter.lora": RANK})
        ways.append([rank, rank | recompute])
    elif optim.adapter.lora and optim.adapter.bits != 4:
        ways.append([{"optim.adapter.bits": 4}])
    return ways


def halved(config: TrainConfig, key: str, least: int) -> Ladder:
    value = limits_in_use(config)[key]
    return [{key: value >> i} for i in range(1, value.bit_length()) if value >> i >= least]


def limits_in_use(config: TrainConfig) -> dict[str, int]:
    """The tokens of a pass, and the concurrent replies, as many as there are."""
    limits = {"optim.tokens_per_pass": config.optim.per_pass(config.device.startswith("cuda"))}
    if isinstance(config, RolloutConfig):
        r = config.rollouts
        limits["rollouts.max_concurrent"] = min(r.max_concurrent, r.prompts_per_step * r.group_size)
    return limits


def change_words(config: TrainConfig, changes: Mapping[str, object]) -> str:
    """{"rollouts.max_concurrent": 64} -> "rollouts.max_concurrent=64 instead of 128\""""
    before = flat_settings(config) | limits_in_use(config)
    return " and ".join(
        f"{name}={setting_text(value)}"
        + (f" instead of {before[name]}" if before[name] and not isinstance(before[name], bool) else "")
        for name, value in changes.items())

"""Samplers by name: FILE.py, FILE.py:NAME, or a name that a plugin registered."""

from __future__ import annotations

from collections.abc import Callable

import torch

from postgrad.models.chat import Chat
from postgrad.sampling import Sampler
from postgrad.system.plugins import Registry, is_file_spec, load_from_file

SamplerFactory = Callable[[torch.nn.Module, Chat], Sampler]  # e.g. a class made of (policy, chat)
SAMPLERS: Registry[SamplerFactory] = Registry("sampler", frozenset({"vllm"}))


def register_sampler(name: str, factory: SamplerFactory) -> SamplerFactory:
    """`sampler=NAME` makes its sampler by factory(policy, chat), for as long as the process lives."""
    return SAMPLERS.register(name, factory)


def is_sampler_name(name: str) -> bool:
    return is_file_spec(name) or name in SAMPLERS


def make_sampler(named: Sampler | str, policy: torch.nn.Module, chat: Chat) -> Sampler:
    """An object as it is; a name's factory called with the policy that is trained and its chat template."""
    if not isinstance(named, str):
        return named
    made = load_from_file(named, "sampler") if is_file_spec(named) else SAMPLERS.find(named)
    if not isinstance(made, type) and isinstance(made, Sampler):
        return made
    if not callable(made):
        raise ValueError(f"sampler={named} is {type(made).__name__}: define a class or a function of "
                         "(policy, chat), or an object with a method sample(prompts, n, sampling, seed).")
    sampler = made(policy, chat)
    if not isinstance(sampler, Sampler):
        raise ValueError(f"sampler={named} makes {type(sampler).__name__}, which has no method "
                         "sample(prompts, n, sampling, seed).")
    return sampler

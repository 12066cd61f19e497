"""Prompts in, rollouts out: what a sampler is (base), the fast engine (local), a test double (scripted)."""

from postgrad.sampler.base import Sampler, Sampling
from postgrad.sampler.local import LocalSampler
from postgrad.sampler.scripted import ScriptedSampler

__all__ = ["LocalSampler", "Sampler", "Sampling", "ScriptedSampler"]

"""Prompts in, rollouts out: what a sampler is (base), the fast engine (local), a test double (scripted),
how far it is (counted)."""

from postgrad.sampler.base import Sampler, Sampling
from postgrad.sampler.counted import Track, counted
from postgrad.sampler.local import LocalSampler
from postgrad.sampler.scripted import ScriptedSampler

__all__ = ["LocalSampler", "Sampler", "Sampling", "ScriptedSampler", "Track", "counted"]

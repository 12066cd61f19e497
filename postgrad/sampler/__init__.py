"""Prompts in, rollouts out: what a sampler is (base), the fast engine (local), a test double (scripted),
rows that come and go (continuous), how far it is (counted)."""

from postgrad.sampler.base import Sampler, Sampling
from postgrad.sampler.continuous import Slots
from postgrad.sampler.counted import Track, counted
from postgrad.sampler.local import LocalSampler
from postgrad.sampler.request import Chosen, Request, Row
from postgrad.sampler.scripted import ScriptedSampler

__all__ = ["Chosen", "LocalSampler", "Request", "Row", "Sampler", "Sampling", "ScriptedSampler", "Slots",
           "Track", "counted"]

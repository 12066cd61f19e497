"""Prompts in, rollouts out: what a sampler is (base), the fast engine (local), samplers behind addresses
(served), a test double (scripted), rows that come and go (continuous), how far it is (counted)."""

from postgrad.sampler.base import Sampler, Sampling
from postgrad.sampler.continuous import Slots
from postgrad.sampler.counted import Track, counted
from postgrad.sampler.local import LocalSampler
from postgrad.sampler.request import Chosen, Request, Row
from postgrad.sampler.rows import RowSampler
from postgrad.sampler.scripted import ScriptedSampler
from postgrad.sampler.served import ServedSampler, Weights
from postgrad.sampler.wire import SamplerFault

__all__ = ["Chosen", "LocalSampler", "Request", "Row", "RowSampler", "Sampler", "SamplerFault", "Sampling",
           "ScriptedSampler", "ServedSampler", "Slots", "Track", "Weights", "counted"]

"""Prompts in, rollouts out: what a sampler is (base), the fast engine (local), samplers behind addresses
(served), a test double (scripted), rows that come and go (continuous), how far it is (counted)."""

from postgrad.sampling.base import Sampler, Sampling
from postgrad.sampling.continuous import Slots
from postgrad.sampling.counted import Track, counted
from postgrad.sampling.local import LocalSampler
from postgrad.sampling.request import Chosen, Request, Row
from postgrad.sampling.rows import RowSampler
from postgrad.sampling.scripted import ScriptedSampler
from postgrad.sampling.served import ServedSampler, Weights
from postgrad.sampling.wire import SamplerFault

__all__ = ["Chosen", "LocalSampler", "Request", "Row", "RowSampler", "Sampler", "SamplerFault", "Sampling",
           "ScriptedSampler", "ServedSampler", "Slots", "Track", "Weights", "counted"]

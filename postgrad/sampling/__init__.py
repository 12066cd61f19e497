"""Prompts in, rollouts out.

sampler        what a sampler needs of a model, one that takes over weights, and a test double
local          the sampler in this process
remote         samplers behind addresses; vllm_engine: vLLM in this process
request_batch  the decode loop, for collections and for requests that come and go
sequences      what it takes and gives; drawing: tokens from logits
scheduler      continuous batching: slots, prompt cache, queue
"""

from postgrad.records import Sampler, Sampling
from postgrad.sampling.local import LocalSampler
from postgrad.sampling.remote import RemoteSampler, SamplerFault, WeightVersion
from postgrad.sampling.request_batch import RequestBatch
from postgrad.sampling.sampler import PolicySampler, ScriptedSampler
from postgrad.sampling.sequences import Request, RequestSequence, SampledToken
from postgrad.sampling.token_sampler import TokenSampler

__all__ = ["LocalSampler", "PolicySampler", "RemoteSampler", "Request", "RequestBatch", "RequestSequence",
           "SampledToken", "Sampler", "SamplerFault", "Sampling", "ScriptedSampler", "TokenSampler",
           "WeightVersion"]

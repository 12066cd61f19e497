"""FSDP2: weights, gradients and optimizer state are sharded over the ranks; a layer is gathered while it is
computed.

Gradients are summed over the ranks, never averaged: the weights of a step are fixed for all of it. An adapter
is replicated, and the optimizer sums its gradients; the model under it is sharded. For sampling every rank
gathers a full copy of the policy and frees it before training. A reward model is replicated: each rank asks
it about its own samples. Left out on purpose: models in 4 bits, and architectures that run through
transformers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar
from weakref import WeakSet

import torch

from postgrad.models import Models
from postgrad.models.decoder import Decoder
from postgrad.models.engine import Engine
from postgrad.models.experts import NO_SHARDS
from postgrad.models.heads import ScalarModel
from postgrad.models.lora import Adapted
from postgrad.models.nf4 import Linear4
from postgrad.models.weights import full_tensor

R = TypeVar("R")
M_MMAP_THRESHOLD = -3  # mallopt's parameter: from how many bytes on an allocation is mapped by itself
# the methods that are called on a model from outside: its weights are gathered there
FORWARDS = {Decoder: ("states", "logp"), ScalarModel: ("scores", "token_scores")}


def shard(models: Models, half: bool) -> None:
    """Shards the trained models, the reference and the teacher, layer by layer. half: they compute in
    bfloat16; trained weights stay float32."""
    for model in filter(None, (models.policy, models.reference, models.critic, models.teacher)):
        body = model.body if isinstance(model, ScalarModel) else model
        decoder = body.body if isinstance(body, Adapted) else body
        if not isinstance(decoder, Decoder) or any(isinstance(m, Linear4) for m in decoder.modules()):
            raise ValueError("shard=true divides our own decoders, and neither a model in 4 bits (bits=4) "
                             "nor an architecture that runs through transformers: leave shard out.")
        if decoder.config.architecture.experts:
            raise ValueError(NO_SHARDS)
        shard_decoder(decoder, half)
        if model is not body and body is decoder:
            shard_module(model, half, FORWARDS[ScalarModel])
        if model is body is models.policy:
            body.copy = FullCopy(body, decoder, torch.bfloat16 if half else decoder.head.dtype)


def shard_decoder(decoder: Decoder, half: bool) -> None:
    """Shards a decoder layer by layer, also one on the meta device, whose weights are read later; one that is
    sharded already stays as it is."""
    if not hasattr(decoder, "reshard"):
        if not torch.cuda.is_available():
            return_memory()
        for layer in decoder.model.layers:
            shard_module(layer.mlp, half)  # by itself: less is gathered at once
            shard_module(layer, half)
        shard_module(decoder, half, FORWARDS[Decoder])


def return_memory() -> None:
    """Has glibc return freed tensors to the system. It keeps allocations of up to 32 MB to itself, and
    layers that are gathered and freed fragment them."""
    try:
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 2**20)
    except (OSError, AttributeError):
        return  # another libc


def shard_module(module: Any, half: bool, forwards: tuple[str, ...] = ()) -> None:
    """Shards the weights of a module that no submodule has sharded; they are gathered in its forwards."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if half else \
        MixedPrecisionPolicy()
    fully_shard(module, mp_policy=policy)
    module.set_gradient_divide_factor(1.0)
    module.set_force_sum_reduction_for_comms(True)
    if not torch.cuda.is_available():  # the layer before cannot be gathered meanwhile
        module.set_modules_to_backward_prefetch([module])
    inside: list[str] = []
    for name in forwards:
        plain = getattr(module, name)
        register_fsdp_forward_method(module, name)
        setattr(module, name, partial(outermost, inside, plain, getattr(module, name)))


def outermost(inside: list[str], plain: Callable[..., R], gathered: Callable[..., R], *args: Any,
              **options: Any) -> R:
    """Calls a method with gathered weights; from inside another such method, as it is."""
    if inside:
        return plain(*args, **options)
    inside.append(plain.__name__)
    try:
        return gathered(*args, **options)
    finally:
        inside.pop()


class FullCopy:
    """A full copy of a sharded language model, its adapter merged, empty but while it is sampled from."""

    def __init__(self, sharded: Decoder | Adapted, decoder: Decoder, dtype: torch.dtype):
        device = sharded.head.device
        with torch.device("meta"):
            self.model = Decoder(decoder.config).requires_grad_(False)
        for module in self.model.modules():
            for name, _ in list(module.named_parameters(recurse=False)):
                empty = torch.empty(0, dtype=dtype, device=device)
                setattr(module, name, torch.nn.Parameter(empty, requires_grad=False))
        self.sharded = [sharded]  # in a list: a module would take it for a submodule
        self.engines: WeakSet[Engine] = WeakSet()  # those that a sampler still has

    def engine(self, **sizes: Any) -> Engine:
        engine = Engine(self.model, **sizes)
        self.engines.add(engine)
        return engine

    @torch.no_grad()
    def fill(self) -> None:
        parts = self.sharded[0].merged()
        for name, p in self.model.named_parameters():
            p.data = full_tensor(parts[name].detach()).to(p.dtype, copy=True)

    def empty(self) -> None:
        for p in self.model.parameters():
            p.data = p.data.new_empty(0)
        for engine in self.engines:
            engine.weights.clear()
            engine.panels.clear()


@contextmanager
def unshard(models: Models) -> Iterator[None]:
    """A block in which the policy can be sampled from. Collective: every rank enters it."""
    copy = getattr(models.policy, "copy", None)
    if copy is None:
        yield
        return
    copy.fill()
    try:
        yield
    finally:
        copy.empty()

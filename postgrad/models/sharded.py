"""Models whose weights, gradients and optimizer state are divided among the ranks (FSDP2): each rank keeps
its part of every tensor, and a layer is whole while it is computed.

Gradients are summed over the ranks, never averaged: the weights of a step are fixed for all of it. For
sampling every rank has a whole copy of the policy, brought together at one moment and let go before training.
A reward model stays whole: each rank asks it about its own samples. Left out on purpose: adapters.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from postgrad.models import Models
from postgrad.models.decoder import Decoder
from postgrad.models.engine import Engine
from postgrad.models.heads import ScalarModel

# what is called on a model from outside, and so where its weights are brought together
FORWARDS = {Decoder: ("logp",), ScalarModel: ("scores", "token_scores")}


def shard(models: Models, half: bool) -> None:
    """Divides those that are trained, the reference and the teacher, layer by layer. half: they compute in
    bfloat16; what is trained stays float32."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if half else \
        MixedPrecisionPolicy()
    for model in filter(None, (models.policy, models.reference, models.critic, models.teacher)):
        kind = next((kind for kind in FORWARDS if isinstance(model, kind)), None)
        body = model.body if isinstance(model, ScalarModel) else model
        if kind is None or not isinstance(body, Decoder):
            raise ValueError("shard=true divides our own decoders with all their weights trained: leave it "
                             "out with adapters (lora) and with architectures that run through transformers.")
        if model is models.policy:
            body.copy = Copy(body, torch.bfloat16 if half else body.head.dtype)
        for layer in body.model.layers:
            summed(fully_shard(layer, mp_policy=policy))
        if body is not model:
            summed(fully_shard(body, mp_policy=policy))
            register_fsdp_forward_method(body, "states")
        summed(fully_shard(model, mp_policy=policy))
        for name in FORWARDS[kind]:
            register_fsdp_forward_method(model, name)


def summed(module: Any) -> None:
    module.set_gradient_divide_factor(1.0)
    module.set_force_sum_reduction_for_comms(True)


class Copy:
    """A whole copy of a decoder that is divided, empty but while it is sampled from."""

    def __init__(self, divided: Decoder, dtype: torch.dtype):
        device = divided.head.device
        with torch.device("meta"):
            self.model = Decoder(divided.config).requires_grad_(False)
        self.model._apply(lambda x: torch.empty(0, dtype=dtype, device=device))
        self.divided, self.engines = [divided], []  # in a list: a module would take it for a part of itself

    def engine(self, **sizes) -> Engine:
        self.engines.append(Engine(self.model, **sizes))
        return self.engines[-1]

    @torch.no_grad()
    def fill(self) -> None:
        parts = dict(self.divided[0].named_parameters())
        for name, p in self.model.named_parameters():
            p.data = whole(parts[name].detach()).to(p.dtype, copy=True)

    def empty(self) -> None:
        for p in self.model.parameters():
            p.data = p.data.new_empty(0)
        self.engines = self.engines[-1:]  # a sampler that needs a larger one has let the others go
        for engine in self.engines:
            engine.weights.clear()


@contextmanager
def brought_together(models: Models) -> Iterator[None]:
    """A block in which the policy can be sampled from. Every rank comes to it."""
    copies = [copy for model in models.decoders() if (copy := getattr(model, "copy", None))]
    for copy in copies:
        copy.fill()
    try:
        yield
    finally:
        for copy in copies:
            copy.empty()


def whole(x: Tensor) -> Tensor:
    """All of a tensor that is divided, which every rank has to ask for; another as it is."""
    return x.full_tensor() if hasattr(x, "full_tensor") else x


def divided(x: Tensor, like: Tensor) -> Tensor:
    """A whole tensor, divided as another one is."""
    if not hasattr(like, "full_tensor") or x.shape != like.shape:
        return x
    from torch.distributed.tensor import distribute_tensor
    return distribute_tensor(x.to(like.device), like.device_mesh, like.placements, src_data_rank=None)

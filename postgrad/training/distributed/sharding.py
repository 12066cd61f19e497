"""Models whose weights, gradients and optimizer state are divided among the ranks (FSDP2): each rank keeps
its part of every tensor, and a layer is whole while it is computed.

Gradients are summed over the ranks, never averaged: the weights of a step are fixed for all of it. An adapter
is thin and whole on every rank; the model under it is divided, and the optimizer sums its gradients. For
sampling every rank has a whole copy of the policy, brought together at one moment and let go before training.
A reward model stays whole: each rank asks it about its own samples. Left out on purpose: models in 4 bits,
and architectures that run through transformers.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from weakref import WeakSet

import torch

from postgrad.models import Models
from postgrad.models.decoder import Decoder
from postgrad.models.engine import Engine
from postgrad.models.heads import ScalarModel
from postgrad.models.lora import Adapted
from postgrad.models.nf4 import Linear4
from postgrad.models.weights import full_tensor

M_MMAP_THRESHOLD = -3  # of mallopt: bytes from which on a piece of memory stands by itself
# what is called on a model from outside, and so where its weights are brought together
FORWARDS = {Decoder: ("states", "logp"), ScalarModel: ("scores", "token_scores")}


def shard(models: Models, half: bool) -> None:
    """Divides those that are trained, the reference and the teacher, layer by layer. half: they compute in
    bfloat16; what is trained stays float32."""
    for model in filter(None, (models.policy, models.reference, models.critic, models.teacher)):
        body = model.body if isinstance(model, ScalarModel) else model
        decoder = body.body if isinstance(body, Adapted) else body
        if not isinstance(decoder, Decoder) or any(isinstance(m, Linear4) for m in decoder.modules()):
            raise ValueError("shard=true divides our own decoders, and neither a model in 4 bits (bits=4) "
                             "nor an architecture that runs through transformers: leave shard out.")
        shard_decoder(decoder, half)
        if model is not body and body is decoder:
            divided_whole(model, half, FORWARDS[ScalarModel])
        if model is body is models.policy:
            body.copy = Copy(body, torch.bfloat16 if half else decoder.head.dtype)


def shard_decoder(decoder: Decoder, half: bool) -> None:
    """Of every weight this rank's part, layer by layer; one whose weights are not read yet (on the meta
    device) has parts to read. A decoder that is divided stays so."""
    if not hasattr(decoder, "reshard"):
        if not torch.cuda.is_available():
            return_memory()
        for layer in decoder.model.layers:
            divided_whole(layer.mlp, half)  # by itself: what is brought together at once is smaller
            divided_whole(layer, half)
        divided_whole(decoder, half, FORWARDS[Decoder])


def return_memory() -> None:
    """Tensors in main memory are given back to the system when they are gone. glibc keeps pieces of up to
    32 MB to itself, and layers that are brought together and let go leave more and more holes there."""
    try:
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, 2**20)
    except (OSError, AttributeError):
        return  # another libc


def divided_whole(module: Any, half: bool, forwards: tuple[str, ...] = ()) -> None:
    """What no part of the module has divided already, brought together at once where one of its forwards is
    called."""
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32) if half else \
        MixedPrecisionPolicy()
    fully_shard(module, mp_policy=policy)
    module.set_gradient_divide_factor(1.0)
    module.set_force_sum_reduction_for_comms(True)
    if not torch.cuda.is_available():  # the layer before cannot be brought together meanwhile
        module.set_modules_to_backward_prefetch([module])
    inside: list[str] = []
    for name in forwards:
        plain = getattr(module, name)
        register_fsdp_forward_method(module, name)
        setattr(module, name, partial(outermost, inside, plain, getattr(module, name)))


def outermost(inside: list[str], plain: Callable, gathered: Callable, *args, **options) -> Any:
    """A method with the weights brought together, unless another method has done so and calls this one."""
    if inside:
        return plain(*args, **options)
    inside.append(plain.__name__)
    try:
        return gathered(*args, **options)
    finally:
        inside.pop()


class Copy:
    """A whole copy of a language model that is divided, its adapter merged, empty but while it is sampled
    from."""

    def __init__(self, divided: Decoder | Adapted, dtype: torch.dtype):
        device = divided.head.device
        with torch.device("meta"):
            self.model = Decoder(divided.config).requires_grad_(False)
        self.model._apply(lambda x: torch.empty(0, dtype=dtype, device=device))
        self.divided = [divided]  # in a list: a module would take it for a part of itself
        self.engines: WeakSet[Engine] = WeakSet()  # those that a sampler still has

    def engine(self, **sizes) -> Engine:
        made = Engine(self.model, **sizes)
        self.engines.add(made)
        return made

    @torch.no_grad()
    def fill(self) -> None:
        parts = self.divided[0].merged()
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
    """A block in which the policy can be sampled from. Every rank comes to it."""
    copy = getattr(models.policy, "copy", None)
    if copy is None:
        yield
        return
    copy.fill()
    try:
        yield
    finally:
        copy.empty()

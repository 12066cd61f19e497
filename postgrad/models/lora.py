"""Low-rank adapters: W x + (alpha / rank) B A x with W frozen (Hu et al. 2021, arXiv:2106.09685).

One body can wear several adapters, one at a time or none: policy, critic and reward model are three of them, and the reference
is the body alone. So four models cost one set of weights and a few thin matrices each.
"""

from __future__ import annotations

from contextlib import contextmanager

import torch
from torch import Tensor, nn

from postgrad.models.decoder import Decoder
from postgrad.models.engine import Engine

TARGETS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class Adapter(nn.Module):
    """A and B for each linear layer of a body whose name is in targets. B starts at zero, so at first nothing is changed."""

    def __init__(self, body: nn.Module, *, rank: int, generator: torch.Generator, alpha: float | None = None, targets=TARGETS):
        super().__init__()
        if rank < 1:
            raise ValueError(f"LoRA rank is {rank}: it must be at least 1.")
        layers = {path: m for path, m in body.named_modules() if path.split(".")[-1] in targets and isinstance(m, nn.Linear)}
        if not layers:
            raise ValueError(f"no linear layer is named {' or '.join(targets)}: name layers that the model has.")
        self.rank, self.alpha = rank, 2.0 * rank if alpha is None else alpha
        self.A, self.B = nn.ParameterDict(), nn.ParameterDict()
        for path, layer in layers.items():
            w = layer.weight
            a = torch.randn(rank, layer.in_features, generator=generator) / layer.in_features**0.5
            self.A[key(path)] = nn.Parameter(a.to(w.device, w.dtype))
            self.B[key(path)] = nn.Parameter(w.new_zeros(layer.out_features, rank))

    @property
    def scale(self) -> float:
        return self.alpha / self.rank

    def update(self, path: str) -> Tensor:
        """(alpha / rank) B A: what merging adds to the layer's weight."""
        return self.scale * (self.B[key(path)] @ self.A[key(path)])


def key(path: str) -> str:
    """A layer's path as the name of a parameter, which may hold no dot."""
    return path.replace(".", "/")


class Adapted(nn.Module):
    """A decoder seen through an adapter, or through none. Its state is the adapter's alone: the body is everybody's."""

    def __init__(self, body: Decoder, adapter: Adapter | None):
        super().__init__()
        self.adapter, self._shared = adapter, (body.requires_grad_(False),)  # in a tuple: not a part of this module
        if not hasattr(body, "worn"):
            body.worn = None
            for path, layer in body.named_modules():
                if isinstance(layer, nn.Linear):
                    layer.register_forward_hook(_added(body, key(path)))

    @property
    def body(self) -> Decoder:
        return self._shared[0]

    @property
    def config(self):
        return self.body.config

    @property
    def head(self) -> Tensor:
        return self.body.head

    def angles(self, positions: int) -> tuple[Tensor, Tensor]:
        return self.body.angles(positions)

    def engine(self, **room) -> Engine:
        return self.body.engine_for(self, **room)

    @contextmanager
    def worn(self):
        """For as long as the block lasts the body wears this adapter."""
        before, self.body.worn = self.body.worn, self.adapter
        try:
            yield self.body
        finally:
            self.body.worn = before

    def states(self, *args, **options) -> Tensor:
        with self.worn() as body:
            return body.states(*args, **options)

    def hidden(self, *args, **options) -> Tensor:
        with self.worn() as body:
            return body.hidden(*args, **options)

    def logits(self, tokens: Tensor) -> Tensor:
        with self.worn() as body:
            return body.logits(tokens)

    def logp(self, *args, **options) -> tuple[Tensor, Tensor]:
        with self.worn() as body:
            return body.logp(*args, **options)

    def merged(self) -> dict[str, Tensor]:
        """The weights of a plain decoder that says the same."""
        tensors = dict(self.body.state_dict())
        for name in self.adapter.A if self.adapter else ():
            path = name.replace("/", ".")
            tensors[f"{path}.weight"] = tensors[f"{path}.weight"] + self.adapter.update(path).detach()
        return tensors


def _added(body: Decoder, name: str):
    def hook(layer, inputs, output):
        worn = body.worn
        if worn is None or name not in worn.A:
            return output
        x = inputs[0]
        return output + (x @ worn.A[name].T.to(x.dtype) @ worn.B[name].T.to(x.dtype)) * worn.scale
    return hook


def is_adapted(model) -> bool:
    """Whether a model, or the body of a scalar model, is an adapter on a body that it shares."""
    return isinstance(model, Adapted) or isinstance(getattr(model, "body", None), Adapted)

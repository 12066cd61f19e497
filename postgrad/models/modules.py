"""The modules of a decoder's layer, as layer.py describes it, and the two ways in which it computes: half by
half, and joined, for training on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor, nn

from postgrad.models.families import Config
from postgrad.models.layer import MatrixSpec, SublayerSpec, layer_spec


class NormModule(nn.Module):
    """x / rms(x) * weight, in float32 at least."""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x: Tensor, ops: ModuleType) -> Tensor:
        return ops.rms_norm(x, self.weight, self.eps)


class Linear(nn.Linear):
    def forward(self, x: Tensor, ops: ModuleType) -> Tensor:
        return ops.linear(x, self.weight, self.bias)


class Sublayer(nn.Module):
    """The matrices and norms within a half of a layer, by the last part of their names."""

    def __init__(self, half: SublayerSpec, eps: float):
        super().__init__()
        for weight in half.inside:
            module = (Linear(weight.inputs, weight.outputs, bias=weight.bias) if isinstance(weight,
                                                                                            MatrixSpec)
                      else NormModule(weight.size, eps))
            self.add_module(last_name(weight), module)
        self.input_names, self.output_name = [last_name(m) for m in half.inputs], last_name(half.output)

    def read(self, x: Tensor, ops: ModuleType) -> list[Tensor]:
        """What each of the matrices that read x makes of it."""
        return [getattr(self, name)(x, ops) for name in self.input_names]

    def read_joined(self, x: Tensor, ops: ModuleType) -> Tensor:
        """The same side by side, from one product, which takes less time than several by narrower ones."""
        modules = [getattr(self, name) for name in self.input_names]
        biases = [module.bias for module in modules]
        return ops.linear(x, torch.cat([module.weight for module in modules]),
                          None if biases[0] is None else torch.cat(biases))

    @property
    def output(self) -> nn.Module:
        return getattr(self, self.output_name)

    def write(self, x: Tensor, ops: ModuleType) -> Tensor:
        return self.output(x, ops)


class Attention(Sublayer):
    def __init__(self, half: SublayerSpec, eps: float, head_dim: int):
        super().__init__(half, eps)
        self.head_dim, self.norm_names = head_dim, [last_name(norm) for norm in half.inner]
        self.heads = half.inputs[0].outputs // head_dim
        self.head_by_head = all(norm.size == head_dim for norm in half.inner)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, ops: ModuleType) -> tuple[Tensor, Tensor, Tensor]:
        """[N, D] -> queries, keys and values [N, heads, head_dim], queries and keys at their positions."""
        parts = [part.unflatten(1, (-1, self.head_dim)) for part in self.read(x, ops)]
        for i, name in enumerate(self.norm_names):
            norm, y = getattr(self, name), parts[i]
            parts[i] = norm(y, ops) if self.head_by_head else norm(y.flatten(1), ops).view_as(y)
        q, k, v = parts
        return ops.rotate(q, cos, sin), ops.rotate(k, cos, sin), v


class MLP(Sublayer):
    def forward(self, x: Tensor, ops: ModuleType) -> Tensor:
        return self.write(ops.swiglu(*self.read(x, ops)), ops)


class DecoderLayer(nn.Module):
    """Two halves with the attention between them: what a token asks and offers,
    and what it makes of the answer."""

    def __init__(self, c: Config, index: int):
        super().__init__()
        spec, eps = layer_spec(c, index), c.rms_norm_eps
        self.window = spec.window
        before = self.add_norm(spec.attention.before, eps)
        self.self_attn = Attention(spec.attention, eps, c.head_dim)
        self.around_attention = before, self.add_norm(spec.attention.after, eps)
        before = self.add_norm(spec.mlp.before, eps)
        self.mlp = MLP(spec.mlp, eps)
        self.around_mlp = before, self.add_norm(spec.mlp.after, eps)
        self.joins = spec.joins

    def add_norm(self, norm, eps: float) -> str | None:
        """A described norm as a module; -> its name, None where there is none."""
        if norm is None:
            return None
        self.add_module(norm.name, NormModule(norm.size, eps))
        return norm.name

    def normed(self, x: Tensor, name: str | None, ops: ModuleType) -> Tensor:
        return x if name is None else getattr(self, name)(x, ops)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, laid, ops: ModuleType, halves: LayerFunctions,
                keep: Callable[[Tensor, Tensor], None] | None = None) -> Tensor:  # [N, D] -> [N, D]
        """Both halves, as they are or compiled, and the attention over the sequences that `laid` describes;
        keep is shown k and v."""
        joined, attention = halves.joined and self.joins, self.self_attn
        turns = joined and not attention.norm_names
        heads = attention.heads, attention.head_dim
        if turns and keep is None:
            answer = ops.attend_qkv(halves.ask_joined(self, x, ops), cos, sin, laid, *heads, self.window)
        else:
            q, k, v = (ops.rotate_qkv(halves.ask_joined(self, x, ops), cos, sin, *heads) if turns
                       else halves.ask(self, x, cos, sin, ops))
            if keep is not None:
                keep(k, v)
            answer = ops.attention(q, k, v, laid, self.window)
        if joined:
            return ops.add_gated(*halves.take_joined(self, x, answer, ops), self.mlp.output.weight)
        return halves.take(self, x, answer, ops)

    def ask(self, x: Tensor, cos: Tensor, sin: Tensor, ops: ModuleType) -> tuple[Tensor, Tensor, Tensor]:
        before, _ = self.around_attention
        return self.self_attn(self.normed(x, before, ops), cos, sin, ops)

    # [N, D], [N, heads, head_dim] -> [N, D]
    def take(self, x: Tensor, answer: Tensor, ops: ModuleType) -> Tensor:
        (_, after), (before, last) = self.around_attention, self.around_mlp
        x = x + self.normed(self.self_attn.write(answer.flatten(1), ops), after, ops)
        return x + self.normed(self.mlp(self.normed(x, before, ops), ops), last, ops)

    def ask_joined(self, x: Tensor, ops: ModuleType) -> Tensor:
        before, _ = self.around_attention
        return self.self_attn.read_joined(self.normed(x, before, ops), ops)

    def take_joined(self, x: Tensor, answer: Tensor, ops: ModuleType) -> tuple[Tensor, Tensor]:
        """As `take`, up to what gate and up make of it."""
        before, _ = self.around_mlp
        x = x + self.self_attn.write(answer.flatten(1), ops)
        return x, self.mlp.read_joined(self.normed(x, before, ops), ops)


class LayerFunctions(NamedTuple):
    """How the halves of a layer are computed. joined: in training, through kernels of their own where a layer
    has those."""

    ask: Callable = DecoderLayer.ask
    take: Callable = DecoderLayer.take
    ask_joined: Callable = DecoderLayer.ask_joined
    take_joined: Callable = DecoderLayer.take_joined
    joined: bool = False


def last_name(weight) -> str:
    """self_attn.q_proj -> q_proj"""
    return weight.name.split(".")[-1]


@cache
def layer_functions(compiled: bool) -> LayerFunctions:
    """Compiled once for all layers and lengths."""
    if not compiled:
        return LayerFunctions()
    return LayerFunctions(*(torch.compile(half, dynamic=True) for half in LayerFunctions()[:-1]), joined=True)

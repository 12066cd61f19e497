"""The decode step: one new token for each of many rows, with the weights and the KV cache laid out for it.

A prompt's keys and values are cached once, whatever the number of its samples; every row has a slot of its
own for the tokens it generates. The weights are a copy with the projections of queries, keys and values in
one matrix, and gate and up in another; a body in 4 bits is not copied. A layer's operations and their order
are read from its description (layer.py). Where the kernels' fused step supports all layers
(kernels/fused.py), it replaces the step here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Protocol, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from postgrad.maths.packing import Packed, pack, to_device
from postgrad.models.cuda_graphs import GraphedDecoder, PrefillGraphs
from postgrad.models.families import Config
from postgrad.models.graph_capture import capturing
from postgrad.models.kernels import Kernels, kernels_for, plain
from postgrad.models.kernels.cpu import Panels
from postgrad.models.kernels.fused import first_refusal, report_refusal
from postgrad.models.layer import LAYERS, LayerSpec, NormSpec, last_norm, layer_specs, outer_weights
from postgrad.models.nf4 import Linear4
from postgrad.models.weights import full_tensor

PREFILL_TOKENS = 16_384  # of waiting prompts, in one pass
SMALL = 1024  # width of a model that waits for its launches


class WeightUpdates(Protocol):
    def update(self, path: str) -> Tensor | None: ...


class Merged(Mapping[str, Tensor]):
    """The weights of a plain decoder that says what a body and its adapter (or none) say,
    each made when it is asked for."""

    def __init__(self, body: nn.Module, adapter: WeightUpdates | None = None):
        # the parameters themselves, whose data may be exchanged
        self.body, self.adapter, self.plain = body, adapter, body.state_dict(keep_vars=True)
        self.packed = {f"{path}.weight" for path, layer in body.named_modules() if isinstance(layer, Linear4)}

    def __getitem__(self, name: str) -> Tensor:
        path = name.removesuffix(".weight")
        packed = name in self.packed
        layer = self.body.get_submodule(path) if packed else None
        weight = layer.weight if isinstance(layer, Linear4) else self.plain[name].detach()
        update = self.adapter.update(path) if self.adapter and path != name else None
        return weight if update is None else full_tensor(weight) + update.detach()

    def like(self, name: str) -> Tensor:
        """A tensor of the same shape and type as one that need not be made for it."""
        return self[name] if name in self.packed else self.plain[name]

    def __iter__(self) -> Iterator[str]:
        yield from self.plain
        yield from sorted(self.packed)

    def __len__(self) -> int:
        return len(self.plain) + len(self.packed)


class EngineModel(Protocol):
    """A Decoder, or an adapter on one."""

    @property
    def config(self) -> Config: ...

    @property
    def head(self) -> Tensor: ...

    def angles(self, positions: int) -> tuple[Tensor, Tensor]: ...

    def merged(self) -> Merged: ...

    def states(self, tokens: Tensor, packed: Packed, keep: Callable[..., None]) -> Tensor: ...


class Engine:
    """rows slots of `new` tokens each, and as many prompts of up to `read` tokens.

    The last slot and prompt are for no one. positions: how many a prompt and a row have together, where that
    is not all that both have places for.
    """

    graphs = True  # on a GPU a step can be captured as a graph

    def __init__(self, model: EngineModel, *, rows: int, prompts: int, read: int, new: int,
                 positions: int | None = None):
        self.model, self.c = model, model.config
        self.device = model.head.device
        self.dtype = model.head.dtype
        self.ops = kernels_for(self.device, self.dtype)
        self.read, self.new, self.rows, self.prompts = read, new, rows, prompts
        self.layers, self.last_norm = layer_specs(self.c), last_norm(self.c)
        self.fuses = self.fused_step_supported()
        self.k, self.v, self.k_prompt, self.v_prompt = (
            torch.zeros(len(self.layers), count + 1, self.c.num_key_value_heads, tokens, self.c.head_dim,
                        dtype=self.dtype, device=self.device)
            for count, tokens in ((rows, new), (rows, new), (prompts, read), (prompts, read)))
        self.turn(positions or read + new - 1)
        self.layout = weight_layout(self.c, self.layers)
        self.merged = model.merged()
        self.weights: dict[str, Tensor] = {}
        self.panels: dict[str, Panels] = {}
        self.own = self.ops.packed_names(self) if self.fuses else set()  # the weights kept in panels
        self.keep = partial(store_prompt_kv, self.ops, self.k_prompt, self.v_prompt)
        self.readings = (PrefillGraphs(cast(GraphedDecoder, model), self.keep, min(64, read), prompts)
                         if self.reads_by_graphs else None)
        self.whole: Callable[..., Tensor] | None = None
        self.taking: tuple[list[int], torch.cuda.CUDAGraph] | None = None
        self.refresh()

    def turn(self, positions: int) -> None:
        """The table of angles. Copied: a captured graph reads it, and the model may make a longer one."""
        self.cos, self.sin = (x.to(self.dtype, copy=True) for x in self.model.angles(positions))

    def fused_step_supported(self) -> bool:
        """Whether the kernels' fused step runs these layers; where there is one that does not, the log says
        why."""
        kernel = self.ops.FUSED_STEP
        if kernel is None:
            return False
        reason = first_refusal(kernel, self.layers, self.last_norm, str(self.dtype).removeprefix("torch."),
                               self.device.type)
        if reason:
            report_refusal(kernel, reason)
        return reason is None

    @property
    def reads_by_graphs(self) -> bool:
        """Of a small model on a GPU, whose launches take longer than its kernels; not with an adapter."""
        return (self.device.type == "cuda" and self.dtype != torch.float32 and hasattr(self.model, "run")
                and not hasattr(self.model, "active_adapter") and self.c.hidden_size <= SMALL)

    @property
    def appends(self) -> bool:
        """Whether a step may hold several tokens of one slot, each to see those before it."""
        return self.device.type == "cpu"

    @property
    def independent(self) -> bool:
        """Whether a row of a step has the same bits however few stand beside it."""
        return bool(self.panels)

    def grow(self, *, read: int, new: int, positions: int) -> None:
        """Longer places and slots, with what is in them; before the next step comes a refresh. For an engine
        that appends: graphs would look at the old ones."""
        self.k, self.v = (F.pad(x, (0, 0, 0, new - self.new)) for x in (self.k, self.v))
        self.k_prompt, self.v_prompt = (F.pad(x, (0, 0, 0, read - self.read))
                                        for x in (self.k_prompt, self.v_prompt))
        self.read, self.new = read, new
        self.keep = partial(store_prompt_kv, self.ops, self.k_prompt, self.v_prompt)
        self.turn(positions)

    @torch.no_grad()
    def refresh(self, often: bool = False) -> None:
        """Takes the model's weights as they are now, but for matrices in 4 bits: those are never copied.
        often: on a GPU by a graph, where it is done again and again."""
        plain = not (self.merged.adapter or self.merged.packed)
        again = plain and self.weights.keys() | self.own >= self.layout.keys()
        graph = again and often and self.device.type == "cuda"
        where = [x.data_ptr() for x in self.merged.plain.values()] if graph else None
        if self.taking and self.taking[0] == where:
            return self.taking[1].replay()
        if again:
            self.take_again()
        else:
            self.take()
        self.whole = self.ops.fused_step(self) if self.fuses and not self.merged.packed else None
        self.taking = (where, self.capture_taking()) if where else None

    def take(self) -> None:
        own = set() if self.merged.packed else self.own
        for name, parts in self.layout.items():
            if name in own or not self.merged.packed.isdisjoint(parts):
                continue
            if name in self.weights and len(parts) > 1:
                torch.cat([self.merged[part] for part in parts], out=self.weights[name])
                continue
            fresh = fuse_weights(self.merged, parts)
            mine = self.weights.setdefault(name, fresh.to(self.dtype))
            if mine.data_ptr() != fresh.data_ptr():  # the very tensor that is trained is always fresh
                mine.copy_(fresh)

    def take_again(self) -> None:
        """The same of a plain decoder, by the parameters alone: on a GPU in a few launches."""
        copies: list[Tensor] = []
        fresh: list[Tensor] = []
        for name, mine in self.weights.items():
            params = [self.merged.plain[part] for part in self.layout[name]]
            if mine.data_ptr() != params[0].data_ptr():
                copies += mine.split([len(p) for p in params]) if len(params) > 1 else [mine]
                fresh += params
        if copies:
            torch._foreach_copy_(copies, fresh)

    def capture_taking(self) -> torch.cuda.CUDAGraph:
        """All that a plain decoder's weights are taken by, as one graph: for as long as they stand where they
        do, the GPU need not wait for some hundred launches before it samples."""
        graph = torch.cuda.CUDAGraph()
        with capturing(tidy=False), torch.cuda.graph(graph):
            self.take_again()
            if self.fuses:
                self.ops.fused_step(self)
        return graph

    def weight(self, name: str) -> Tensor | None:
        """As it was taken; of a body in 4 bits unpacked and merged at every step,
        which saves the copy and costs time."""
        if name in self.weights or name not in self.layout:
            return self.weights.get(name)
        return fuse_weights(self.merged, self.layout[name]).to(self.dtype)

    def matrix(self, name: str) -> Tensor:
        weight = self.weight(name)
        assert weight is not None, f"no weight {name}"
        return weight

    @torch.no_grad()
    def prefill(self, tokens: Tensor, lengths: Tensor, places: list[int]) -> Tensor:  # [P, T], [P] -> [P, D]
        """Reads prompts into their places; returns the state from which each one's first
        new token is chosen."""
        states = self.readings(tokens, lengths, places) if self.readings else None
        if states is None:
            packed = pack(lengths, tokens).to(self.device)
            place = to_device(torch.from_numpy(np.repeat(places, lengths.numpy())), self.device)
            states = self.model.states(to_device(tokens, self.device), packed,
                                       partial(self.keep, place, packed.positions))
        return states[to_device(lengths.cumsum(0) - 1, self.device)]

    def seat(self, slot: Tensor, prompt: Tensor) -> None:
        """Rows begin in these slots, after the prompts in these places: a step reads a prompt where it is."""

    def uncaptured(self, error: RuntimeError) -> None:
        """A step that could not be captured as a graph: of these kernels every one can."""
        raise error

    def logits(self, hidden: Tensor) -> Tensor:  # [R, D] -> [R, V], in float32 at least
        if "head" in self.panels:
            return self.panels["head"].product(hidden)
        head = self.matrix("head")
        if hidden.is_cuda and hidden.dtype == torch.bfloat16:
            return torch.mm(hidden, head.T, out_dtype=torch.float32)
        return F.linear(hidden, head).to(torch.promote_types(hidden.dtype, torch.float32))

    @torch.no_grad()
    def step(self, token: Tensor, at: Tensor, slot: Tensor, prompt: Tensor, prompt_length: Tensor,
             longest: int | None = None) -> Tensor:
        """Token number `at` of each row, written to its slot -> the state [R, D] from which the
        next one is chosen. longest: tokens of the longest row, which these kernels need not be told."""
        if self.whole:
            return self.whole(token, at, slot, prompt, prompt_length)
        w, bias, ops, rows = self.matrix, self.weight, self.ops, (at, slot, prompt, prompt_length)
        x, delta = w("embed")[token], None
        for i, layer in enumerate(self.layers):
            y = self.enter(x, delta, layer.attention.before, i)
            qkv = F.linear(y, w(f"{i}.qkv"), bias(f"{i}.qkv_bias"))
            if layer.attention.inner:
                qkv = self.norm_heads(qkv, i, layer.attention.inner)
            y = ops.step_attention(qkv, self.cos, self.sin, *rows, self.k_prompt[i], self.v_prompt[i],
                                   self.k[i], self.v[i], layer.window)
            delta = self.leave(F.linear(y, w(f"{i}.o"), bias(f"{i}.o_bias")), layer.attention.after, i)
            y = self.enter(x, delta, layer.mlp.before, i)
            y = F.linear(y, w(f"{i}.gate_up"), bias(f"{i}.gate_up_bias"))
            y = (ops.swiglu_joined(y) if layer.activation == "silu"
                 else plain.gated(layer.activation, *y.chunk(2, dim=1)))
            delta = self.leave(F.linear(y, w(f"{i}.down"), bias(f"{i}.down_bias")), layer.mlp.after, i)
        return self.add_norm(x, delta, self.last_norm, "norm")

    def enter(self, x: Tensor, delta: Tensor | None, norm: NormSpec | None, layer: int) -> Tensor:  # [R, D]
        """x += delta in place -> the input of a sublayer."""
        if norm is not None:
            return self.add_norm(x, delta, norm, f"{layer}.{norm.short}")
        return x if delta is None else x.add_(delta)

    def leave(self, delta: Tensor, norm: NormSpec | None, layer: int) -> Tensor:  # [R, D]
        """What a sublayer adds to x."""
        return delta if norm is None else self.add_norm(delta, None, norm, f"{layer}.{norm.short}")

    def add_norm(self, x: Tensor, delta: Tensor | None, norm: NormSpec, name: str) -> Tensor:  # [R, D]
        """x += delta in place, and its norm."""
        if norm.is_plain_rms:
            return self.ops.add_norm(x, delta, self.matrix(name), self.c.rms_norm_eps)
        return self.norm(x if delta is None else x.add_(delta), norm, name)

    def norm(self, x: Tensor, norm: NormSpec, name: str) -> Tensor:
        return plain.norm_by_kind(x, norm, self.weight(name), self.weight(f"{name}_bias"),
                                  self.c.rms_norm_eps)

    def norm_heads(self, qkv: Tensor, layer: int, norms: tuple[NormSpec, ...]) -> Tensor:
        """Norms of queries and keys: per head (Qwen3), or over all heads (OLMo 2)."""
        H, KV, size = self.c.num_attention_heads, self.c.num_key_value_heads, self.c.head_dim
        *parts, v = qkv.view(len(qkv), -1, size).split([H, KV, KV], dim=1)
        for i, norm in enumerate(norms):
            x, name = parts[i], f"{layer}.{norm.short}"
            parts[i] = (self.norm(x, norm, name) if norm.size == size
                        else self.norm(x.flatten(1), norm, name).view_as(x))
        return torch.cat([*parts, v], dim=1).flatten(1)


def store_prompt_kv(ops: Kernels, k_prompt: Tensor, v_prompt: Tensor, place: Tensor, position: Tensor,
                    layer: int, k: Tensor, v: Tensor) -> None:
    """Keys and values [N, kv, head_dim] of prompts' tokens, to their places in a layer. Not a method: the
    readings have it, and an engine that they would know would not be freed at once."""
    ops.store_kv(k, v, place, position, k_prompt[layer], v_prompt[layer])


def weight_layout(config: Config, layers: list[LayerSpec]) -> dict[str, tuple[str, ...]]:
    """A decoder's weights by short names: those that are applied to the same thing stand together."""
    out: dict[str, tuple[str, ...]] = {}
    for weight in outer_weights(config):
        for part in weight.shapes():
            short = weight.short if part == "weight" else f"{weight.short}_{part}"
            out[short] = (f"{weight.name}.{part}",)
    for i, layer in enumerate(layers):
        for short, names in layer.fused().items():
            out[f"{i}.{short}"] = tuple(f"{LAYERS}.{i}.{name}" for name in names)
    return {"head": out["embed"]} | out  # without a head of its own, the embedding's


def fuse_weights(tensors: Mapping[str, Tensor], names: tuple[str, ...]) -> Tensor:
    return tensors[names[0]] if len(names) == 1 else torch.cat([tensors[name] for name in names])

"""The decode step: one new token for each of many rows, with its own copy of the weights and a KV cache.

A prompt is cached once for all its samples; each row has a slot for the tokens it generates. In the copy q, k
and v are one matrix, gate and up another; a 4-bit body is not copied. Operations and their order follow the
layer's description (layer.py). Where the kernels' fused step supports all layers (kernels/fused.py), it
replaces the step here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Protocol, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from postgrad.maths.packing import Packed, pack, pack_after, to_device
from postgrad.models.cuda_graphs import GraphedDecoder, PrefillGraphs
from postgrad.models.experts import expert_layers, last_routes, mix, route
from postgrad.models.families import AFTER, BEFORE, Config
from postgrad.models.graph_capture import capturing
from postgrad.models.kernels import Kernels, kernels_for, plain
from postgrad.models.kernels.cpu import Panels
from postgrad.models.kernels.fused import GPU_ATTENTION, first_refusal, report_refusal
from postgrad.models.layer import (
    LAYERS,
    LayerSpec,
    NormSpec,
    SublayerSpec,
    embedding_scale,
    last_norm,
    layer_specs,
    logit_cap,
    logit_scale,
    outer_weights,
    rotary_kinds,
)
from postgrad.models.nf4 import Linear4
from postgrad.models.weights import full_tensor

PREFILL_TOKENS = 16_384  # of waiting prompts, in one pass
PAYS = 256    # tokens a layer that prefixes have to save, where a pass after them goes without a graph
SMALL = 1024  # hidden size up to which a model is bound by kernel launches


HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"


class WeightUpdates(Protocol):
    @property
    def has_head(self) -> bool: ...

    def update(self, path: str, weight: Tensor) -> Tensor | None: ...

    def stand_in(self, name: str) -> Tensor | None: ...


class Merged(Mapping[str, Tensor]):
    """A body's weights with its adapter merged in, each computed on access."""

    def __init__(self, body: nn.Module, adapter: WeightUpdates | None = None):
        # the parameters themselves: their data may be replaced
        self.body, self.adapter, self.plain = body, adapter, body.state_dict(keep_vars=True)
        self.packed = {f"{path}.weight" for path, layer in body.named_modules() if isinstance(layer, Linear4)}
        # a head of its own, where the adapter changes one that is tied to the embedding
        self.untied = [HEAD] if adapter and adapter.has_head and HEAD not in self.plain else []

    def __getitem__(self, name: str) -> Tensor:
        if self.adapter and (whole := self.adapter.stand_in(name)) is not None:
            return whole.detach()
        path = name.removesuffix(".weight")
        packed = name in self.packed
        layer = self.body.get_submodule(path) if packed else None
        stored = EMBEDDING if name in self.untied else name
        weight = layer.weight if isinstance(layer, Linear4) else self.plain[stored].detach()
        if self.adapter is None or path == name:
            return weight
        update = self.adapter.update(path, weight)
        return weight if update is None else full_tensor(weight) + update.detach()

    def like(self, name: str) -> Tensor:
        """A tensor of the same shape and dtype, without merging."""
        return self[name] if name in self.packed or name in self.untied else self.plain[name]

    def __iter__(self) -> Iterator[str]:
        yield from self.plain
        yield from sorted(self.packed)
        yield from self.untied

    def __len__(self) -> int:
        return len(self.plain) + len(self.packed) + len(self.untied)


class EngineModel(Protocol):
    """A Decoder, or an adapter on one."""

    @property
    def config(self) -> Config: ...

    @property
    def head(self) -> Tensor: ...

    def angles(self, positions: int) -> tuple[Tensor, Tensor]: ...

    def merged(self) -> Merged: ...

    def states(self, tokens: Tensor, packed: Packed,
               keep: Callable[..., tuple[Tensor, Tensor]]) -> Tensor: ...


class Engine:
    """`rows` slots of `new` tokens each, and `prompts` places of up to `read` tokens. A further slot and
    place are for dummies. positions: the most of prompt and row together, if less than read + new - 1."""

    graphs = True  # on a GPU a step can be captured as a CUDA graph
    extends = True  # a prompt can be prefilled after a prefix that stands in its place

    def __init__(self, model: EngineModel, *, rows: int, prompts: int, read: int, new: int,
                 positions: int | None = None):
        self.model, self.c = model, model.config
        self.device = model.head.device
        self.dtype = model.head.dtype
        self.ops = kernels_for(self.device, self.dtype)
        self.read, self.new, self.rows, self.prompts = read, new, rows, prompts
        self.layers, self.last_norm = layer_specs(self.c), last_norm(self.c)
        self.scales, self.cap, self.rotary = ((embedding_scale(self.c), logit_scale(self.c)),
                                              logit_cap(self.c), rotary_kinds(self.c))
        self.attend = self.step_attention()
        self.mixed = [i for i, layer in enumerate(self.layers) if layer.mlp.router is not None]
        self.graphs = not self.mixed  # experts are as many as their tokens are
        self.fuses = self.fused_step_supported()
        self.k, self.v, self.k_prompt, self.v_prompt = (
            torch.zeros(len(self.layers), count + 1, self.c.num_key_value_heads, tokens, self.c.head_dim,
                        dtype=self.dtype, device=self.device)
            for count, tokens in ((rows, new), (rows, new), (prompts, read), (prompts, read)))
        # the experts of each token, plus 1 (experts.py)
        active = max((layer.mlp.active for layer in self.layers), default=0)
        self.routes, self.routes_prompt = (
            torch.zeros(count + 1, tokens, len(self.mixed), active, dtype=torch.int16, device=self.device)
            for count, tokens in ((rows, new), (prompts, read)))
        self.turn(positions or read + new - 1)
        self.merged = model.merged()
        self.layout = weight_layout(self.c, self.layers)
        self.offset = self.last_norm.offset  # of all norms' weights
        self.shifted = {name for name in self.layout
                        if name.endswith(("norm", *BEFORE, *AFTER)) and self.offset}
        if self.merged.untied:
            self.layout["head"] = (HEAD,)
        self.weights: dict[str, Tensor] = {}
        self.panels: dict[str, Panels] = {}
        self.own = self.ops.packed_names(self) if self.fuses else set()  # weights held in panels
        self.keep = partial(store_prompt_kv, self.ops, self.k_prompt, self.v_prompt)
        self.readings = (PrefillGraphs(cast(GraphedDecoder, model), self.keep, min(64, read), prompts)
                         if self.reads_by_graphs else None)
        self.whole: Callable[..., Tensor] | None = None
        self.taking: tuple[list[int], torch.cuda.CUDAGraph] | None = None
        self.refresh()

    def turn(self, positions: int) -> None:
        """Copies the rotary table: a captured graph reads it, and the model may replace its own."""
        self.cos, self.sin = (x.to(self.dtype, copy=True) for x in self.model.angles(positions))

    def fused_step_supported(self) -> bool:
        """Whether the kernels' fused step runs these layers; a refusal is logged."""
        kernel = self.ops.FUSED_STEP
        if kernel is None:
            return False
        reason = first_refusal(kernel, self.layers, self.last_norm, str(self.dtype).removeprefix("torch."),
                               self.device.type)
        if reason:
            report_refusal(kernel, reason)
        return reason is None

    def step_attention(self) -> Callable[..., Tensor]:
        """The kernels' attention, or the plain one where they do not run these layers."""
        kernel = GPU_ATTENTION
        if self.device.type != kernel.device:
            return self.ops.step_attention
        if reason := next(filter(None, map(kernel.supports, self.layers)), None):
            report_refusal(kernel, reason)
        return plain.step_attention if reason else self.ops.step_attention

    def tables(self) -> list[tuple[Tensor, Tensor]]:
        """cos and sin of each layer."""
        at = [self.rotary.index(layer.rotary) for layer in self.layers]
        return [(self.cos[i], self.sin[i]) for i in at]

    def embed(self, token: Tensor) -> Tensor:  # [R] -> [R, D]
        x, (scale, _) = self.matrix("embed")[token], self.scales
        return x if scale == 1 else x * float(torch.tensor(scale, dtype=x.dtype))

    @property
    def reshapes_logits(self) -> bool:
        """Whether logits are more than the head's product: scaled or capped."""
        return self.scales[1] != 1 or self.cap is not None

    @property
    def reads_by_graphs(self) -> bool:
        """Prefill by CUDA graphs: for a small model on a GPU, bound by kernel launches, without adapters."""
        if self.mixed or any(layer.score_cap is not None for layer in self.layers):
            return False
        return (self.device.type == "cuda" and self.dtype != torch.float32 and hasattr(self.model, "run")
                and not hasattr(self.model, "active_adapter") and self.c.hidden_size <= SMALL)

    @property
    def appends(self) -> bool:
        """Whether a step may hold several consecutive tokens of one slot."""
        return self.device.type == "cpu"

    @property
    def least_saved(self) -> int:
        """Tokens that prefixes have to save a pass, to be worth going without a graph."""
        return PAYS * len(self.layers) if self.readings else 0

    @property
    def independent(self) -> bool:
        """Whether a row's bits do not depend on the number of rows; those of a mixture do in prefill, where
        torch multiplies the few rows of an expert."""
        return bool(self.panels) and not self.mixed

    def grow(self, *, read: int, new: int, positions: int) -> None:
        """Lengthens places and slots; a refresh must follow. Only where `appends`: captured graphs would
        read the old tensors."""
        self.k, self.v = (F.pad(x, (0, 0, 0, new - self.new)) for x in (self.k, self.v))
        self.k_prompt, self.v_prompt = (F.pad(x, (0, 0, 0, read - self.read))
                                        for x in (self.k_prompt, self.v_prompt))
        self.routes, self.routes_prompt = (F.pad(x, (0, 0, 0, 0, 0, more)) for x, more in (
            (self.routes, new - self.new), (self.routes_prompt, read - self.read)))
        self.read, self.new = read, new
        self.keep = partial(store_prompt_kv, self.ops, self.k_prompt, self.v_prompt)
        self.turn(positions)

    @torch.no_grad()
    def refresh(self, often: bool = False) -> None:
        """Copies the model's current weights, 4-bit matrices excepted. often: captured as a CUDA graph on a
        GPU."""
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
            fresh = self.shift(name, fuse_weights(self.merged, parts))
            changed = self.fuses and name.endswith((".qkv", ".gate_up"))  # by the fused step, in place
            mine = self.weights.setdefault(name, fresh.to(self.dtype, copy=changed))
            if mine.data_ptr() != fresh.data_ptr():  # not the trained tensor itself
                mine.copy_(fresh)

    def take_again(self) -> None:
        """`take` for a decoder without adapter or 4-bit layers: a few launches on a GPU."""
        copies: list[Tensor] = []
        fresh: list[Tensor] = []
        for name, mine in self.weights.items():
            params = [self.merged.plain[part] for part in self.layout[name]]
            if mine.data_ptr() != params[0].data_ptr():
                copies += mine.split([len(p) for p in params]) if len(params) > 1 else [mine]
                fresh += params
        if copies:
            torch._foreach_copy_(copies, fresh)
        if self.shifted:
            torch._foreach_add_([self.weights[name] for name in sorted(self.shifted)], self.offset)

    def shift(self, name: str, weight: Tensor) -> Tensor:
        """A norm's weight with its offset."""
        return weight + self.offset if name in self.shifted else weight

    def capture_taking(self) -> torch.cuda.CUDAGraph:
        """`take_again` and the fused step's preparation as one graph instead of some hundred launches, valid
        while the parameters stay where they are."""
        graph = torch.cuda.CUDAGraph()
        with capturing(tidy=False), torch.cuda.graph(graph):
            self.take_again()
            if self.fuses:
                self.ops.fused_step(self)
        return graph

    def weight(self, name: str) -> Tensor | None:
        """The copy; of a 4-bit body dequantised and merged at each step, which saves memory and costs
        time."""
        if name in self.weights or name not in self.layout:
            return self.weights.get(name)
        return fuse_weights(self.merged, self.layout[name]).to(self.dtype)

    def matrix(self, name: str) -> Tensor:
        weight = self.weight(name)
        assert weight is not None, f"no weight {name}"
        return weight

    @torch.no_grad()
    def prefill(self, tokens: Tensor, lengths: Tensor, places: list[int],
                begun: list[int] | None = None) -> Tensor:  # [P, T], [P] -> [P, D]
        """Reads prompts into their places -> the state that predicts each one's first new token. begun: first
        tokens of each whose keys and values stand in its place; the others are computed, on a CPU with these
        kernels to the same bits as in a pass over all."""
        after = torch.tensor(begun) if begun and any(begun) else None
        states = self.readings(tokens, lengths, places) if self.readings and after is None else None
        own = lengths if after is None else lengths - after
        if states is None:
            packed = (pack(lengths, tokens) if after is None
                      else pack_after(lengths, after, tokens.shape[1])).to(self.device)
            place = to_device(torch.from_numpy(np.repeat(places, own.numpy())), self.device)
            keep: Callable[..., tuple[Tensor, Tensor]] = partial(self.keep, place, packed.positions)
            if begun and after is not None:
                earlier = np.stack([np.repeat(places, begun), np.concatenate([np.arange(n) for n in begun])])
                keep = partial(add_prefix, keep, self.k_prompt, self.v_prompt,
                               to_device(torch.from_numpy(earlier), self.device))
            states = self.model.states(to_device(tokens, self.device), packed, keep)
            if self.mixed:
                self.routes_prompt[place, packed.positions] = last_routes(expert_layers(self.merged.body))
        return states[to_device(own.cumsum(0) - 1, self.device)]

    def copy_prefix(self, source: int, place: int, count: int) -> None:
        """The first tokens of a place's prompt, into another place."""
        for x in (self.k_prompt, self.v_prompt):
            x[:, place, :, :count] = x[:, source, :, :count]
        self.routes_prompt[place, :count] = self.routes_prompt[source, :count]

    def append_row(self, slot: int, place: int, start: int, count: int) -> None:
        """The first tokens of a row, into a place after so many of a prompt."""
        for into, rows in ((self.k_prompt, self.k), (self.v_prompt, self.v)):
            into[:, place, :, start: start + count] = rows[:, slot, :, :count]
        self.routes_prompt[place, start: start + count] = self.routes[slot, :count]

    def seat(self, slot: Tensor, prompt: Tensor) -> None:
        """Starts rows in these slots; a step reads a prompt in its place."""

    def uncaptured(self, error: RuntimeError) -> None:
        """A step that failed to be captured: a fault, since these kernels never synchronise."""
        raise error

    def logits(self, hidden: Tensor) -> Tensor:  # [R, D] -> [R, V], in float32 at least
        if "head" in self.panels:
            logits = self.panels["head"].product(hidden)
        elif hidden.is_cuda and hidden.dtype == torch.bfloat16:
            logits = torch.mm(hidden, self.matrix("head").T, out_dtype=torch.float32)
        else:
            logits = F.linear(hidden, self.matrix("head"))
            logits = logits.to(torch.promote_types(hidden.dtype, torch.float32))
        return plain.cap_scores(logits * self.scales[1], self.cap) if self.reshapes_logits else logits

    @torch.no_grad()
    def step(self, token: Tensor, at: Tensor, slot: Tensor, prompt: Tensor, prompt_length: Tensor,
             longest: int | None = None) -> Tensor:
        """Token number `at` of each row, written to its slot -> the state [R, D] that predicts the next.
        longest: unused here (HFEngine)."""
        if self.whole:
            return self.whole(token, at, slot, prompt, prompt_length)
        w, bias, rows = self.matrix, self.weight, (at, slot, prompt, prompt_length)
        x, delta, tables = self.embed(token), None, self.tables()
        for i, layer in enumerate(self.layers):
            y = self.enter(x, delta, layer.attention.before, i)
            qkv = F.linear(y, w(f"{i}.qkv"), bias(f"{i}.qkv_bias"))
            if layer.attention.inner or layer.query_scale != 1:
                qkv = self.norm_heads(qkv, i, layer)
            y = self.attend(qkv, *tables[i], *rows, self.k_prompt[i], self.v_prompt[i], self.k[i], self.v[i],
                            layer.window, *(() if layer.score_cap is None else (layer.score_cap,)))
            delta = self.leave(F.linear(y, w(f"{i}.o"), bias(f"{i}.o_bias")), layer.attention, i)
            y = self.enter(x, delta, layer.mlp.before, i)
            delta = self.leave(self.mlp(y, i, slot, at), layer.mlp, i)
        return self.add_norm(x, delta, self.last_norm, "norm")

    def mlp(self, y: Tensor, i: int, slot: Tensor, at: Tensor) -> Tensor:  # [R, D]
        """The MLP or the experts of a layer; these are kept in `routes`."""
        layer, w, bias = self.layers[i], self.matrix, self.weight
        if layer.mlp.router is not None:
            chosen, share = route(y, w(f"{i}.router"), layer.mlp)
            self.routes[slot, at, self.mixed.index(i)] = chosen.short() + 1
            return mix(y, chosen, share, w(f"{i}.gate_up"), w(f"{i}.down"), layer.activation)
        y = F.linear(y, w(f"{i}.gate_up"), bias(f"{i}.gate_up_bias"))
        y = (self.ops.swiglu_joined(y) if layer.activation == "silu"
             else plain.gated(layer.activation, *y.chunk(2, dim=1)))
        return F.linear(y, w(f"{i}.down"), bias(f"{i}.down_bias"))

    def routes_of(self, slot: int, place: int, read: int, written: int) -> Tensor | None:  # [T, L, K]
        """Of the tokens of a prompt and a row, the last of which went through no layer and is left open."""
        if not self.mixed:
            return None
        routes = torch.cat([self.routes_prompt[place, :read], self.routes[slot, :written]])
        routes[-1] = 0
        return routes.cpu()

    def enter(self, x: Tensor, delta: Tensor | None, norm: NormSpec | None, layer: int) -> Tensor:  # [R, D]
        """x += delta in place -> the input of a sublayer."""
        if norm is not None:
            return self.add_norm(x, delta, norm, f"{layer}.{norm.short}")
        return x if delta is None else x.add_(delta)

    def leave(self, delta: Tensor, half: SublayerSpec, layer: int) -> Tensor:  # [R, D]
        """The output of a sublayer, added to x later."""
        if half.after is not None:
            delta = self.add_norm(delta, None, half.after, f"{layer}.{half.after.short}")
        return delta if half.scale == 1 else delta * half.scale

    def add_norm(self, x: Tensor, delta: Tensor | None, norm: NormSpec, name: str) -> Tensor:  # [R, D]
        """x += delta in place, and its norm."""
        if norm.is_plain_rms:
            return self.ops.add_norm(x, delta, self.matrix(name), self.c.rms_norm_eps)
        return self.norm(x if delta is None else x.add_(delta), norm, name)

    def norm(self, x: Tensor, norm: NormSpec, name: str) -> Tensor:
        return plain.norm_by_kind(x, norm, self.weight(name), self.weight(f"{name}_bias"),
                                  self.c.rms_norm_eps)

    def norm_heads(self, qkv: Tensor, layer: int, spec: LayerSpec) -> Tensor:
        """Norms of queries and keys, per head (Qwen3) or over all heads (OLMo 2), and the queries' scale."""
        H, KV, size = self.c.num_attention_heads, self.c.num_key_value_heads, self.c.head_dim
        *parts, v = qkv.view(len(qkv), -1, size).split([H, KV, KV], dim=1)
        for i, norm in enumerate(spec.attention.inner):
            x, name = parts[i], f"{layer}.{norm.short}"
            parts[i] = (self.norm(x, norm, name) if norm.size == size
                        else self.norm(x.flatten(1), norm, name).view_as(x))
        q, k = parts
        return torch.cat([q * spec.query_scale, k, v], dim=1).flatten(1)


def store_prompt_kv(ops: Kernels, k_prompt: Tensor, v_prompt: Tensor, place: Tensor, position: Tensor,
                    layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Stores keys and values [N, kv, head_dim] of prompts in a layer's cache. No method: PrefillGraphs hold
    it, and a reference to the engine would be a cycle."""
    ops.store_kv(k, v, place, position, k_prompt[layer], v_prompt[layer])
    return k, v


def add_prefix(keep: Callable[..., tuple[Tensor, Tensor]], k_prompt: Tensor, v_prompt: Tensor,
               earlier: Tensor, layer: int, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Stored keys and values of a layer, and behind them those of prefixes: earlier [2, K], places and
    numbers."""
    k, v = keep(layer, k, v)
    place, number = earlier
    return (torch.cat([k, k_prompt[layer][place, :, number]]),
            torch.cat([v, v_prompt[layer][place, :, number]]))


def weight_layout(config: Config, layers: list[LayerSpec]) -> dict[str, tuple[str, ...]]:
    """Short name -> names of the tensors concatenated under it."""
    out: dict[str, tuple[str, ...]] = {}
    for weight in outer_weights(config):
        for part in weight.shapes():
            short = weight.short if part == "weight" else f"{weight.short}_{part}"
            out[short] = (f"{weight.name}.{part}",)
    for i, layer in enumerate(layers):
        for short, names in layer.fused().items():
            out[f"{i}.{short}"] = tuple(f"{LAYERS}.{i}.{name}" for name in names)
    return {"head": out["embed"]} | out  # a tied head is the embedding


def fuse_weights(tensors: Mapping[str, Tensor], names: tuple[str, ...]) -> Tensor:
    return tensors[names[0]] if len(names) == 1 else torch.cat([tensors[name] for name in names])

"""One new token a step for many rows at once: a decoder's weights and cache, laid out for sampling.

The prompts' keys and values are kept once each, whatever the number of samples; every row has a slot of its own for what it
writes. The weights are a copy with the projections of queries, keys and values in one matrix, and gate and up in another; of a
body in 4 bits there is no copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from postgrad.models.kernels import kernels_for
from postgrad.models.nf4 import Linear4
from postgrad.packing import pack, sent


class Merged(Mapping):
    """The weights of a plain decoder that says what a body and its adapter (or none) say, each made when it is asked for."""

    def __init__(self, body: nn.Module, adapter=None):
        self.body, self.adapter, self.plain = body, adapter, body.state_dict()
        self.packed = {f"{path}.weight" for path, layer in body.named_modules() if isinstance(layer, Linear4)}

    def __getitem__(self, name: str) -> Tensor:
        path = name.removesuffix(".weight")
        weight = self.body.get_submodule(path).weight if name in self.packed else self.plain[name]
        update = self.adapter.update(path) if self.adapter and path != name else None
        return weight if update is None else weight + update.detach()

    def __iter__(self) -> Iterator[str]:
        yield from self.plain
        yield from sorted(self.packed)

    def __len__(self) -> int:
        return len(self.plain) + len(self.packed)


class Engine:
    """rows slots of `new` tokens each, and as many prompts of up to `read` tokens. The last slot and prompt are for no one."""

    graphs = True  # on a GPU a step can be captured as a graph

    def __init__(self, model, *, rows: int, prompts: int, read: int, new: int):
        self.model, self.c = model, model.config
        self.device = model.head.device
        self.dtype = model.head.dtype
        self.ops = kernels_for(self.device, self.dtype)
        self.read, self.new, self.rows, self.prompts = read, new, rows, prompts
        layers, kv, size = self.c.num_hidden_layers, self.c.num_key_value_heads, self.c.head_dim
        room, asked = (layers, rows + 1, kv, new, size), (layers, prompts + 1, kv, read, size)
        self.k, self.v, self.k_prompt, self.v_prompt = (
            torch.zeros(shape, dtype=self.dtype, device=self.device) for shape in (room, room, asked, asked))
        angles = model.angles(read + new - 1)  # copied: a captured graph reads these, and the model may make a longer table
        self.cos, self.sin = (x.to(self.dtype, copy=True) for x in angles)
        self.layout = layout(self.c)
        self.weights: dict[str, Tensor] = {}
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Takes the model's weights as they are now, but for matrices in 4 bits: those are never copied."""
        self.merged = self.model.merged()
        for name, parts in self.layout.items():
            if self.merged.packed.isdisjoint(parts):
                fresh = fused(self.merged, parts)
                mine = self.weights.setdefault(name, fresh.to(self.dtype))
                if mine.data_ptr() != fresh.data_ptr():  # the very tensor that is trained is always fresh
                    mine.copy_(fresh)
        self.whole = None if self.merged.packed else self.ops.whole_step(self)

    def weight(self, name: str) -> Tensor | None:
        """As it was taken; of a body in 4 bits unpacked and merged at every step, which saves the copy and costs time."""
        if name in self.weights or name not in self.layout:
            return self.weights.get(name)
        return fused(self.merged, self.layout[name]).to(self.dtype)

    @torch.no_grad()
    def prefill(self, tokens: Tensor, lengths: Tensor, places: list[int]) -> Tensor:  # [P, T], [P] -> [P, D]
        """Reads prompts into their places; returns the state from which each one's first new token is chosen."""
        packed = pack(lengths, tokens).to(self.device)
        place = sent(torch.tensor(places).repeat_interleave(lengths), self.device)

        def keep(layer: int, k: Tensor, v: Tensor) -> None:  # [N, kv, head_dim]
            self.k_prompt[layer][place, :, packed.positions] = k
            self.v_prompt[layer][place, :, packed.positions] = v

        states = self.model.states(sent(tokens, self.device), packed, keep)
        return states[sent(lengths.cumsum(0) - 1, self.device)]

    def logits(self, hidden: Tensor) -> Tensor:  # [R, D] -> [R, V], in float32 at least
        head = self.weights["head"]
        if hidden.is_cuda and hidden.dtype == torch.bfloat16:
            return torch.mm(hidden, head.T, out_dtype=torch.float32)
        return F.linear(hidden, head).to(torch.promote_types(hidden.dtype, torch.float32))

    @torch.no_grad()
    def step(self, token: Tensor, at: Tensor, slot: Tensor, prompt: Tensor, prompt_length: Tensor) -> Tensor:
        """Token number `at` of each row, written to its slot -> the state [R, D] from which the next one is chosen."""
        if self.whole:
            return self.whole(token, at, slot, prompt, prompt_length)
        w, c, ops, position, length = self.weight, self.c, self.ops, prompt_length + at, at + 1
        x, delta = w("embed")[token], None
        for i in range(c.num_hidden_layers):
            y = ops.add_norm(x, delta, w(f"{i}.before"), c.rms_norm_eps)
            qkv = F.linear(y, w(f"{i}.qkv"), w(f"{i}.qkv_bias"))
            if c.parts.qk_norm:
                qkv = self.normed(qkv, i)
            q = ops.place(qkv, self.cos, self.sin, position, slot, at, self.k[i], self.v[i])
            window = c.parts.window if i in c.parts.window_layers else None
            y = ops.attend(q, self.k_prompt[i], self.v_prompt[i], prompt, prompt_length, self.k[i], self.v[i], slot, length,
                           window)
            y = ops.add_norm(x, F.linear(y, w(f"{i}.o"), w(f"{i}.o_bias")), w(f"{i}.after"), c.rms_norm_eps)
            delta = F.linear(ops.gate_halves(F.linear(y, w(f"{i}.gate_up"))), w(f"{i}.down"))
        return ops.add_norm(x, delta, w("norm"), c.rms_norm_eps)

    def normed(self, qkv: Tensor, layer: int) -> Tensor:
        """Each head's query and key through its norm (Qwen3)."""
        H, KV = self.c.num_attention_heads, self.c.num_key_value_heads
        q, k, v = qkv.view(len(qkv), -1, self.c.head_dim).split([H, KV, KV], dim=1)
        q, k = (F.rms_norm(x, (self.c.head_dim,), self.weights[f"{layer}.{name}"], self.c.rms_norm_eps)
                for x, name in ((q, "q_norm"), (k, "k_norm")))
        return torch.cat([q, k, v], dim=1).flatten(1)


def layout(config) -> dict[str, tuple[str, ...]]:
    """A decoder's weights by short names: those that are applied to the same thing stand together."""
    embed = "model.embed_tokens.weight"
    out = {"embed": (embed,), "head": (embed if config.tie_word_embeddings else "lm_head.weight",),
           "norm": ("model.norm.weight",)}
    for i in range(config.num_hidden_layers):
        at = f"model.layers.{i}."
        attention, mlp = at + "self_attn.", at + "mlp."
        out |= {f"{i}.before": (at + "input_layernorm.weight",), f"{i}.after": (at + "post_attention_layernorm.weight",),
                f"{i}.qkv": tuple(attention + f"{x}_proj.weight" for x in "qkv"),
                f"{i}.o": (attention + "o_proj.weight",), f"{i}.down": (mlp + "down_proj.weight",),
                f"{i}.gate_up": tuple(mlp + f"{x}_proj.weight" for x in ("gate", "up"))}
        if config.parts.qkv_bias:
            out[f"{i}.qkv_bias"] = tuple(attention + f"{x}_proj.bias" for x in "qkv")
        if config.parts.o_bias:
            out[f"{i}.o_bias"] = (attention + "o_proj.bias",)
        if config.parts.qk_norm:
            out |= {f"{i}.{x}": (attention + f"{x}.weight",) for x in ("q_norm", "k_norm")}
    return out


def fused(tensors: Mapping[str, Tensor], names: tuple[str, ...]) -> Tensor:
    return tensors[names[0]] if len(names) == 1 else torch.cat([tensors[name] for name in names])

"""The Llama family of decoders in one file, for training and sampling alike, in Hugging Face's weight names and layout.

RMS norm, rotary positions (half-split), grouped-query attention, SwiGLU. Left out on purpose: dropout, attention maps,
loss functions (objectives.py), a generate method (sampler/). Families that add parts (biases, q/k norms, windows, scaled
rotary positions) extend `Config`; what `Config.read` does not know it refuses.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from postgrad.maths.logprob import select_logp


@dataclass(frozen=True, kw_only=True)
class Config:
    """The sizes of a decoder, by the names of Hugging Face's config.json."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    max_position_embeddings: int = 2048
    rms_norm_eps: float = 1e-5
    rope_theta: float = 10000.0
    tie_word_embeddings: bool = False

    def __post_init__(self):
        if self.num_attention_heads % self.num_key_value_heads:
            raise ValueError(f"{self.num_attention_heads} attention heads cannot share {self.num_key_value_heads} "
                             "key-value heads: set num_key_value_heads to a divisor.")
        if self.head_dim % 2:
            raise ValueError(f"head_dim is {self.head_dim}; rotary positions need an even number.")

    @classmethod
    def read(cls, path: Path) -> Config:
        """From a config.json. A setting that would change the result and is not built in is refused, not ignored."""
        try:
            raw = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ValueError(f"{path} cannot be read as JSON: {error}") from error
        kind = raw.get("model_type")
        if kind != "llama":
            raise ValueError(f"{path}: model_type is {kind!r}; this decoder reads 'llama'.")
        rope = (raw.get("rope_scaling") or {}) | (raw.get("rope_parameters") or {})
        scaling = rope.get("rope_type", rope.get("type", "default"))  # "type" is the older name
        if scaling != "default":
            raise ValueError(f"{path}: rotary scaling {scaling!r} is not supported; only 'default' is.")
        for key, plain in {"attention_bias": False, "mlp_bias": False, "hidden_act": "silu"}.items():
            if raw.get(key, plain) != plain:
                raise ValueError(f"{path}: {key} is {raw[key]!r}; only {plain!r} is supported.")
        needed = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
        if missing := [key for key in needed if not isinstance(raw.get(key), int)]:
            raise ValueError(f"{path}: {missing[0]} is {raw.get(missing[0])!r}; a decoder needs it as a whole number.")
        raw["num_key_value_heads"] = raw.get("num_key_value_heads") or raw["num_attention_heads"]
        raw["head_dim"] = raw.get("head_dim") or raw["hidden_size"] // raw["num_attention_heads"]
        raw.setdefault("rms_norm_eps", 1e-6)  # what a file that leaves it out means
        raw["rope_theta"] = rope.get("rope_theta", raw.get("rope_theta", 10000.0))
        return cls(**{f.name: raw[f.name] for f in fields(cls) if f.name in raw})

    def written(self) -> dict:
        """As config.json, readable by `transformers`."""
        return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu", "attention_bias": False,
                "mlp_bias": False, **{f.name: getattr(self, f.name) for f in fields(self)}}


class Cache:
    """Keys and values of the tokens seen so far: k, v [L, B, heads, slots, head_dim]. Slot s of a row holds its token s."""

    def __init__(self, k: Tensor, v: Tensor):
        self.k, self.v = k, v

    @classmethod
    def empty(cls, config: Config, rows: int, slots: int, like: Tensor) -> Cache:
        shape = (config.num_hidden_layers, rows, config.num_key_value_heads, slots, config.head_dim)
        return cls(like.new_zeros(shape), like.new_zeros(shape))

    def rows(self, index: Tensor) -> Cache:
        """The rows named by index, in that order; a row may be named more than once (samples that share a prompt)."""
        return Cache(self.k[:, index], self.v[:, index])

    def widen(self, slots: int) -> Cache:
        extra = slots - self.k.shape[3]
        return Cache(F.pad(self.k, (0, 0, 0, extra)), F.pad(self.v, (0, 0, 0, extra)))


class Norm(nn.Module):
    """x / rms(x) * weight, in float32 at least."""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


class Attention(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.c = c
        self.q_proj = nn.Linear(c.hidden_size, c.num_attention_heads * c.head_dim, bias=False)
        self.k_proj = nn.Linear(c.hidden_size, c.num_key_value_heads * c.head_dim, bias=False)
        self.v_proj = nn.Linear(c.hidden_size, c.num_key_value_heads * c.head_dim, bias=False)
        self.o_proj = nn.Linear(c.num_attention_heads * c.head_dim, c.hidden_size, bias=False)

    def forward(self, x: Tensor, where: Where, cache: Cache | None, layer: int) -> Tensor:  # [B, T, D] -> [B, T, D]
        B, T, _ = x.shape
        q, k, v = (p(x).view(B, T, -1, self.c.head_dim).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        q, k = rotate(q, where), rotate(k, where)
        if cache is not None:
            k, v = where.store(cache.k[layer], k), where.store(cache.v[layer], v)
        grouped = k.shape[1] != q.shape[1]
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=where.mask, is_causal=where.mask is None, enable_gqa=grouped)
        return self.o_proj(y.transpose(1, 2).reshape(B, T, -1))


class MLP(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.gate_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.up_proj = nn.Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.down_proj = nn.Linear(c.intermediate_size, c.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.input_layernorm = Norm(c.hidden_size, c.rms_norm_eps)
        self.self_attn = Attention(c)
        self.post_attention_layernorm = Norm(c.hidden_size, c.rms_norm_eps)
        self.mlp = MLP(c)

    def forward(self, x: Tensor, where: Where, cache: Cache | None, index: int) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), where, cache, index)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.embed_tokens = nn.Embedding(c.vocab_size, c.hidden_size)
        self.layers = nn.ModuleList(Layer(c) for _ in range(c.num_hidden_layers))
        self.norm = Norm(c.hidden_size, c.rms_norm_eps)


class Where:
    """Where the tokens of one pass stand: their rotary angles, what they may look at, and their slots in the cache."""

    def __init__(self, cos: Tensor, sin: Tensor, mask: Tensor | None, slots: tuple | None):
        self.cos, self.sin, self.mask, self.slots = cos, sin, mask, slots

    def store(self, slot: Tensor, x: Tensor) -> Tensor:
        """Writes x [B, H, T, head_dim] into a layer's cache and returns what this pass may look at."""
        if self.slots is None:  # the first pass over a prompt: tokens 0..T-1
            slot[:, :, : x.shape[2]] = x
            return x
        rows, positions, span = self.slots
        slot[rows, :, positions] = x.transpose(1, 2)
        return slot[:, :, :span]


def rotate(x: Tensor, where: Where) -> Tensor:  # [B, H, T, head_dim]
    """Rotary positions, half-split: (a, b) -> (a cos - b sin, b cos + a sin)."""
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * where.cos - b * where.sin, b * where.cos + a * where.sin), dim=-1)


class Decoder(nn.Module):
    """A causal language model. `hidden` is the whole network below the head; `logp` is what training asks for."""

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.model = Body(config)
        if not config.tie_word_embeddings:
            self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self._angles: tuple[Tensor, Tensor] | None = None

    @property
    def head(self) -> Tensor:  # [V, D]
        return self.model.embed_tokens.weight if self.config.tie_word_embeddings else self.lm_head.weight

    def start(self, generator: torch.Generator) -> Decoder:
        """Fresh weights: normal, 0.02; the projections that write into the residual stream are scaled down by depth."""
        for name, p in self.named_parameters():
            if p.dim() == 2:
                deep = name.endswith(("o_proj.weight", "down_proj.weight"))
                std = 0.02 / (2 * self.config.num_hidden_layers) ** 0.5 if deep else 0.02
                p.data.copy_(torch.empty(p.shape).normal_(0.0, std, generator=generator))
        return self

    def angles(self) -> tuple[Tensor, Tensor]:
        """cos and sin of every position, [positions, head_dim / 2], made once per device."""
        device = self.head.device
        if self._angles is None or self._angles[0].device != device:
            c = self.config
            powers = torch.arange(0, c.head_dim, 2, dtype=torch.int64).float() / c.head_dim
            table = torch.outer(torch.arange(c.max_position_embeddings).float(), 1.0 / c.rope_theta**powers).to(device)
            self._angles = table.cos(), table.sin()
        return self._angles

    def new_cache(self, rows: int, slots: int) -> Cache:
        return Cache.empty(self.config, rows, slots, self.head)

    def where(self, tokens: Tensor, positions: Tensor | None, segments: Tensor | None, cache: Cache | None, span: int) -> Where:
        T = tokens.shape[1]
        if max(T, span) > self.config.max_position_embeddings:
            raise ValueError(f"{max(T, span)} tokens do not fit the model's {self.config.max_position_embeddings} positions: "
                             "shorten the prompts or max_new_tokens.")
        cos, sin = (x.to(self.head.dtype) for x in self.angles())
        if segments is not None:
            positions = restart(segments)
            mask = (segments[:, :, None] == segments[:, None, :]).tril()[:, None]
            return Where(cos[positions][:, None], sin[positions][:, None], mask, None)
        if positions is None:
            return Where(cos[:T], sin[:T], None, None)
        mask = (torch.arange(span, device=tokens.device) <= positions[:, :, None])[:, None]
        rows = torch.arange(tokens.shape[0], device=tokens.device)[:, None]
        return Where(cos[positions][:, None], sin[positions][:, None], mask, (rows, positions, span))

    def hidden(self, tokens: Tensor, *, positions: Tensor | None = None, segments: Tensor | None = None,
               cache: Cache | None = None, span: int = 0) -> Tensor:  # [B, T] -> [B, T, D]
        """The final hidden state of each token.

        Right padding needs no mask: attention is causal, so nothing real looks at it. segments [B, T] packs several documents
        into a row: tokens see their own segment only and positions restart. With a cache: positions None is the first pass
        over right-padded prompts; positions [B, T] goes on from there, each row at its own place (a token looks at the slots
        up to its position, so a shorter row never sees what padding left); span is the largest position plus one.
        """
        where = self.where(tokens, positions, segments, cache, span)
        x = self.model.embed_tokens(tokens)
        for i, layer in enumerate(self.model.layers):
            x = layer(x, where, cache, i)
        return self.model.norm(x)

    def logits(self, tokens: Tensor, **place) -> Tensor:  # [B, T] -> [B, T, V]
        return F.linear(self.hidden(tokens, **place), self.head)

    def logp(self, tokens: Tensor, mask: Tensor, temperature: float = 1.0,
             segments: Tensor | None = None) -> tuple[Tensor, Tensor]:  # [B, T] -> logp, entropy [B, T]
        """Log-probability of each masked token given those before it, and the entropy of the choice; zero elsewhere."""
        return select_logp(self.hidden(tokens, segments=segments), self.head, tokens, mask, temperature)


def restart(segments: Tensor) -> Tensor:  # [B, T] -> [B, T]
    """Positions that begin again with each segment: [[7, 7, 7, 9, 9]] -> [[0, 1, 2, 0, 1]]"""
    at = torch.arange(segments.shape[1], device=segments.device).expand_as(segments)
    fresh = segments.diff(dim=1, prepend=segments[:, :1] - 1) != 0
    return at - torch.where(fresh, at, 0).cummax(1).values

"""The Llama family of decoders in one file, for training and sampling alike, in Hugging Face's weight names and layout.

RMS norm, rotary positions (half-split), grouped-query attention, SwiGLU; and what Mistral and Qwen add: biases, norms of
queries and keys, sliding windows, scaled rotary positions (families.py says which and reads their config.json). Left out on
purpose: dropout, attention maps, loss functions (objectives.py), a generate method (sampler/).
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from postgrad.maths.logprob import select_logp
from postgrad.models.families import Config


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
    def __init__(self, c: Config, layer: int):
        super().__init__()
        self.c, self.layer, parts = c, layer, c.parts
        self.windowed = layer in parts.window_layers
        self.q_proj = nn.Linear(c.hidden_size, c.num_attention_heads * c.head_dim, bias=parts.qkv_bias)
        self.k_proj = nn.Linear(c.hidden_size, c.num_key_value_heads * c.head_dim, bias=parts.qkv_bias)
        self.v_proj = nn.Linear(c.hidden_size, c.num_key_value_heads * c.head_dim, bias=parts.qkv_bias)
        self.o_proj = nn.Linear(c.num_attention_heads * c.head_dim, c.hidden_size, bias=parts.o_bias)
        if parts.qk_norm:
            self.q_norm, self.k_norm = Norm(c.head_dim, c.rms_norm_eps), Norm(c.head_dim, c.rms_norm_eps)

    def forward(self, x: Tensor, where: Where, cache: Cache | None) -> Tensor:  # [B, T, D] -> [B, T, D]
        B, T, _ = x.shape
        q, k, v = (p(x).view(B, T, -1, self.c.head_dim) for p in (self.q_proj, self.k_proj, self.v_proj))
        if self.c.parts.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k, v = rotate(q.transpose(1, 2), where), rotate(k.transpose(1, 2), where), v.transpose(1, 2)
        if cache is not None:
            k, v = where.store(cache.k[self.layer], k), where.store(cache.v[self.layer], v)
        grouped, mask = k.shape[1] != q.shape[1], where.near if self.windowed else where.mask
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=grouped)
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
    def __init__(self, c: Config, index: int):
        super().__init__()
        self.input_layernorm = Norm(c.hidden_size, c.rms_norm_eps)
        self.self_attn = Attention(c, index)
        self.post_attention_layernorm = Norm(c.hidden_size, c.rms_norm_eps)
        self.mlp = MLP(c)

    def forward(self, x: Tensor, where: Where, cache: Cache | None) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), where, cache)
        return x + self.mlp(self.post_attention_layernorm(x))


class Body(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        # Zero until `start` or a file fills it: nn.Embedding's own draw takes seconds the first time it meets the meta device.
        self.embed_tokens = nn.Embedding.from_pretrained(torch.zeros(c.vocab_size, c.hidden_size), freeze=False)
        self.layers = nn.ModuleList(Layer(c, i) for i in range(c.num_hidden_layers))
        self.norm = Norm(c.hidden_size, c.rms_norm_eps)


class Where:
    """Where the tokens of one pass stand: their rotary angles, what they may look at, and their slots in the cache.

    mask is for layers that look at all that came before, near for those with a sliding window; None is plain causal.
    """

    def __init__(self, cos: Tensor, sin: Tensor, mask: Tensor | None, near: Tensor | None, slots: tuple | None):
        self.cos, self.sin, self.mask, self.near, self.slots = cos, sin, mask, near, slots

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


def frequencies(c: Config) -> Tensor:  # -> [head_dim / 2]
    """theta^(-2i / head_dim), then scaled for texts longer than those the model was first trained on.

    linear: divided by the factor. dynamic: as they are, since it changes them past max_position_embeddings alone. llama3
    (Llama 3.1): waves longer than original / low are divided by the factor, those shorter than original / high stay, and
    those in between are mixed.
    """
    plain = 1.0 / c.rope_theta ** (torch.arange(0, c.head_dim, 2, dtype=torch.int64).float() / c.head_dim)
    scaling = dict(c.parts.scaling)
    if scaling.get("rope_type", "dynamic") == "dynamic":
        return plain
    if scaling["rope_type"] == "linear":
        return plain / scaling["factor"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    waves = scaling["original_max_position_embeddings"] * plain / (2 * math.pi)  # in the original length
    kept = ((waves - low) / (high - low)).clamp(0, 1)
    return plain * (kept + (1 - kept) / scaling["factor"])


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
            elif name.endswith("bias"):
                p.data.zero_()
        return self

    def angles(self, positions: int) -> tuple[Tensor, Tensor]:
        """cos and sin of the first positions, [>= positions, head_dim / 2]: kept, and made anew when more are asked for."""
        like, made = self.head, None if self._angles is None else self._angles[0]
        if made is None or len(made) < positions or (made.device, made.dtype) != (like.device, like.dtype):
            many = min(max(1024, 2 * positions), self.config.max_position_embeddings)
            table = torch.outer(torch.arange(many).float(), frequencies(self.config)).to(like.device)
            self._angles = table.cos().to(like.dtype), table.sin().to(like.dtype)
        return self._angles

    def new_cache(self, rows: int, slots: int) -> Cache:
        return Cache.empty(self.config, rows, slots, self.head)

    def where(self, tokens: Tensor, positions: Tensor | None, segments: Tensor | None, cache: Cache | None, span: int) -> Where:
        T = tokens.shape[1]
        if max(T, span) > self.config.max_position_embeddings:
            raise ValueError(f"{max(T, span)} tokens do not fit the model's {self.config.max_position_embeddings} positions: "
                             "shorten the prompts or max_new_tokens.")
        cos, sin = self.angles(max(T, span))
        at, window = torch.arange(max(T, span), device=tokens.device), self.config.parts.window
        short = window is None or max(T, span) <= window  # no token is far enough from another to be out of its sight
        if segments is None and positions is None:
            near = None if short else (at <= at[:, None]) & (at > at[:, None] - window)
            return Where(cos[:T], sin[:T], None, near, None)
        if segments is not None:
            positions, slots = restart(segments), None
            mask = (segments[:, :, None] == segments[:, None, :]).tril()
            near = mask if short else mask.triu(1 - window)
        else:
            slots = torch.arange(tokens.shape[0], device=tokens.device)[:, None], positions, span
            mask = at <= positions[:, :, None]
            near = mask if short else mask & (at > positions[:, :, None] - window)
        return Where(cos[positions][:, None], sin[positions][:, None], mask[:, None], near[:, None], slots)

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
        for layer in self.model.layers:
            x = layer(x, where, cache)
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

"""The Llama family of decoders in one file, for training and sampling alike, in Hugging Face's weight names and layout.

RMS norm, rotary positions (half-split), grouped-query attention, SwiGLU; and what Mistral and Qwen add: biases, norms of
queries and keys, sliding windows, scaled rotary positions (families.py says which and reads their config.json). Left out on
purpose: dropout, attention maps, loss functions (objectives.py), a generate method (sampler/).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from types import ModuleType

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from postgrad.maths.logprob import chosen_logp
from postgrad.models.engine import Engine, Merged
from postgrad.models.families import Config, check_positions
from postgrad.models.kernels import kernels_for
from postgrad.models.replay import Replays
from postgrad.packing import Packed, last_of, pack


class Norm(nn.Module):
    """x / rms(x) * weight, in float32 at least."""

    def __init__(self, size: int, eps: float):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(size)), eps

    def forward(self, x: Tensor, ops: ModuleType) -> Tensor:
        return ops.norm(x, self.weight, self.eps)


class Linear(nn.Linear):
    def forward(self, x: Tensor, ops: ModuleType) -> Tensor:
        return ops.linear(x, self.weight, self.bias)


class Attention(nn.Module):
    def __init__(self, c: Config, layer: int):
        super().__init__()
        self.head_dim, self.parts = c.head_dim, c.parts
        self.window = c.parts.window if layer in c.parts.window_layers else None
        self.q_proj = Linear(c.hidden_size, c.num_attention_heads * c.head_dim, bias=c.parts.qkv_bias)
        self.k_proj = Linear(c.hidden_size, c.num_key_value_heads * c.head_dim, bias=c.parts.qkv_bias)
        self.v_proj = Linear(c.hidden_size, c.num_key_value_heads * c.head_dim, bias=c.parts.qkv_bias)
        self.o_proj = Linear(c.num_attention_heads * c.head_dim, c.hidden_size, bias=c.parts.o_bias)
        if c.parts.qk_norm:
            self.q_norm, self.k_norm = Norm(c.head_dim, c.rms_norm_eps), Norm(c.head_dim, c.rms_norm_eps)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, ops: ModuleType) -> tuple[Tensor, Tensor, Tensor]:
        """[N, D] -> queries, keys and values [N, heads, head_dim], queries and keys at their positions."""
        q, k, v = (p(x, ops).view(len(x), -1, self.head_dim) for p in (self.q_proj, self.k_proj, self.v_proj))
        if self.parts.qk_norm:
            q, k = self.q_norm(q, ops), self.k_norm(k, ops)
        return ops.rotate(q, cos, sin), ops.rotate(k, cos, sin), v


class MLP(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        self.gate_proj = Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.up_proj = Linear(c.hidden_size, c.intermediate_size, bias=False)
        self.down_proj = Linear(c.intermediate_size, c.hidden_size, bias=False)

    def forward(self, x: Tensor, ops: ModuleType) -> Tensor:
        return self.down_proj(ops.gate(self.gate_proj(x, ops), self.up_proj(x, ops)), ops)


class Layer(nn.Module):
    """Two halves with the attention between them: what a token asks and offers, and what it makes of the answer."""

    def __init__(self, c: Config, index: int):
        super().__init__()
        self.input_layernorm = Norm(c.hidden_size, c.rms_norm_eps)
        self.self_attn = Attention(c, index)
        self.post_attention_layernorm = Norm(c.hidden_size, c.rms_norm_eps)
        self.mlp = MLP(c)

    def ask(self, x: Tensor, cos: Tensor, sin: Tensor, ops: ModuleType) -> tuple[Tensor, Tensor, Tensor]:
        return self.self_attn(self.input_layernorm(x, ops), cos, sin, ops)

    def take(self, x: Tensor, answer: Tensor, ops: ModuleType) -> Tensor:  # [N, D], [N, heads, head_dim] -> [N, D]
        x = x + self.self_attn.o_proj(answer.flatten(1), ops)
        return x + self.mlp(self.post_attention_layernorm(x, ops), ops)


class Body(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        # Zero until `start` or a file fills it: nn.Embedding's own draw takes seconds the first time it meets the meta device.
        self.embed_tokens = nn.Embedding.from_pretrained(torch.zeros(c.vocab_size, c.hidden_size), freeze=False)
        self.layers = nn.ModuleList(Layer(c, i) for i in range(c.num_hidden_layers))
        self.norm = Norm(c.hidden_size, c.rms_norm_eps)


@cache
def halves(compiled: bool) -> tuple[Callable, Callable]:
    """Layer.ask and Layer.take; compiled once for all layers and lengths."""
    return tuple(torch.compile(half, dynamic=True) if compiled else half for half in (Layer.ask, Layer.take))


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
    """A causal language model. `states` is the whole network below the head; `logp` is what training asks for.

    precision: the type in which matrices are multiplied, where that is not the weights'. The softmax of `logp` is in float32 at
    least, whatever the weights are in.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.model = Body(config)
        if not config.tie_word_embeddings:
            self.lm_head = Linear(config.hidden_size, config.vocab_size, bias=False)
        self.precision: torch.dtype | None = None
        self.compiled = False  # through torch.compile and, in training, CUDA graphs
        self._angles: tuple[Tensor, Tensor] | None = None
        self._replays: Replays | None = None

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
        check_positions(positions, self.config.max_position_embeddings)
        device, dtype = self.head.device, self.head.dtype
        made = None if self._angles is None else self._angles[0]
        if made is None or len(made) < positions or (made.device, made.dtype) != (device, dtype):
            many = min(max(1024, 2 * positions), self.config.max_position_embeddings)
            table = torch.outer(torch.arange(many).float(), frequencies(self.config)).to(device)
            self._angles, self._replays = (table.cos().to(dtype), table.sin().to(dtype)), None
        return self._angles

    def states(self, tokens: Tensor, packed: Packed, keep: Callable[[int, Tensor, Tensor], None] | None = None) -> Tensor:
        """The final hidden state [N, D] of each token of the packed rows [B, T]; keep is shown each layer's k and v."""
        self.angles(tokens.shape[1])
        trained = self.head.requires_grad and torch.is_grad_enabled() and keep is None
        if self.compiled and trained and not hasattr(self, "worn"):
            self._replays = self._replays or Replays(self)
            states = self._replays(tokens, packed)
            if states is not None:
                return states
        laid = self.ops.lay(packed.spans, self.head)
        return self.run(tokens.flatten()[packed.cells], packed.positions, laid, keep)

    def run(self, tokens: Tensor, positions: Tensor, laid, keep: Callable | None = None) -> Tensor:  # [N] -> [N, D]
        """Tokens at their positions, in sequences as the kernels' attention takes them, through all layers."""
        (cos, sin), ops = (table[positions] for table in self._angles), self.ops
        ask, take = halves(self.compiled and keep is None and not hasattr(self, "worn"))
        x = self.model.embed_tokens(tokens)
        for i, layer in enumerate(self.model.layers):
            q, k, v = ask(layer, x, cos, sin, ops)
            if keep is not None:
                keep(i, k, v)
            x = take(layer, x, ops.attention(q, k, v, laid, layer.self_attn.window), ops)
        return self.model.norm(x, ops)

    @property
    def ops(self) -> ModuleType:
        return kernels_for(self.head.device, self.head.dtype, self.precision)

    def engine(self, **room) -> Engine:
        return self.engine_for(self, **room)

    engine_for = staticmethod(Engine)  # also for those who wear an adapter on this

    def merged(self) -> Merged:
        """The weights of a plain decoder that says the same: its own."""
        return Merged(self)

    def hidden(self, tokens: Tensor, packed: Packed | None = None) -> Tensor:  # [B, T] -> [B, T, D]
        """The final hidden state of each token; rows that are not packed yet are taken at their full width."""
        packed = packed or pack(torch.full((len(tokens),), tokens.shape[1])).to(tokens.device)
        return self.states(tokens, packed)[packed.home]

    def logits(self, tokens: Tensor) -> Tensor:  # [B, T] -> [B, T, V]
        return F.linear(self.hidden(tokens), self.head)

    def logp(self, tokens: Tensor, mask: Tensor, temperature: float = 1.0,
             packed: Packed | None = None) -> tuple[Tensor, Tensor]:  # [B, T] -> logp, entropy [B, T]
        """Log-probability of each masked token given those before it, and the entropy of the choice; zero elsewhere."""
        if packed is None:
            packed = pack(last_of(mask) + 1, tokens, mask).to(tokens.device)
        states = self.states(tokens, packed)[packed.before]
        columns = chosen_logp(states, self.head, tokens.flatten()[packed.chosen], temperature)
        blank = torch.zeros(tokens.numel(), dtype=columns[0].dtype, device=tokens.device)
        logp, entropy = (blank.scatter(0, packed.chosen, x).view(tokens.shape) for x in columns)
        return logp, entropy

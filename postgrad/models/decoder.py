"""The Llama family of decoders in one file, for training and sampling alike,
in Hugging Face's weight names and layout.

RMS norm, rotary positions (half-split), grouped-query attention, SwiGLU; and what Mistral, Qwen and OLMo add:
biases, norms of queries and keys, norms after instead of before, sliding windows, scaled rotary positions.
families.py says which and reads their config.json; the modules are those that layer.py describes. Left out on
purpose: dropout, attention maps, loss functions (objectives.py), a generate method (sampler/).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache, partial
from types import ModuleType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from postgrad.maths.logprob import chosen_logp, product
from postgrad.models.choices import Choices
from postgrad.models.engine import Engine, Merged
from postgrad.models.families import Config, check_positions
from postgrad.models.kernels import kernels_for, softmax_for
from postgrad.models.layer import Half, Matrix, layer_spec
from postgrad.models.recompute import recomputed
from postgrad.models.replay import Replays
from postgrad.packing import Packed, last_of, pack, take_rows


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


class Inside(nn.Module):
    """The matrices and norms within a half of a layer, by the last part of their names."""

    def __init__(self, half: Half, eps: float):
        super().__init__()
        for weight in half.inside:
            module = (Linear(weight.inputs, weight.outputs, bias=weight.bias) if isinstance(weight, Matrix)
                      else Norm(weight.size, eps))
            self.add_module(last_part(weight), module)
        self.input_names, self.output_name = [last_part(m) for m in half.inputs], last_part(half.output)

    def write(self, x: Tensor, ops: ModuleType) -> Tensor:
        return getattr(self, self.output_name)(x, ops)


class Attention(Inside):
    def __init__(self, half: Half, eps: float, head_dim: int):
        super().__init__(half, eps)
        self.head_dim, self.norm_names = head_dim, [last_part(norm) for norm in half.inner]
        self.head_by_head = all(norm.size == head_dim for norm in half.inner)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, ops: ModuleType) -> tuple[Tensor, Tensor, Tensor]:
        """[N, D] -> queries, keys and values [N, heads, head_dim], queries and keys at their positions."""
        parts = [getattr(self, name)(x, ops).view(len(x), -1, self.head_dim) for name in self.input_names]
        for i, name in enumerate(self.norm_names):
            norm, y = getattr(self, name), parts[i]
            parts[i] = norm(y, ops) if self.head_by_head else norm(y.flatten(1), ops).view_as(y)
        q, k, v = parts
        return ops.rotate(q, cos, sin), ops.rotate(k, cos, sin), v


class MLP(Inside):
    def forward(self, x: Tensor, ops: ModuleType) -> Tensor:
        return self.write(ops.gate(*[getattr(self, name)(x, ops) for name in self.input_names]), ops)


class Layer(nn.Module):
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

    def add_norm(self, norm, eps: float) -> str | None:
        """A described norm as a module; -> its name, None where there is none."""
        if norm is None:
            return None
        self.add_module(norm.name, Norm(norm.size, eps))
        return norm.name

    def normed(self, x: Tensor, name: str | None, ops: ModuleType) -> Tensor:
        return x if name is None else getattr(self, name)(x, ops)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, laid, ops: ModuleType, halves: tuple,
                keep: Callable[[Tensor, Tensor], None] | None = None) -> Tensor:  # [N, D] -> [N, D]
        """Both halves, as they are or compiled, and the attention over the sequences that `laid` describes;
        keep is shown k and v."""
        ask, take = halves
        q, k, v = ask(self, x, cos, sin, ops)
        if keep is not None:
            keep(k, v)
        return take(self, x, ops.attention(q, k, v, laid, self.window), ops)

    def ask(self, x: Tensor, cos: Tensor, sin: Tensor, ops: ModuleType) -> tuple[Tensor, Tensor, Tensor]:
        before, _ = self.around_attention
        return self.self_attn(self.normed(x, before, ops), cos, sin, ops)

    # [N, D], [N, heads, head_dim] -> [N, D]
    def take(self, x: Tensor, answer: Tensor, ops: ModuleType) -> Tensor:
        (_, after), (before, last) = self.around_attention, self.around_mlp
        x = x + self.normed(self.self_attn.write(answer.flatten(1), ops), after, ops)
        return x + self.normed(self.mlp(self.normed(x, before, ops), ops), last, ops)


def last_part(weight) -> str:
    """self_attn.q_proj -> q_proj"""
    return weight.name.split(".")[-1]


class Body(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        # Zero until `start` or a file fills it: nn.Embedding's own draw takes seconds the first time it
        # meets the meta device.
        self.embed_tokens = nn.Embedding.from_pretrained(torch.zeros(c.vocab_size, c.hidden_size),
                                                         freeze=False)
        self.layers = nn.ModuleList(Layer(c, i) for i in range(c.num_hidden_layers))
        self.norm = Norm(c.hidden_size, c.rms_norm_eps)


@cache
def halves(compiled: bool) -> tuple[Callable, Callable]:
    """Layer.ask and Layer.take; compiled once for all layers and lengths."""
    return tuple(torch.compile(half, dynamic=True) if compiled else half for half in (Layer.ask, Layer.take))


def frequencies(c: Config) -> Tensor:  # -> [head_dim / 2]
    """theta^(-2i / head_dim), then scaled for texts longer than those the model was first trained on.

    linear: divided by the factor. dynamic: as they are, since it changes them past max_position_embeddings
    alone. llama3 (Llama 3.1): waves longer than original / low are divided by the factor, those shorter than
    original / high stay, and those in between are mixed.
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
    """A causal language model.

    `states` is the whole network below the head; `logp` is what training asks for.

    precision: the type in which matrices are multiplied, where that is not the weights'. The softmax of
    `logp` is in float32 at least, whatever the weights are in.
    """

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.model = Body(config)
        if not config.tie_word_embeddings:
            self.lm_head = Linear(config.hidden_size, config.vocab_size, bias=False)
        self.precision: torch.dtype | None = None
        self.compiled = False  # through torch.compile and, in training, CUDA graphs
        self.recompute = False  # in a backward pass, of each layer all but its input
        self._angles: tuple[Tensor, Tensor] | None = None
        self._replays: Replays | None = None
        self.copy: Any = None  # of a decoder that is divided among ranks: a whole one, to sample from

    @property
    def head(self) -> Tensor:  # [V, D]
        return self.model.embed_tokens.weight if self.config.tie_word_embeddings else self.lm_head.weight

    def start(self, generator: torch.Generator) -> Decoder:
        """Fresh weights: normal, 0.02; the projections that write into the residual stream are
        scaled down by depth."""
        outputs = tuple(f"{half.output.name}.weight" for half in layer_spec(self.config, 0).halves)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                deep = name.endswith(outputs)
                std = 0.02 / (2 * self.config.num_hidden_layers) ** 0.5 if deep else 0.02
                p.data.copy_(torch.empty(p.shape).normal_(0.0, std, generator=generator))
            elif name.endswith("bias"):
                p.data.zero_()
        return self

    def angles(self, positions: int) -> tuple[Tensor, Tensor]:
        """cos and sin of the first positions, [>= positions, head_dim / 2]: kept,
        and made anew when more are asked for."""
        check_positions(positions, self.config.max_position_embeddings)
        device, dtype = self.head.device, self.head.dtype
        made = None if self._angles is None else self._angles[0]
        if made is None or len(made) < positions or (made.device, made.dtype) != (device, dtype):
            many = min(max(1024, 2 * positions), self.config.max_position_embeddings)
            table = torch.outer(torch.arange(many).float(), frequencies(self.config)).to(device)
            self._angles, self._replays = (table.cos().to(dtype), table.sin().to(dtype)), None
        return self._angles

    def states(self, tokens: Tensor, packed: Packed,
               keep: Callable[[int, Tensor, Tensor], None] | None = None) -> Tensor:
        """The final hidden state [N, D] of each token of the packed rows [B, T]; keep is shown
        each layer's k and v."""
        self.angles(tokens.shape[1])
        trained = self.head.requires_grad and torch.is_grad_enabled() and keep is None
        if self.compiled and trained and not hasattr(self, "active_adapter"):
            self._replays = self._replays or Replays(self)
            states = self._replays(tokens, packed)
            if states is not None:
                return states
        laid = self.ops.lay(packed.spans, self.head)
        return self.run(tokens.flatten()[packed.cells], packed.positions, laid, keep)

    def run(self, tokens: Tensor, positions: Tensor, laid,
            keep: Callable | None = None) -> Tensor:  # [N] -> [N, D]
        """Tokens at their positions, in sequences as the kernels' attention takes them,
        through all layers."""
        (cos, sin), ops = (table[positions] for table in self._angles), self.ops
        made = halves(self.compiled and keep is None and not hasattr(self, "active_adapter"))
        x = self.model.embed_tokens(tokens)
        for i, layer in enumerate(self.model.layers):
            x = recomputed(self, layer, x, cos, sin, laid, ops, made, keep and partial(keep, i))
        return self.model.norm(x, ops)

    @property
    def ops(self) -> ModuleType:
        return kernels_for(self.head.device, self.head.dtype, self.precision)

    def engine(self, **sizes) -> Engine:
        return self.copy.engine(**sizes) if self.copy else self.engine_for(self, **sizes)

    engine_for = staticmethod(Engine)  # also for an adapter on this

    def merged(self) -> Merged:
        """The weights of a plain decoder that says the same: its own."""
        return Merged(self)

    def hidden(self, tokens: Tensor, packed: Packed | None = None) -> Tensor:  # [B, T] -> [B, T, D]
        """The final hidden state of each token; rows that are not packed yet are taken at
        their full width."""
        packed = packed or pack(torch.full((len(tokens),), tokens.shape[1])).to(tokens.device)
        return take_rows(self.states(tokens, packed), packed.home)

    def logits(self, tokens: Tensor) -> Tensor:  # [B, T] -> [B, T, V]
        return F.linear(self.hidden(tokens), self.head)

    def logp(self, tokens: Tensor, mask: Tensor, temperature: float = 1.0,
             packed: Packed | None = None) -> tuple[Tensor, Tensor]:  # [B, T] -> logp, entropy [B, T]
        """Log-probability of each masked token given those before it, and the entropy of the choice;
        zero elsewhere."""
        made = self.choices(tokens, mask, packed)
        columns = chosen_logp(made.states, self.head, tokens.flatten()[made.cells], temperature,
                              softmax=softmax_for(self.head.device, self.head.dtype))
        blank = torch.zeros(tokens.numel(), dtype=columns[0].dtype, device=tokens.device)
        logp, entropy = (blank.scatter(0, made.cells, x).view(tokens.shape) for x in columns)
        return logp, entropy

    def choices(self, tokens: Tensor, mask: Tensor, packed: Packed | None = None) -> Choices:
        """What each masked token was chosen from."""
        if packed is None:
            packed = pack(last_of(mask) + 1, tokens, mask).to(tokens.device)
        states = take_rows(self.states(tokens, packed), packed.before)
        return Choices(states=states, read=lambda part: product(part, self.head.T), cells=packed.chosen)

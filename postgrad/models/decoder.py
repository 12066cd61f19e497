"""Decoders of the Llama kind, in Hugging Face's weight names and layout.

Rotary positions (half-split), grouped-query attention, a gated MLP; norms, biases, windows and rotary scaling
by family (families.py reads config.json, layer.py describes a layer). Compiled on a GPU, a layer uses fused
kernels. Left out on purpose: dropout, attention maps, losses (training/objectives.py), generate (sampling/).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from postgrad.maths.logprob import capped_softmax, chosen_logp, product
from postgrad.maths.packing import AttentionLayout, Packed, Spans, last_masked, pack, take_rows
from postgrad.models.blocks import Blocks
from postgrad.models.cuda_graphs import PassGraphs
from postgrad.models.engine import Engine, Merged
from postgrad.models.experts import Experts
from postgrad.models.families import LONGEST, Config, check_positions
from postgrad.models.kernels import Kernels, kernels_for, plain, softmax_for
from postgrad.models.kernels.fused import GPU_TRAINING_LAYER
from postgrad.models.layer import (
    LayerSpec,
    MatrixSpec,
    NormSpec,
    SublayerSpec,
    embedding_scale,
    last_norm,
    layer_rotary,
    layer_spec,
    layer_specs,
    logit_cap,
    logit_scale,
    rotary_kinds,
)
from postgrad.models.pass_noise import PassNoise
from postgrad.models.protocols import Choices
from postgrad.models.recompute import run_checkpointed

PLAIN = cast(Kernels, plain)


class Norm(nn.Module):
    """The norm that a spec describes, in float32 at least. Kernels compute x / rms(x) * weight alone."""

    def __init__(self, spec: NormSpec, eps: float):
        super().__init__()
        self.spec, self.by_kernel, self.eps = spec, spec.is_plain_rms, eps
        self.weight = nn.Parameter(torch.full((spec.size,), 1 - spec.offset)) if spec.weight else None
        self.bias = nn.Parameter(torch.zeros(spec.size)) if spec.bias else None

    def forward(self, x: Tensor, ops: Kernels) -> Tensor:
        stored: Tensor | None = self.weight
        weight = stored if stored is None or not self.spec.offset else stored + self.spec.offset
        if self.by_kernel and weight is not None:
            return ops.rms_norm(x, weight, self.eps)
        return plain.norm_by_kind(x, self.spec, weight, self.bias, self.eps)


class Linear(nn.Linear):
    def forward(self, input: Tensor, ops: Kernels = PLAIN) -> Tensor:
        return ops.linear(input, self.weight, self.bias)


class Sublayer(nn.Module):
    """The matrices and norms within a sublayer, by the last part of their names."""

    def __init__(self, spec: SublayerSpec, eps: float):
        super().__init__()
        for weight in spec.inside:
            module = (Linear(weight.inputs, weight.outputs, bias=weight.bias)
                      if isinstance(weight, MatrixSpec) else Norm(weight, eps))
            self.add_module(last_name(weight), module)
        self.input_names, self.output_name = [last_name(m) for m in spec.inputs], last_name(spec.output)
        self.widths = spec.widths

    def read(self, x: Tensor, ops: Kernels) -> list[Tensor]:
        """The parts that the input matrices give of x."""
        parts = [getattr(self, name)(x, ops) for name in self.input_names]
        return parts if len(parts) > 1 else [*parts[0].split(self.widths, 1)]

    def read_fused(self, x: Tensor, ops: Kernels) -> Tensor:
        """The same side by side, from one product."""
        modules = [getattr(self, name) for name in self.input_names]
        biases = [module.bias for module in modules]
        return ops.linear(x, joined([module.weight for module in modules]),
                          None if biases[0] is None else joined(biases))

    @property
    def output(self) -> Linear:
        return cast(Linear, getattr(self, self.output_name))


class Attention(Sublayer):
    def __init__(self, spec: SublayerSpec, eps: float, head_dim: int, query_scale: float = 1.0):
        super().__init__(spec, eps)
        self.head_dim, self.norm_names = head_dim, [last_name(norm) for norm in spec.inner]
        self.heads, self.query_scale = spec.widths[0] // head_dim, query_scale
        self.head_by_head = all(norm.size == head_dim for norm in spec.inner)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, ops: Kernels) -> tuple[Tensor, Tensor, Tensor]:
        """[N, D] -> queries, keys and values [N, heads, head_dim], queries and keys rotated."""
        parts = [part.unflatten(1, (-1, self.head_dim)) for part in self.read(x, ops)]
        for i, name in enumerate(self.norm_names):
            norm, y = getattr(self, name), parts[i]
            parts[i] = norm(y, ops) if self.head_by_head else norm(y.flatten(1), ops).view_as(y)
        q, k, v = parts
        q = scaled(q, self.query_scale)
        return ops.rotate(q, cos, sin), ops.rotate(k, cos, sin), v


def scaled(x: Tensor, scale: float) -> Tensor:
    return x if scale == 1 else x * scale


def joined(parts: list[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts)


class MLP(Sublayer):
    def __init__(self, spec: SublayerSpec, eps: float, activation: str):
        super().__init__(spec, eps)
        self.activation = activation

    def forward(self, x: Tensor, ops: Kernels) -> Tensor:
        a, b = self.read(x, ops)
        y: Tensor = self.output(ops.swiglu(a, b) if self.activation == "silu"
                                else plain.gated(self.activation, a, b), ops)
        return y


class DecoderLayer(nn.Module):
    """Two sublayers: attention and MLP, each added to the residual stream."""

    def __init__(self, spec: LayerSpec, eps: float, head_dim: int):
        super().__init__()
        self.window, self.cap = spec.window, spec.score_cap
        self.scales = spec.attention.scale, spec.mlp.scale
        before = self.add_norm(spec.attention.before, eps)
        self.self_attn = Attention(spec.attention, eps, head_dim, spec.query_scale)
        self.around_attention = before, self.add_norm(spec.attention.after, eps)
        before = self.add_norm(spec.mlp.before, eps)
        self.mlp: Any = (Experts(spec.mlp, spec.activation) if spec.mlp.router
                    else MLP(spec.mlp, eps, spec.activation))
        self.around_mlp = before, self.add_norm(spec.mlp.after, eps)
        self.fuses = GPU_TRAINING_LAYER.supports(spec) is None

    def add_norm(self, spec: NormSpec | None, eps: float) -> str | None:
        """Adds the described norm as a module; -> its name, None where there is none."""
        if spec is None:
            return None
        self.add_module(spec.name, Norm(spec, eps))
        return spec.name

    def normed(self, x: Tensor, name: str | None, ops: Kernels) -> Tensor:
        y: Tensor = x if name is None else getattr(self, name)(x, ops)
        return y

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, laid: Any, ops: Kernels,
                functions: LayerFunctions,
                keep: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None
                ) -> Tensor:  # [N, D] -> [N, D]
        """Attention over the sequences that `laid` describes, then the MLP; keep is called with k and v, and
        returns those that are attended to."""
        fused, attention = functions.fused and self.fuses, self.self_attn
        rotates = fused and not attention.norm_names
        heads = attention.heads, attention.head_dim
        if rotates and keep is None:
            answer = ops.attend_qkv(functions.qkv_fused(self, x, ops), cos, sin, laid, *heads, self.window)
        else:
            q, k, v = (ops.rotate_qkv(functions.qkv_fused(self, x, ops), cos, sin, *heads) if rotates
                       else functions.qkv(self, x, cos, sin, ops))
            if keep is not None:
                k, v = keep(k, v)
            answer = ops.attention(q, k, v, laid, self.window, self.cap)
        if fused:
            x, gates = functions.gate_up_fused(self, x, answer, ops)
            return ops.add_gated(x, gates, self.mlp.output.weight)
        x = functions.after_attention(self, x, answer, ops)
        return x

    def qkv(self, x: Tensor, cos: Tensor, sin: Tensor, ops: Kernels) -> tuple[Tensor, Tensor, Tensor]:
        before, _ = self.around_attention
        q, k, v = self.self_attn(self.normed(x, before, ops), cos, sin, ops)
        return q, k, v

    # [N, D], [N, heads, head_dim] -> [N, D]
    def after_attention(self, x: Tensor, answer: Tensor, ops: Kernels) -> Tensor:
        (_, after), (before, last) = self.around_attention, self.around_mlp
        attended, inner = self.scales
        x = x + scaled(self.normed(self.self_attn.output(answer.flatten(1), ops), after, ops), attended)
        return x + scaled(self.normed(self.mlp(self.normed(x, before, ops), ops), last, ops), inner)

    def qkv_fused(self, x: Tensor, ops: Kernels) -> Tensor:
        before, _ = self.around_attention
        return self.self_attn.read_fused(self.normed(x, before, ops), ops)

    def gate_up_fused(self, x: Tensor, answer: Tensor, ops: Kernels) -> tuple[Tensor, Tensor]:
        """As `after_attention`, up to the product by gate and up."""
        before, _ = self.around_mlp
        x = x + self.self_attn.output(answer.flatten(1), ops)
        return x, self.mlp.read_fused(self.normed(x, before, ops), ops)


class LayerFunctions(NamedTuple):
    """The parts of a layer's forward pass, compiled or not. fused: with GPU_TRAINING_LAYER's kernels, for
    layers that they support."""

    qkv: Callable[..., Any] = DecoderLayer.qkv
    after_attention: Callable[..., Any] = DecoderLayer.after_attention
    qkv_fused: Callable[..., Any] = DecoderLayer.qkv_fused
    gate_up_fused: Callable[..., Any] = DecoderLayer.gate_up_fused
    fused: bool = False


def last_name(weight: MatrixSpec | NormSpec) -> str:
    """self_attn.q_proj -> q_proj"""
    return weight.name.split(".")[-1]


@cache
def layer_functions(compiled: bool) -> LayerFunctions:
    """Compiled once for all layers and lengths."""
    if not compiled:
        return LayerFunctions()
    qkv, after, qkv_fused, gate_up = (torch.compile(part, dynamic=True) for part in LayerFunctions()[:-1])
    return LayerFunctions(qkv, after, qkv_fused, gate_up, fused=True)


class DecoderBody(nn.Module):
    def __init__(self, c: Config):
        super().__init__()
        # zeros: nn.Embedding's initialisation takes seconds on first use of the meta device
        self.embed_tokens = nn.Embedding.from_pretrained(torch.zeros(c.vocab_size, c.hidden_size),
                                                         freeze=False)
        self.layers = nn.ModuleList(DecoderLayer(layer_spec(c, i), c.rms_norm_eps, c.head_dim)
                                    for i in range(c.num_hidden_layers))
        self.norm = Norm(last_norm(c), c.rms_norm_eps)


def rotary_frequencies(c: Config, kind: str = "global") -> tuple[Tensor, float]:  # -> [rotary_dim / 2]
    """theta^(-2i / rotary_dim), scaled for longer contexts, and what cosine and sine are multiplied by.

    none: angles of 0. linear: divided by the factor. dynamic: unchanged up to max_position_embeddings. llama3
    (Llama 3.1): wavelengths above original / low are divided by the factor, those below original / high stay,
    the rest is interpolated. yarn (Peng et al. 2023, arXiv:2309.00071): the same over the frequency's number.
    longrope (Ding et al. 2024, arXiv:2402.13753): each has a factor of its own.
    """
    R = c.rotary_dim
    theta = c.architecture.local_theta if kind == "local" else c.rope_theta
    plain = 1.0 / (theta or 1.0) ** (torch.arange(0, R, 2, dtype=torch.int64).float() / R)
    scaling: dict[str, Any] = dict(c.architecture.scaling) if kind == "global" else {}
    by, original = scaling.get("rope_type", "dynamic"), scaling.get("original_max_position_embeddings", 0)
    factor = float(scaling.get("factor", 1.0))
    if kind == "none":
        return torch.zeros_like(plain), 1.0
    if by == "dynamic":
        return plain, 1.0
    if by == "linear":
        return plain / factor, 1.0
    if by == "longrope":
        longer = scaling.get("factor", scaling[LONGEST] / original)
        usual = math.sqrt(1 + math.log(longer) / math.log(original)) if longer > 1 else 1.0
        return plain / torch.tensor(scaling["short_factor"]), float(scaling.get("attention_factor", usual))
    if by == "yarn":
        slow, fast = (R * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(c.rope_theta))
                      for turns in (scaling.get("beta_slow", 1), scaling.get("beta_fast", 32)))
        if scaling.get("truncate", True):
            slow, fast = math.ceil(slow), math.floor(fast)
        fast, slow = max(fast, 0), min(slow, R - 1)
        kept = 1 - ((torch.arange(R // 2) - fast) / (slow - fast or 0.001)).clamp(0, 1)
        return plain * (kept + (1 - kept) / factor), yarn_scale(scaling)
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    waves = original * plain / (2 * math.pi)  # in the original length
    kept = ((waves - low) / (high - low)).clamp(0, 1)
    return plain * (kept + (1 - kept) / factor), 1.0


def yarn_scale(scaling: Mapping[str, Any]) -> float:
    """0.1 ln(factor) + 1, by mscale where both are given, or as the file says."""
    def grown(by: float) -> float:
        return 0.1 * by * math.log(scaling["factor"]) + 1 if scaling["factor"] > 1 else 1.0

    above, below = scaling.get("mscale"), scaling.get("mscale_all_dim")
    usual = grown(above) / grown(below) if above and below else grown(1)
    return float(scaling.get("attention_factor", usual))


class Decoder(nn.Module):
    """A causal language model: `states` below the head, `logp` for training.

    precision: dtype of matrix products, if not that of the weights. The softmax is in float32 at least.
    """

    active_adapter: Any  # an Adapter or None, on a body with adapters (lora.py)
    pass_noise: PassNoise | None = None  # of a training pass (pass_noise.py)
    neftune = 0.0

    def __init__(self, config: Config):
        super().__init__()
        self.config = config
        self.model = DecoderBody(config)
        if not config.tie_word_embeddings:
            self.lm_head = Linear(config.hidden_size, config.vocab_size, bias=False)
        self.precision: torch.dtype | None = None
        self.compiled = False  # torch.compile and CUDA graphs
        self.recompute = False  # activation checkpointing
        self.scales = embedding_scale(config), logit_scale(config)
        self.cap, self.rotary = logit_cap(config), rotary_kinds(config)
        self.tables = [self.rotary.index(layer_rotary(config, i)) for i in range(config.num_hidden_layers)]
        specs = layer_specs(config)
        self.capped = any(spec.score_cap is not None for spec in specs)
        self.eager = self.capped or any(spec.mlp.router is not None for spec in specs)  # never compiled
        self._angles = torch.empty(1, 0), torch.empty(1, 0)
        self._replays: dict[bool, PassGraphs] = {}  # with gradients, and without
        self.copy: Any = None  # of a sharded decoder: the full model to sample from

    @property
    def head(self) -> Tensor:  # [V, D]
        return self.model.embed_tokens.weight if self.config.tie_word_embeddings else self.lm_head.weight

    def start(self, generator: torch.Generator) -> Decoder:
        """Initial weights: N(0, 0.02^2); the output projections of sublayers scaled down by depth."""
        outputs = tuple({half.output.name for spec in layer_specs(self.config) for half in spec.halves})
        for name, p in self.named_parameters():
            if p.dim() > 1:
                deep = name.removesuffix(".weight").endswith(outputs)
                std = 0.02 / (2 * self.config.num_hidden_layers) ** 0.5 if deep else 0.02
                p.data.copy_(torch.empty(p.shape).normal_(0.0, std, generator=generator))
            elif name.endswith("bias"):
                p.data.zero_()
        return self

    def angles(self, positions: int) -> tuple[Tensor, Tensor]:
        """cos and sin of the first positions, [kinds, >= positions, rotary_dim / 2] (`rotary_kinds`);
        cached, and extended on demand."""
        check_positions(positions, self.config.max_position_embeddings)
        device, dtype = self.head.device, self.head.dtype
        cos, _ = self._angles
        if cos.shape[1] < positions or (cos.device, cos.dtype) != (device, dtype):
            many = min(max(1024, 2 * positions), self.config.max_position_embeddings)
            tables = []
            for frequencies, scale in (rotary_frequencies(self.config, kind) for kind in self.rotary):
                angles = torch.outer(torch.arange(many).float(), frequencies).to(device)
                tables.append((angles.cos() * scale, angles.sin() * scale))
            cos, sin = (torch.stack(parts).to(dtype) for parts in zip(*tables, strict=True))
            self._angles, self._replays = (cos, sin), {}
        return self._angles

    def states(self, tokens: Tensor, packed: Packed,
               keep: Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]] | None = None) -> Tensor:
        """The final hidden state [N, D] of each token of the packed rows [B, T]; keep is called with each
        layer's k and v, and returns those that are attended to: further ones behind them, where sequences
        have prefixes that are not packed."""
        self.angles(tokens.shape[1])
        trained = torch.is_grad_enabled()
        compiled = self.fuses_layers and keep is None
        if compiled and (self.head.requires_grad or not trained):
            if trained not in self._replays:
                self._replays[trained] = PassGraphs(self, trained)
            if (states := self._replays[trained](tokens, packed)) is not None:
                return states
        laid = (self.ops.block_layout(packed, self.config.head_dim) if compiled
                else packed.spans if self.capped else self.ops.attention_layout(packed.spans, self.head))
        return self.run(tokens.flatten()[packed.cells], packed.positions, laid, keep)

    def run(self, tokens: Tensor, positions: Tensor, laid: Spans | AttentionLayout | Blocks,
            keep: Callable[[int, Tensor, Tensor], tuple[Tensor, Tensor]] | None = None
            ) -> Tensor:  # [N] -> [N, D]
        """Tokens at their positions through all layers; laid: the sequences, as the kernels take them."""
        (cos, sin), ops = (table[:, positions] for table in self._angles), self.ops
        made = layer_functions(self.fuses_layers)
        x = self.embed(self.model.embed_tokens(tokens))
        for i, layer in enumerate(self.model.layers):
            at = self.tables[i]
            x = run_checkpointed(self, layer, x, cos[at], sin[at], laid, ops, made, keep and partial(keep, i))
        states: Tensor = self.model.norm(x, ops)
        return states

    def embed(self, x: Tensor) -> Tensor:
        """Embeddings as the first layer reads them; their scale is rounded as they are."""
        scale = self.scales[0]
        return x if scale == 1 else x * float(torch.tensor(scale, dtype=x.dtype))

    @property
    def fuses_layers(self) -> bool:
        """Whether layers are compiled with fused kernels; not with adapters, noise, capped scores or
        experts."""
        return (self.compiled and not hasattr(self, "active_adapter") and not self.neftune
                and not self.eager)

    @property
    def ops(self) -> Kernels:
        return kernels_for(self.head.device, self.head.dtype, self.precision)

    def engine(self, **sizes: Any) -> Engine:
        engine: Engine = self.copy.engine(**sizes) if self.copy else self.engine_for(self, **sizes)
        return engine

    engine_for = staticmethod(Engine)  # also for an adapter on this body

    def merged(self) -> Merged:
        """As `Adapted.merged`: its own weights."""
        return Merged(self)

    def hidden(self, tokens: Tensor, packed: Packed | None = None) -> Tensor:  # [B, T] -> [B, T, D]
        """The final hidden state of each token; rows that are not packed are taken at full width."""
        packed = packed or pack(torch.full((len(tokens),), tokens.shape[1])).to(tokens.device)
        return take_rows(self.states(tokens, packed), packed.home)

    def logits(self, tokens: Tensor) -> Tensor:  # [B, T] -> [B, T, V]
        return plain.cap_scores(F.linear(scaled(self.hidden(tokens), self.scales[1]), self.head), self.cap)

    def logp(self, tokens: Tensor, mask: Tensor, temperature: float = 1.0,
             packed: Packed | None = None) -> tuple[Tensor, Tensor]:  # [B, T] -> logp, entropy [B, T]
        """Log-prob of each masked token given those before it, and the entropy there; zero elsewhere."""
        made = self.choices(tokens, mask, packed)
        softmax, heat = ((softmax_for(self.head), temperature) if self.cap is None
                         else (capped_softmax(self.cap, temperature), 1.0))
        columns = chosen_logp(made.states, self.head, tokens.flatten()[made.cells], heat, softmax=softmax)
        blank = torch.zeros(tokens.numel(), dtype=columns[0].dtype, device=tokens.device)
        logp, entropy = (blank.scatter(0, made.cells, x).view(tokens.shape) for x in columns)
        return logp, entropy

    def choices(self, tokens: Tensor, mask: Tensor, packed: Packed | None = None) -> Choices:
        """The states that predict the masked tokens."""
        if packed is None:
            packed = pack(last_masked(mask) + 1, tokens, mask).to(tokens.device)
        states = scaled(take_rows(self.states(tokens, packed), packed.before), self.scales[1])
        return Choices(states=states, cells=packed.chosen,
                       read=lambda part: plain.cap_scores(product(part, self.head.T), self.cap))

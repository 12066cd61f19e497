"""The description of a decoder's layers and weights, as data: names, sizes, norms, activation; no torch.

    x = x + after(output(core(inputs(before(x)))))     per sublayer; before and after are optional

    spec = layer_spec(config, 0)
    spec.attention.inputs[0].name      "self_attn.q_proj"
    spec.mlp.before.name               "post_attention_layernorm"
    spec.fused()["gate_up"]            ("mlp.gate_proj.weight", "mlp.up_proj.weight")

The core is rotation and softmax (attention) or the gated activation (MLP). Decoder, sampling engine, fused
kernels, memory estimates and gguf.py all follow it; families.py holds what differs between families.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from postgrad.models.families import Config, ExpertSizes

LAYERS = "model.layers"
GGUF_NORMS = {"before_attention": "attn_norm", "after_attention": "post_attention_norm",
              "before_mlp": "ffn_norm", "after_mlp": "post_ffw_norm"}


@dataclass(frozen=True, kw_only=True)
class MatrixSpec:
    """y = W x + b with W [outputs, inputs]; LoRA adapts these matrices, and NF4 quantises them. copies: one
    for each of so many experts, in one tensor, which neither LoRA nor NF4 takes."""

    short: str      # "q"
    name: str       # Hugging Face's name in the layer: "self_attn.q_proj"
    gguf: str       # GGUF's: "attn_q"
    outputs: int
    inputs: int
    bias: bool = False
    copies: int = 0

    @property
    def size(self) -> int:
        return self.outputs * self.inputs

    @property
    def shape(self) -> tuple[int, ...]:
        return (*([self.copies] if self.copies else []), self.outputs, self.inputs)

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """By the ends of their names; experts' have none."""
        bias = {"bias": (self.outputs,)} if self.bias else {}
        return {"" if self.copies else "weight": self.shape} | bias


@dataclass(frozen=True, kw_only=True)
class NormSpec:
    """A norm over each `size` of a token's `width` numbers: 64 of 512 per head for eight heads.

    kind: "rms", x / rms(x); "layer", (x - mean(x)) / std(x); then times weight, plus bias, if any.
    """

    short: str
    name: str
    gguf: str
    size: int
    width: int
    kind: str = "rms"
    weight: bool = True
    bias: bool = False
    offset: float = 0.0     # is added to the stored weight

    @property
    def is_plain_rms(self) -> bool:
        """x / rms(x) * (weight + offset), the norm that kernels compute."""
        return self.kind == "rms" and self.weight and not self.bias

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {part: (self.size,) for part in ("weight", "bias") if getattr(self, part)}


@dataclass(frozen=True, kw_only=True)
class SublayerSpec:
    """A residual branch. inputs: matrices with the same input, fused into one for sampling, or one matrix
    for all of them; widths: of the parts that they give, queries, keys and values, or gate and up; inner:
    norms of the first parts (queries and keys); scale: of what is added to x. router: of experts
    (experts.py), by which each token goes to `active` of them."""

    fused: str                      # name of the fused inputs: "qkv"
    inputs: tuple[MatrixSpec, ...]
    widths: tuple[int, ...]
    output: MatrixSpec
    inner: tuple[NormSpec, ...] = ()
    before: NormSpec | None = None
    after: NormSpec | None = None
    scale: float = 1.0
    router: MatrixSpec | None = None
    active: int = 0
    renormalised: bool = False

    @property
    def inside(self) -> tuple[MatrixSpec | NormSpec, ...]:
        """What the sublayer's module contains."""
        return *self.inputs, self.output, *self.inner, *([self.router] if self.router else [])

    @property
    def weights(self) -> tuple[MatrixSpec | NormSpec, ...]:
        return tuple(w for w in (self.before, *self.inside, self.after) if w is not None)

    @property
    def norms(self) -> tuple[NormSpec, ...]:
        return tuple(w for w in self.weights if isinstance(w, NormSpec))


@dataclass(frozen=True, kw_only=True)
class LayerSpec:
    attention: SublayerSpec
    mlp: SublayerSpec
    activation: str = "silu"        # of the gate, by the name of config.json's hidden_act
    qk_norm: str = ""               # "head": per head; "projection": over all heads; "": none
    window: int | None = None       # attention to the last `window` tokens, itself included; None: all
    rotary: str = "global"          # which angles queries and keys are rotated by: "global", "local", "none"
    rotated: int | None = None      # of a head's numbers the first that are rotated; None: all
    query_scale: float = 1.0        # of queries, beside the 1 / sqrt(head_dim) of scores
    score_cap: float | None = None  # scores s are cap tanh(s / cap)

    @property
    def halves(self) -> tuple[SublayerSpec, SublayerSpec]:
        return self.attention, self.mlp

    @property
    def weights(self) -> tuple[MatrixSpec | NormSpec, ...]:
        return *self.attention.weights, *self.mlp.weights

    @property
    def matrices(self) -> tuple[MatrixSpec, ...]:
        """Those of linear layers."""
        routers = [half.router for half in self.halves]
        return tuple(w for w in self.weights
                     if isinstance(w, MatrixSpec) and not w.copies and w not in routers)

    def fused(self) -> dict[str, tuple[str, ...]]:
        """The layer's tensors by short names, matrices with the same input together, biases apart:
        {"qkv": ("self_attn.q_proj.weight", ...), "qkv_bias": ..., "o": ("self_attn.o_proj.weight",), ...}."""
        out = {}
        for half in self.halves:
            groups: dict[str, tuple[MatrixSpec | NormSpec, ...]] = {
                half.fused: half.inputs, half.output.short: (half.output,),
                **{norm.short: (norm,) for norm in half.norms}}
            if half.router is not None:
                groups["router"] = (half.router,)
            for short, group in groups.items():
                parts = {tuple(weight.shapes()) for weight in group}
                assert len(parts) == 1, f"{short}: all fused matrices have a bias, or none"
                for part in parts.pop():
                    out[short if part in ("weight", "") else f"{short}_{part}"] = tuple(
                        full_name(weight.name, part) for weight in group)
        return out


def full_name(weight: str, part: str) -> str:
    return f"{weight}.{part}" if part else weight


def experts_spec(c: Config, sizes: ExpertSizes, **around: Any) -> SublayerSpec:
    D, F, E = c.hidden_size, sizes.width, sizes.count
    one = MatrixSpec(short="gate_up", name="mlp.experts.gate_up_proj", gguf="ffn_gate_up_exps",
                     outputs=2 * F, inputs=D, copies=E)
    return SublayerSpec(
        fused="gate_up", inputs=(one,), widths=(F, F), active=sizes.active,
        renormalised=sizes.renormalised,
        output=replace(one, short="down", name="mlp.experts.down_proj", gguf="ffn_down_exps", outputs=D,
                       inputs=F),
        router=MatrixSpec(short="router", name="mlp.gate", gguf="ffn_gate_inp", outputs=E, inputs=D),
        **around)


def layer_spec(c: Config, index: int) -> LayerSpec:
    """Layer number `index` of a decoder."""
    D, F, a, family = c.hidden_size, c.intermediate_size, c.architecture, c.architecture.family
    widths = {"q": c.num_attention_heads * c.head_dim, "k": c.num_key_value_heads * c.head_dim,
              "v": c.num_key_value_heads * c.head_dim}
    kind = norm_kind(c)
    norms = {place: NormSpec(short=place, name=name, gguf=GGUF_NORMS[place], size=D, width=D, **kind)
             for place, name in family.norms.items()}
    inner = tuple(NormSpec(short=f"{x}_norm", name=f"self_attn.{x}_norm", gguf=f"attn_{x}_norm",
                           width=widths[x], size=widths[x] if family.qk_norm == "projection" else c.head_dim,
                           **kind)
                  for x in "qk" if family.qk_norm)

    def inputs(fused: str, parts: dict[str, int], room: str, gguf: str,
               bias: bool = False) -> dict[str, Any]:
        joined = family.matrices.get(fused)
        named = {fused: (joined, sum(parts.values()))} if joined else {
            x: (f"{room}.{x}_proj", width) for x, width in parts.items()}
        return {"fused": fused, "widths": tuple(parts.values()), "inputs": tuple(
            MatrixSpec(short=x, name=name, gguf=f"{gguf}_{x}", outputs=width, inputs=D, bias=bias)
            for x, (name, width) in named.items())}

    attention = SublayerSpec(
        **inputs("qkv", widths, "self_attn", "attn", a.qkv_bias), inner=inner, scale=residual_scale(c),
        before=norms.get("before_attention"), after=norms.get("after_attention"),
        output=MatrixSpec(short="o", name="self_attn.o_proj", gguf="attn_output", outputs=D,
                          inputs=widths["q"], bias=a.o_bias))
    around: dict[str, Any] = {"before": norms.get("before_mlp"), "after": norms.get("after_mlp"),
                              "scale": residual_scale(c)}
    if a.experts and index not in a.experts.dense:
        mlp = experts_spec(c, a.experts, **around)
    else:
        down = MatrixSpec(short="down", name="mlp.down_proj", gguf="ffn_down", outputs=D, inputs=F)
        mlp = SublayerSpec(**inputs("gate_up", {"gate": F, "up": F}, "mlp", "ffn"), **around, output=down)
    return LayerSpec(attention=attention, mlp=mlp, activation=family.activation, qk_norm=family.qk_norm,
                     window=layer_window(c, index), rotary=layer_rotary(c, index),
                     rotated=None if c.rotary_dim == c.head_dim else c.rotary_dim,
                     query_scale=query_scale(c), score_cap=a.number("attn_logit_softcapping"))


def query_scale(c: Config) -> float:
    """Of queries, where scores are not divided by sqrt(head_dim)."""
    of_scores, width = (c.architecture.number(key) for key in ("attention_multiplier",
                                                               "query_pre_attn_scalar"))
    if of_scores is not None:
        return float(of_scores * c.head_dim ** 0.5)
    return 1.0 if width is None else float((c.head_dim / width) ** 0.5)


def residual_scale(c: Config) -> float:
    return c.architecture.number("residual_multiplier") or 1.0


def embedding_scale(c: Config) -> float:
    own = c.hidden_size ** 0.5 if c.architecture.family.scaled_embedding else 1.0
    return float(c.architecture.number("embedding_multiplier") or own)


def logit_scale(c: Config) -> float:
    return 1.0 / (c.architecture.number("logits_scaling") or 1.0)


def logit_cap(c: Config) -> float | None:
    return c.architecture.number("final_logit_softcapping")


def norm_kind(c: Config) -> dict[str, Any]:
    family = c.architecture.family
    return {"kind": family.norm, "weight": family.norm_weight, "bias": family.norm_bias,
            "offset": family.norm_offset}


def layer_window(c: Config, index: int) -> int | None:
    return c.architecture.window if index in c.architecture.window_layers else None


def layer_rotary(c: Config, index: int) -> str:
    a = c.architecture
    if index in a.unrotated_layers:
        return "none"
    return "local" if a.local_theta is not None and index in a.window_layers else "global"


def outer_weights(c: Config) -> tuple[MatrixSpec | NormSpec, ...]:
    """Embedding, last norm and, unless tied, the head."""
    D, V = c.hidden_size, c.vocab_size
    head = MatrixSpec(short="head", name="lm_head", gguf="output", outputs=V, inputs=D)
    return (MatrixSpec(short="embed", name="model.embed_tokens", gguf="token_embd", outputs=V, inputs=D),
            last_norm(c), *(() if c.tie_word_embeddings else (head,)))


def last_norm(c: Config) -> NormSpec:
    return NormSpec(short="norm", name="model.norm", gguf="output_norm", size=c.hidden_size,
                    width=c.hidden_size, **norm_kind(c))


def layer_specs(c: Config) -> list[LayerSpec]:
    """All layers; without experts they differ in windows and angles alone."""
    if c.architecture.experts:
        return [layer_spec(c, i) for i in range(c.num_hidden_layers)]
    first = layer_spec(c, 0)
    return [replace(first, window=layer_window(c, i), rotary=layer_rotary(c, i))
            for i in range(c.num_hidden_layers)]


def rotary_kinds(c: Config) -> list[str]:
    """The angles of its layers, in the order of their tables."""
    return list(dict.fromkeys(layer_rotary(c, i) for i in range(c.num_hidden_layers)))


@dataclass(frozen=True)
class TensorSpec:
    """"model.layers.3.self_attn.q_proj.weight", in GGUF "blk.3.attn_q.weight"."""

    name: str
    gguf: str
    shape: tuple[int, ...]
    of: MatrixSpec | NormSpec


def stored_tensors(c: Config) -> Iterator[TensorSpec]:
    """All tensors of a decoder."""
    placed = [("", "", weight) for weight in outer_weights(c)]
    for i, layer in enumerate(layer_specs(c)):
        placed += [(f"{LAYERS}.{i}.", f"blk.{i}.", weight) for weight in layer.weights]
    for ahead, ahead_gguf, weight in placed:
        for kind, shape in weight.shapes().items():
            yield TensorSpec(f"{ahead}{full_name(weight.name, kind)}",
                             f"{ahead_gguf}{full_name(weight.gguf, kind)}", shape, weight)

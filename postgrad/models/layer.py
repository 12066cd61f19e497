"""A decoder's weights and what its layers do, described once, as data: names, sizes and places, no torch.

    x = x + after(output(core(inputs(before(x)))))     each of two halves; before and after may be missing

    spec = layer_spec(config, 0)
    spec.attention.inputs[0].name      "self_attn.q_proj"
    spec.mlp.before.name               "post_attention_layernorm"
    spec.fused()["gate_up"]            ("mlp.gate_proj.weight", "mlp.up_proj.weight")

The core of the attention is rotation and softmax, that of the MLP the gate. The decoder makes its modules of
this, the sampling engine its matrices and its step; the C step knows by it what it can do, memory/ sums
over it, gguf.py renames by it. What is a family's own (where norms stand and their names, biases, windows) is
said in families.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from postgrad.models.families import Config

LAYERS = "model.layers"
GGUF_NORMS = {"before_attention": "attn_norm", "after_attention": "post_attention_norm",
              "before_mlp": "ffn_norm", "after_mlp": "post_ffw_norm"}


@dataclass(frozen=True, kw_only=True)
class MatrixSpec:
    """y = W x + b, with W [outputs, inputs]: what an adapter is added to, and what is packed in 4 bits."""

    short: str      # "q"
    name: str       # in its layer, by Hugging Face's name: "self_attn.q_proj"
    gguf: str       # in its layer, by GGUF's: "attn_q"
    outputs: int
    inputs: int
    bias: bool = False

    @property
    def size(self) -> int:
        return self.outputs * self.inputs

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {"weight": (self.outputs, self.inputs)} | ({"bias": (self.outputs,)} if self.bias else {})


@dataclass(frozen=True, kw_only=True)
class NormSpec:
    """x / rms(x) * weight over `size` numbers at a time, of the `width` that a token has there: 64 of 512 for
    a norm of each of eight heads."""

    short: str
    name: str
    gguf: str
    size: int
    width: int

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {"weight": (self.size,)}


@dataclass(frozen=True, kw_only=True)
class SublayerSpec:
    """What is added to the residual stream at once. inputs: matrices that read the same, for sampling fused
    into one; inner: norms of what the first of them give, one each (queries and keys)."""

    fused: str                      # the inputs' name as one matrix: "qkv"
    inputs: tuple[MatrixSpec, ...]
    output: MatrixSpec
    inner: tuple[NormSpec, ...] = ()
    before: NormSpec | None = None
    after: NormSpec | None = None

    @property
    def inside(self) -> tuple[MatrixSpec | NormSpec, ...]:
        """What stands in its module."""
        return *self.inputs, self.output, *self.inner

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
    window: int | None = None       # a token sees itself and the window - 1 before it; None: all of them

    @property
    def halves(self) -> tuple[SublayerSpec, SublayerSpec]:
        return self.attention, self.mlp

    @property
    def weights(self) -> tuple[MatrixSpec | NormSpec, ...]:
        return *self.attention.weights, *self.mlp.weights

    @property
    def matrices(self) -> tuple[MatrixSpec, ...]:
        return tuple(w for w in self.weights if isinstance(w, MatrixSpec))

    @property
    def joins(self) -> bool:
        """Whether a kernel can write what the MLP adds to the state: no norm stands between."""
        return self.attention.after is None and self.mlp.after is None and not self.mlp.output.bias

    def fused(self) -> dict[str, tuple[str, ...]]:
        """The layer's weights by short names, those that read the same together, biases apart:
        {"qkv": ("self_attn.q_proj.weight", ...), "qkv_bias": ..., "o": ("self_attn.o_proj.weight",), ...}."""
        out = {}
        for half in self.halves:
            groups = {half.fused: half.inputs, half.output.short: (half.output,)}
            out |= {norm.short: (f"{norm.name}.weight",) for norm in half.norms}
            for short, group in groups.items():
                out[short] = tuple(f"{m.name}.weight" for m in group)
                assert len({m.bias for m in group}) == 1, f"{short}: all that are fused have a bias, or none"
                if group[0].bias:
                    out[f"{short}_bias"] = tuple(f"{m.name}.bias" for m in group)
        return out


def layer_spec(c: Config, index: int) -> LayerSpec:
    """Layer number `index` of a decoder."""
    D, F, family = c.hidden_size, c.intermediate_size, c.architecture.family
    widths = {"q": c.num_attention_heads * c.head_dim, "k": c.num_key_value_heads * c.head_dim,
              "v": c.num_key_value_heads * c.head_dim}
    norms = {place: NormSpec(short=place, name=name, gguf=GGUF_NORMS[place], size=D, width=D)
             for place, name in family.norms.items()}
    inner = tuple(NormSpec(short=f"{x}_norm", name=f"self_attn.{x}_norm", gguf=f"attn_{x}_norm",
                           width=widths[x], size=widths[x] if family.qk_norm == "projection" else c.head_dim)
                  for x in "qk" if family.qk_norm)
    attention = SublayerSpec(
        fused="qkv", inner=inner, before=norms.get("before_attention"), after=norms.get("after_attention"),
        inputs=tuple(MatrixSpec(short=x, name=f"self_attn.{x}_proj", gguf=f"attn_{x}", outputs=width,
                                inputs=D, bias=c.architecture.qkv_bias) for x, width in widths.items()),
        output=MatrixSpec(short="o", name="self_attn.o_proj", gguf="attn_output", outputs=D,
                          inputs=widths["q"], bias=c.architecture.o_bias))
    mlp = SublayerSpec(
        fused="gate_up", before=norms.get("before_mlp"), after=norms.get("after_mlp"),
        inputs=tuple(MatrixSpec(short=x, name=f"mlp.{x}_proj", gguf=f"ffn_{x}", outputs=F, inputs=D)
                     for x in ("gate", "up")),
        output=MatrixSpec(short="down", name="mlp.down_proj", gguf="ffn_down", outputs=D, inputs=F))
    return LayerSpec(attention=attention, mlp=mlp, window=layer_window(c, index))


def layer_window(c: Config, index: int) -> int | None:
    return c.architecture.window if index in c.architecture.window_layers else None


def outer_weights(c: Config) -> tuple[MatrixSpec | NormSpec, ...]:
    """What stands around the layers: embedding, last norm and, unless it is the embedding again, the head."""
    table = {"outputs": c.vocab_size, "inputs": c.hidden_size}
    embed = MatrixSpec(short="embed", name="model.embed_tokens", gguf="token_embd", **table)
    norm = NormSpec(short="norm", name="model.norm", gguf="output_norm", size=c.hidden_size,
                    width=c.hidden_size)
    head = () if c.tie_word_embeddings else (MatrixSpec(short="head", name="lm_head", gguf="output", **table),
                                             )
    return embed, norm, *head


def layer_specs(c: Config) -> list[LayerSpec]:
    """All layers of a decoder: they differ in their windows alone."""
    first = layer_spec(c, 0)
    return [replace(first, window=layer_window(c, i)) for i in range(c.num_hidden_layers)]


@dataclass(frozen=True)
class TensorSpec:
    """A tensor by its names: "model.layers.3.self_attn.q_proj.weight", in GGUF "blk.3.attn_q.weight"."""

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
            yield TensorSpec(f"{ahead}{weight.name}.{kind}", f"{ahead_gguf}{weight.gguf}.{kind}", shape,
                             weight)

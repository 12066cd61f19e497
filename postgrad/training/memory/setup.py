"""A shape, and how it is held and trained."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from postgrad.models.families import Config
from postgrad.models.layer import layer_spec, layer_specs, outer_weights
from postgrad.system.options import FootprintOptions


def llama(layers: int, width: int, inner: int, heads: int, kv: int, vocab: int,
           tied: bool = False) -> Config:
    return Config(vocab_size=vocab, hidden_size=width, intermediate_size=inner, num_hidden_layers=layers,
                  num_attention_heads=heads, num_key_value_heads=kv, head_dim=width // heads,
                  max_position_embeddings=4096, tie_word_embeddings=tied)


SIZES = {  # Llama 3.2 1B; Llama 2 7B, 13B and 70B
    "1B": llama(16, 2048, 8192, 32, 8, 128256, tied=True),
    "7B": llama(32, 4096, 11008, 32, 32, 32000),
    "13B": llama(40, 5120, 13824, 40, 40, 32000),
    "70B": llama(80, 8192, 28672, 64, 8, 32000),
}


def shape_of(count: float) -> Config:
    """A Llama of about so many parameters: the nearest of SIZES, its width and depth scaled by one factor,
    and the inner width by the rest."""
    if not 5e6 <= count <= 5e12:
        raise ValueError(f"{count:,.0f} parameters: expected 5M to 5000B.")
    near = min(SIZES.values(), key=lambda shape: abs(math.log(count / parameters(shape))))
    near = near if count > 6e8 else replace(near, vocab_size=32000 if count > 1e8 else 4096)
    by = (count / parameters(near)) ** (1 / 3)
    kv = near.num_key_value_heads if near.num_key_value_heads < near.num_attention_heads else None
    heads = max(1, round(near.num_attention_heads * by / (kv or 1))) * (kv or 1)
    layers, width = max(1, round(near.num_hidden_layers * by)), heads * near.head_dim
    shape = replace(near, hidden_size=width, num_attention_heads=heads, num_key_value_heads=kv or heads,
                    num_hidden_layers=layers, intermediate_size=1)
    left = count - parameters(shape)
    return replace(shape, intermediate_size=max(1, round(left / (3 * width * layers))))


@dataclass(frozen=True, kw_only=True)
class Setup(FootprintOptions):
    """How the models are held and trained.

    bits 32: everything in float32. 16: weights in bfloat16 and, of those that are trained, masters in
    float32; adapters are in float32. 4: as 16, with the matrices of models that stand still in NF4; what is
    trained can't be. The recipes do so with the one body under the adapters (models/nf4.py), and compute in
    float32 where single is true: a CPU.
    """

    reward_model: bool = False   # rollouts are judged by a reward model, not by a verifier
    teacher: Config | None = None  # the shape of a teacher that is named; None: that of the policy
    single: bool = False         # with 4 bits: all else is in float32
    on_gpu: bool = True          # else the C kernels of a CPU, in float32
    compiled: bool = True        # on a GPU, where all weights are trained in bfloat16
    graphs: int = 1              # sizes of a pass that are captured as CUDA graphs, of compiled models
    prompt: int = 0              # of a row's tokens, those that a group of replies shares
    group: int = 1
    moments: int = 32            # bits of AdamW's (optim.moments)
    release: bool = True         # what is sampled with is given back before the update

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.lora < 0 or min(self.tokens, self.rows, self.samples) < 1:
            raise ValueError(f"lora {self.lora}, tokens {self.tokens}, rows {self.rows}, samples "
                             f"{self.samples}: expected a rank of 0 or more, and at least 1 of the others.")

    @property
    def width(self) -> int:
        """Bytes of a number that is computed with."""
        return 4 if self.bits == 32 or self.single else 2

    @property
    def prompts(self) -> int:
        return -(-self.rows // self.group)

    @property
    def computed(self) -> int:
        """Tokens of a pass."""
        return self.rows * (self.tokens - self.prompt) + self.prompts * self.prompt

    @property
    def fused(self) -> bool:
        """Whether a layer's backward pass keeps no more than it must: in C, or compiled, which adapters are
        not."""
        return not self.on_gpu or (self.compiled and self.width == 2 and not self.lora)


def matrices(c: Config) -> int:
    """Weights in the matrices of all layers, which are of one size: what LoRA adapts and NF4 shrinks."""
    return c.num_hidden_layers * sum(matrix.size for matrix in layer_spec(c, 0).matrices)


def parameters(c: Config) -> int:
    """All weights of a decoder: matrices, embedding, head (unless tied), norms, biases."""
    layers = layer_specs(c) if c.architecture.experts else [layer_spec(c, 0)]
    outer, *inner = (sum(math.prod(shape) for weight in weights for shape in weight.shapes().values())
                     for weights in (outer_weights(c), *(layer.weights for layer in layers)))
    return outer + sum(inner) * c.num_hidden_layers // len(layers)


def adapter(c: Config, rank: int) -> int:
    """Weights of a LoRA adapter on all matrices: rank x (inputs + outputs) of each."""
    return rank * c.num_hidden_layers * sum(m.inputs + m.outputs for m in layer_spec(c, 0).matrices)

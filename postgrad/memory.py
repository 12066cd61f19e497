"""What a method asks of a GPU: bytes of weights, gradients, optimizer state, activations and key-value cache.

    estimate(SIZES["7B"], methods.get("grpo"), Setup(lora=16)).peak        a shape, a row of the table,
                                                                           how it is trained

A step has two phases that don't overlap: replies are sampled (the cache), then the weights are updated
(gradients and activations). So the peak is the larger of the two, not the sum. Within an update gradients and
activations stand side by side, from the second pass of a step on. Counted are the arrays that the decoder,
the loop and AdamW hold; not the driver's own memory and what an allocator leaves unused: leave about a tenth
free. 1 GB is 10^9 bytes. Rows are packed, so a pass has no padding; a prompt that a group shares is laid out
once, and then fewer tokens are kept than are said here. What autograd saves is counted by a test on a CPU;
bench/memory.py holds the whole against a GPU.

Left out on purpose: sharding over several GPUs, offloading, 8-bit optimizers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from postgrad.methods import Method
from postgrad.models.families import Config
from postgrad.models.layer import Layer, Matrix, Norm, layer_spec, outer_weights
from postgrad.options import Held

GB = 1e9
PARTS = ("weights", "gradients", "optimizer", "activations", "cache")
ROLES = ("policy", "reference", "reward", "critic", "teacher")
TRAINED = ("policy", "critic")
# bytes a weight: 4 bits, and the doubly quantised constants of a block (QLoRA, 2305.14314, section 3)
NF4 = (4 + 0.127) / 8
# tokens that meet the head at once on a GPU; logits that do on a CPU: maths/logprob.py
CHUNK, LOGITS = 4096, 1 << 18
# of a chunk's float32 logits in its backward pass: step by step on a CPU; fused, in bfloat16 out
COPIES = {4: 7.0, 2: 1.5}


def _llama(layers: int, width: int, inner: int, heads: int, kv: int, vocab: int,
           tied: bool = False) -> Config:
    return Config(vocab_size=vocab, hidden_size=width, intermediate_size=inner, num_hidden_layers=layers,
                  num_attention_heads=heads, num_key_value_heads=kv, head_dim=width // heads,
                  max_position_embeddings=4096, tie_word_embeddings=tied)


SIZES = {  # Llama 3.2 1B; Llama 2 7B, 13B and 70B
    "1B": _llama(16, 2048, 8192, 32, 8, 128256, tied=True),
    "7B": _llama(32, 4096, 11008, 32, 32, 32000),
    "13B": _llama(40, 5120, 13824, 40, 40, 32000),
    "70B": _llama(80, 8192, 28672, 64, 8, 32000),
}


@dataclass(frozen=True, kw_only=True)
class Setup(Held):
    """How the models are held and trained.

    bits 32: everything in float32, as on a CPU. 16: weights in bfloat16 and, of those that are trained,
    masters in float32, as on a GPU; adapters are in float32. 4: as 16, with the matrices of models that stand
    still in NF4; what is trained can't be. The recipes do so with the one body under the adapters
    (models/nf4.py), and compute in float32 where single is true: a CPU.
    """

    reward_model: bool = False   # rollouts are judged by a reward model, not by a verifier
    teacher: Config | None = None  # the shape of a teacher that is named; None: that of the policy
    single: bool = False         # with 4 bits: all else is in float32

    def __post_init__(self):
        super().__post_init__()
        if self.bits not in (32, 16, 4):
            raise ValueError(f"bits is {self.bits}: weights are held in 32, 16 or 4 bits.")
        if self.lora < 0 or min(self.tokens, self.rows, self.samples) < 1:
            raise ValueError(f"lora {self.lora}, tokens {self.tokens}, rows {self.rows}, samples "
                             f"{self.samples}: expected a rank of 0 or more, and at least 1 of the others.")

    @property
    def width(self) -> int:
        """Bytes of a number that is computed with."""
        return 4 if self.bits == 32 or self.single else 2


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes, part by part; models: the bytes of each model's weights, 0 for one that is another's body."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    cache: float
    models: dict[str, float]

    @property
    def sampling(self) -> float:
        """While replies are written: gradients and activations are not there yet.

        0 for a method that samples nothing.
        """
        return self.weights + self.optimizer + self.cache if self.cache else 0.0

    @property
    def updating(self) -> float:
        """While the weights are trained: the cache is gone."""
        return self.weights + self.gradients + self.optimizer + self.activations

    @property
    def peak(self) -> float:
        return max(self.sampling, self.updating)


def matrices(c: Config) -> int:
    """Weights in the matrices of all layers, which are of one size: what LoRA adapts and NF4 shrinks."""
    return c.num_hidden_layers * sum(matrix.size for matrix in layer_spec(c, 0).matrices)


def parameters(c: Config) -> int:
    """All weights of a decoder: matrices, embedding, head (unless tied), norms, biases."""
    def count(weights: Iterable[Matrix | Norm]) -> int:
        return sum(math.prod(shape) for weight in weights for shape in weight.shapes().values())
    return count(outer_weights(c)) + c.num_hidden_layers * count(layer_spec(c, 0).weights)


def adapter(c: Config, rank: int) -> int:
    """Weights of a LoRA adapter on all matrices: rank x (inputs + outputs) of each."""
    return rank * c.num_hidden_layers * sum(m.inputs + m.outputs for m in layer_spec(c, 0).matrices)


def held(method: Method, reward_model: bool = False) -> tuple[str, ...]:
    """The models in memory: PPO with a reward model 4, GRPO with a verifier 2, DPO 2, SFT 1."""
    needed = {"policy": True, "reference": method.reference, "reward": reward_model and samples(method),
              "critic": getattr(method, "critic", False), "teacher": getattr(method, "teacher", False)}
    return tuple(role for role in ROLES if needed[role])


def samples(method: Method) -> bool:
    """Whether the method writes replies of its own."""
    return method.source.startswith("rollouts")


def kept(layer: Layer, setup: Setup) -> int:
    """Numbers that a layer keeps of each token for the backward pass.

    What each norm reads; what the matrices of each half read; queries, keys, values and what attention gives;
    gate, up and their product; no attention matrix. Adapters in bfloat16 are not compiled, and keep the
    gate's SiLU too. For Llama, of hidden size D, queries Q, keys K, inner size F: 4D + 2Q + 2K + 3F (or 4F).
    """
    norms = sum(norm.width for half in layer.halves for norm in half.norms)
    read = sum(half.inputs[0].inputs + half.output.inputs for half in layer.halves)
    given = sum(matrix.outputs for half in layer.halves for matrix in half.inputs)
    return norms + read + given + (layer.mlp.output.inputs if setup.lora and setup.width == 2 else 0)


def layers(c: Config, setup: Setup) -> float:
    """Bytes that one model's layers keep for the backward pass over rows x tokens. Recomputed: each layer's
    input, and one layer in full at a time. Last, the final norm's input and output."""
    each, count = kept(layer_spec(c, 0), setup), c.num_hidden_layers
    numbers = each + count * c.hidden_size if setup.recompute else count * each
    return setup.width * setup.rows * setup.tokens * (numbers + 2 * c.hidden_size)


def logits(c: Config, setup: Setup) -> float:
    """Bytes of one chunk's logits, in float32 always."""
    chunk = CHUNK if setup.width == 2 else max(16, LOGITS // c.vocab_size)
    return 4 * min(chunk, setup.rows * setup.tokens) * c.vocab_size


def activations(c: Config, setup: Setup, trained: int, head: bool) -> float:
    """What is alive beside the gradients. A critic is walked back first, so its layers and the head's
    backward pass are not there at the same time. That needs COPIES of the logits and, unless frozen, a
    float32 sum of the head's own gradient; fused, a chunk's part of it outweighs the few copies. Of a body in
    4 bits one matrix at a time is whole."""
    largest = max(matrix.size for matrix in layer_spec(c, 0).matrices)
    whole = setup.width * largest if setup.bits == 4 and setup.lora else 0
    if not head:
        return trained * layers(c, setup) + whole
    gradient = 0 if setup.lora else (1 if setup.width == 4 else 2) * 4 * c.vocab_size * c.hidden_size
    return whole + max(trained * layers(c, setup) + logits(c, setup),
                       layers(c, setup) + COPIES[setup.width] * logits(c, setup) + gradient)


def cache(c: Config, setup: Setup) -> float:
    """Bytes of keys and values: 2 x layers x key-value heads x head width of every token of every reply being
    written. Of a body in 4 bits also the matrices that are fused, gate and up, say: made whole at each step,
    and merged in float32, they are there twice at most."""
    layer = layer_spec(c, 0)
    per_token = c.num_hidden_layers * sum(m.outputs for m in layer.attention.inputs if m.short != "q")
    fused = max(sum(matrix.size for matrix in half.inputs) for half in layer.halves)
    whole = 2 * 4 * fused if setup.bits == 4 and setup.lora else 0
    return setup.width * per_token * setup.samples * setup.tokens + whole


def standing(c: Config, setup: Setup) -> float:
    """Bytes of a model's weights that are never trained."""
    small = parameters(c) - matrices(c)
    return matrices(c) * NF4 + small * setup.width if setup.bits == 4 else parameters(c) * setup.width


def weights(c: Config, method: Method, setup: Setup) -> dict[str, float]:
    """Bytes of each model's weights. With adapters there is one body; the reference, and a teacher that is
    the model itself, are the body alone."""
    roles, head = held(method, setup.reward_model), {"reward": c.hidden_size, "critic": c.hidden_size}
    bare = {"reference", "teacher"} if getattr(method, "shown", False) else {"reference"}
    out: dict[str, float] = {}
    for role in roles:
        own = 4 * head.get(role, 0)
        if role == "teacher" and role not in bare:
            out[role] = standing(setup.teacher or c, setup)
        elif setup.lora:
            out[role] = own + (0 if role in bare else 4 * adapter(c, setup.lora))
        else:
            out[role] = own + (setup.width * parameters(c) if role in TRAINED else standing(c, setup))
    if setup.lora:
        out["policy"] += standing(c, setup)
    return out


def each_trained(setup: Setup) -> tuple[int, int, int]:
    """Bytes of a trained weight: itself, its gradient, the optimizer's. In float32, as adapters always are,
    16: itself 4, its gradient 4, AdamW's two moments 8. In bfloat16 20: itself 2, the gradient of a pass 2
    and their sum at the master 4, the master and the moments 12."""
    return (4, 4, 8) if setup.bits == 32 or setup.lora else (2, 6, 12)


def estimate(c: Config, method: Method, setup: Setup) -> Memory:
    """The parts for one method."""
    models = weights(c, method, setup)
    trained = [role for role in models if role in TRAINED]
    count = sum((adapter(c, setup.lora) if setup.lora else parameters(c)) + (role == "critic") * c.hidden_size
                for role in trained)
    pair = 2 if method.source.endswith("pairs") else 1
    head = getattr(method, "score", True) is not None  # a reward model has no logits
    _, gradient, optimizer = each_trained(setup)
    return Memory(weights=sum(models.values()), gradients=gradient * count, optimizer=optimizer * count,
                  models=models,
                  activations=activations(c, replace(setup, rows=setup.rows * pair), len(trained), head),
                  cache=cache(c, setup) if samples(method) else 0.0)

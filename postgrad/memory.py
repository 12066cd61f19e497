"""What a method asks of a GPU: bytes of weights, gradients, optimizer state, activations and key-value cache.

    estimate(SIZES["7B"], methods.get("grpo"), Setup(lora=16)).peak        a shape, a row of the table,
                                                                           how it is trained

A step has two phases: replies are sampled (the cache), then the weights are updated (gradients and
activations). Where what is sampled with is given back in between (release), the peak is the larger of the
two; else the cache stands through the update. Within an update gradients and activations stand side by side,
from the second pass of a step on. Counted are the arrays that the decoder, the loop, AdamW and the sampler
hold; not the driver's own memory and what an allocator leaves unused: leave about a tenth free. 1 GB is 10^9
bytes. Rows are packed, so a pass has no padding; a prompt that a group shares is laid out once, and then
fewer tokens are kept, as prompt and group say. What autograd saves and the peak of a pass are counted by
tests on a CPU; bench/memory.py holds every part against a GPU.

Left out on purpose: sharding over several GPUs, offloading, 8-bit optimizers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from postgrad.methods import Method
from postgrad.models.engine import SMALL
from postgrad.models.families import Config
from postgrad.models.kernels.decode import knows
from postgrad.models.layer import Layer, Matrix, Norm, layer_spec, outer_weights
from postgrad.models.replay import most_graphs
from postgrad.options import Held
from postgrad.sampler.waiting import READ

GB = 1e9
PARTS = ("weights", "gradients", "optimizer", "activations", "cache")
ROLES = ("policy", "reference", "reward", "critic", "teacher")
TRAINED = ("policy", "critic")
# bytes a weight: 4 bits, and the doubly quantised constants of a block (QLoRA, 2305.14314, section 3)
NF4 = (4 + 0.127) / 8
# tokens that meet the head at once on a GPU; logits that do on a CPU: maths/logprob.py
CHUNK, LOGITS = 4096, 1 << 18
COPIES = 6.0  # arrays of a chunk's logits in its backward pass on a CPU


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
    release: bool = True         # what is sampled with is given back before the update

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


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes, part by part; models: the bytes of each model's weights, 0 for one that is another's body.
    cache: all that is there to sample. stays: of gradients and activations, what is there in sampling too.
    release: the cache is given back before an update."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    cache: float
    models: dict[str, float]
    stays: dict[str, float]
    release: bool = True

    @property
    def sampling(self) -> float:
        """While replies are written. 0 for a method that samples nothing."""
        stays = sum(self.stays.values())
        return self.weights + self.optimizer + self.cache + stays if self.cache else 0.0

    @property
    def updating(self) -> float:
        """While the weights are trained."""
        cache = 0.0 if self.release else self.cache
        return self.weights + self.gradients + self.optimizer + self.activations + cache

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


def captured(c: Config, setup: Setup) -> int:
    """CUDA graphs of a model's pass, each with gradients of its own, all with one place for activations; of
    large models there are none."""
    return min(setup.graphs, most_graphs(2 * parameters(c))) if setup.fused and setup.on_gpu else 0


def kept(layer: Layer, setup: Setup) -> float:
    """Numbers that a layer keeps of each token for the backward pass.

    What each norm reads; what the matrices of each half read; queries, keys, values and what attention gives;
    gate, up and their product; no attention matrix. On a CPU keys and values of a shared prompt stand there
    for each of its rows. Where nothing is fused, the gate's SiLU too; joined, the product neither. In float32
    on a GPU keys and values have as many heads as queries, attention keeps what it gives apart from what is
    read of it, and its mask. For Llama, of hidden size D, queries Q, keys K, inner size F: 4D + 2Q + 2K + 3F
    (or 4F, or 2F).
    """
    norms = sum(norm.width for half in layer.halves for norm in half.norms)
    read = sum(half.inputs[0].inputs + half.output.inputs for half in layer.halves)
    seen = (setup.prompts * setup.prompt + setup.rows * setup.tokens) / setup.computed
    q, *others = (matrix.outputs for matrix in layer.attention.inputs)
    offered = 3 * q + setup.tokens if setup.on_gpu and setup.width == 4 else sum(others)
    gated = (0 if setup.fused else 1) - joined(layer, setup)
    return (norms + read + q + offered * (seen if not setup.on_gpu and setup.prompt else 1)
            + sum(matrix.outputs for matrix in layer.mlp.inputs) + gated * layer.mlp.output.inputs)


def joined(layer: Layer, setup: Setup) -> bool:
    """Whether matrices that read the same are one in training."""
    return setup.fused and setup.on_gpu and layer.joins


def layers(c: Config, setup: Setup) -> float:
    """Bytes that one model's layers keep for the backward pass over rows x tokens; recomputed, of each layer
    its input. Last, the final norm's input and output."""
    each = c.hidden_size if setup.recompute else kept(layer_spec(c, 0), setup)
    return setup.width * setup.computed * (c.num_hidden_layers * each + 2 * c.hidden_size)


def walked(c: Config, setup: Setup) -> float:
    """Bytes that the backward pass of the last layer has beside what is kept: the gradients of the state, of
    gate and of up, less what the last norm kept; joined, their product and its gradient too; recomputed, all
    of the layer but its input."""
    layer = layer_spec(c, 0)
    again = kept(layer, setup) - c.hidden_size if setup.recompute else 0
    gates = (4 if joined(layer, setup) else 2) * c.intermediate_size
    return setup.width * setup.computed * (gates - c.hidden_size + again)


def logits(c: Config, setup: Setup) -> float:
    """Bytes of one chunk's logits, in float32 always."""
    chunk = CHUNK if setup.on_gpu else max(16, LOGITS // c.vocab_size)
    return 4 * min(chunk, setup.rows * (setup.tokens - setup.prompt)) * c.vocab_size


def head(c: Config, setup: Setup) -> float:
    """Bytes of the head's backward pass: a chunk's logits and, unless the head is frozen, a float32 sum of
    its gradient. On a CPU there are COPIES of the logits; on a GPU slopes stand beside them, and the chunk's
    part of the gradient comes beside its slopes, before it is added. In bfloat16 on a GPU there are no
    logits, only their slopes, and the product adds the gradient."""
    whole, gradient = logits(c, setup), 0 if setup.lora else 4 * c.vocab_size * c.hidden_size
    if setup.on_gpu and setup.width == 2:
        return whole / 2 + gradient
    first = (2 if setup.on_gpu else COPIES) * whole + gradient
    return max(first, whole + 2 * gradient) if setup.width == 4 else first


def activations(c: Config, setup: Setup, trained: int, reads: bool) -> float:
    """What is alive beside the gradients. A critic is walked back first, so its layers and the head's
    backward pass are not there at the same time, but where both are captured: a graph's memory stays. A head
    that is the embedding waits with its gradient for the embedding's. Of a body in 4 bits one matrix at a
    time is whole. reads: there is a head to the vocabulary."""
    largest = max(matrix.size for matrix in layer_spec(c, 0).matrices)
    whole = setup.width * largest if setup.bits == 4 and setup.lora else 0
    kept, walking = layers(c, setup), walked(c, setup)
    above = head(c, setup) if reads else 0.0
    if captured(c, setup):
        return trained * (kept + walking) + above
    waits = setup.width * c.vocab_size * c.hidden_size if c.tie_word_embeddings and not setup.lora else 0
    return whole + max(trained * kept + walking, kept + max(above, walking + waits if reads else 0.0))


def cache(c: Config, setup: Setup) -> float:
    """Bytes of keys and values: 2 x layers x key-value heads x head width of every token of every reply being
    written, and of every prompt once. Of a body in 4 bits also the matrices that are fused, gate and up, say:
    made whole at each step, and merged in float32, they are there twice at most."""
    layer = layer_spec(c, 0)
    per_token = c.num_hidden_layers * sum(m.outputs for m in layer.attention.inputs if m.short != "q")
    fused = max(sum(matrix.size for matrix in half.inputs) for half in layer.halves)
    whole = 2 * 4 * fused if setup.bits == 4 and setup.lora else 0
    written = setup.samples * (setup.tokens - setup.prompt) + -(-setup.samples // setup.group) * setup.prompt
    return setup.width * per_token * written + whole


def beside(c: Config, setup: Setup) -> float:
    """Bytes that sampling has beside the cache: the logits of a step, in float32, the sampler's own matrices,
    those that are fused, with adapters all that are merged, in panels on a CPU all and the head, of a body in
    4 bits none; what reading keeps."""
    each = sum(matrix.size for half in layer_spec(c, 0).halves for matrix in half.inputs)
    own = (matrices(c) if setup.bits != 4 else 0) if setup.lora else c.num_hidden_layers * each
    if not setup.on_gpu and setup.bits != 4 and knows(layer_spec(c, 0).fused()):
        own = matrices(c) + c.vocab_size * c.hidden_size
    return setup.width * own + 4 * setup.samples * c.vocab_size + reading(c, setup)


def reading(c: Config, setup: Setup) -> float:
    """Bytes that the graph keeps by which a small model reads prompts on a GPU: of each token what a layer's
    second half holds at most."""
    if setup.lora or setup.width == 4 or not setup.on_gpu or c.hidden_size > SMALL:
        return 0.0
    tokens = min(READ, -(-setup.samples // setup.group) * setup.prompt)
    return setup.width * tokens * (2 * c.hidden_size + 4 * c.intermediate_size)


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
    reads = getattr(method, "score", True) is not None  # a reward model has no logits
    _, gradient, optimizer = each_trained(setup)
    passing, graphs = replace(setup, rows=setup.rows * pair), captured(c, setup)
    place = len(trained) * (layers(c, passing) + walked(c, passing)) if graphs else 0.0
    gradient += 2 * max(graphs - 1, 0)  # a pass's own is one of them
    stays = {"gradients": 2.0 * graphs * count, "activations": place}
    sampling = cache(c, setup) + beside(c, setup) if samples(method) else 0.0
    return Memory(weights=sum(models.values()), gradients=gradient * count, optimizer=optimizer * count,
                  models=models, activations=activations(c, passing, len(trained), reads), cache=sampling,
                  stays=stays, release=setup.release)

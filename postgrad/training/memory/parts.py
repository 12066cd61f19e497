"""The parts of a method's memory: weights, gradients, optimizer, activations, KV cache, what else the sampler
holds, and their peak."""

from __future__ import annotations

from dataclasses import dataclass, replace

from postgrad.methods import Method
from postgrad.models.engine import PREFILL_TOKENS, SMALL
from postgrad.models.families import Config
from postgrad.models.kernels.fused import C_DECODE_STEP
from postgrad.models.layer import MatrixSpec, layer_spec, layer_specs
from postgrad.training.adamw import AdamW8bit
from postgrad.training.memory.passes import activations, captured, layers, walked
from postgrad.training.memory.setup import Setup, adapter, matrices, parameters

GB = 1e9
PARTS = ("weights", "gradients", "optimizer", "activations", "cache", "sampler")
ROLES = ("policy", "reference", "reward", "critic", "teacher")
TRAINED = ("policy", "critic")
# bytes a weight: 4 bits, and the doubly quantised constants of a block (QLoRA, 2305.14314, section 3)
NF4 = (4 + 0.127) / 8


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes, part by part; models: the bytes of each model's weights, 0 for one that is another's body.
    cache: the KV cache. sampler: what else sampling takes, its own copy of weights above all. stays: of
    gradients and activations, what is there in sampling too. release: cache and sampler are given back before
    an update."""

    weights: float
    gradients: float
    optimizer: float
    activations: float
    cache: float
    sampler: float
    models: dict[str, float]
    stays: dict[str, float]
    release: bool = True

    @property
    def sampling(self) -> float:
        """While replies are written. 0 for a method that samples nothing."""
        stays = sum(self.stays.values())
        return self.weights + self.optimizer + self.cache + self.sampler + stays if self.cache else 0.0

    @property
    def updating(self) -> float:
        """While the weights are trained."""
        kept = 0.0 if self.release else self.cache + self.sampler
        return self.weights + self.gradients + self.optimizer + self.activations + kept

    @property
    def peak(self) -> float:
        return max(self.sampling, self.updating)


def held(method: Method, reward_model: bool = False) -> tuple[str, ...]:
    """The models in memory: PPO with a reward model 4, GRPO with a verifier 2, DPO 2, SFT 1."""
    needed = {"policy": True, "reference": method.needs_reference, "reward": reward_model and samples(method),
              "critic": getattr(method, "critic", False), "teacher": getattr(method, "teacher", False)}
    return tuple(role for role in ROLES if needed[role])


def samples(method: Method) -> bool:
    """Whether the method writes replies of its own."""
    return method.source.startswith("rollouts")


def cache(c: Config, setup: Setup) -> float:
    """Bytes of keys and values: 2 x layers x key-value heads x head width of every token of every reply being
    written, and of every prompt once."""
    per_token = c.num_hidden_layers * sum(layer_spec(c, 0).attention.widths[1:])
    written = setup.samples * (setup.tokens - setup.prompt) + -(-setup.samples // setup.group) * setup.prompt
    return setup.width * per_token * written


def sampler_bytes(c: Config, setup: Setup) -> float:
    """Bytes that sampling takes besides the KV cache: the logits of a step, in float32; the sampler's own
    copy of the fused matrices, with adapters of all merged ones, in panels on a CPU of all and the head; what
    prefill keeps. A body in 4 bits has no copy: the fused matrices of one half of a layer are dequantised
    and merged in float32 at each step, so they are held twice at most."""
    halves = [sum(matrix.size for matrix in half.inputs) for half in layer_spec(c, 0).halves]
    each, whole = sum(halves), 2 * 4 * max(halves) if setup.bits == 4 and setup.lora else 0
    own = (matrices(c) if setup.bits != 4 else 0) if setup.lora else c.num_hidden_layers * each
    if not setup.on_gpu and setup.bits != 4 and C_DECODE_STEP.supports(layer_spec(c, 0)) is None:
        experts = sum(m.size * m.copies for layer in layer_specs(c) for m in layer.weights
                      if isinstance(m, MatrixSpec))
        own = matrices(c) + experts + c.vocab_size * c.hidden_size
    return setup.width * own + whole + 4 * setup.samples * c.vocab_size + reading(c, setup)


def reading(c: Config, setup: Setup) -> float:
    """Bytes that the graph keeps by which a small model reads prompts on a GPU: of each token what a layer's
    second half holds at most."""
    if setup.lora or setup.width == 4 or not setup.on_gpu or c.hidden_size > SMALL:
        return 0.0
    tokens = min(PREFILL_TOKENS, -(-setup.samples // setup.group) * setup.prompt)
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


def each_trained(setup: Setup) -> tuple[int, int, float]:
    """Bytes of a trained weight: itself, its gradient, the optimizer's. In float32, as adapters always are,
    16: itself 4, its gradient 4, AdamW's two moments 8. In bfloat16 20: itself 2, the gradient of a pass 2
    and their sum at the master 4, the master and the moments 12. Moments in 8 bits: 2.03, not 8."""
    moments = 8 if setup.moments == 32 else 2 * (1 + 4 / AdamW8bit.BLOCK)
    return (4, 4, moments) if setup.bits == 32 or setup.lora else (2, 6, 4 + moments)


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
    return Memory(weights=sum(models.values()), gradients=gradient * count, optimizer=optimizer * count,
                  models=models, activations=activations(c, passing, len(trained), reads), stays=stays,
                  cache=cache(c, setup) if samples(method) else 0.0,
                  sampler=sampler_bytes(c, setup) if samples(method) else 0.0, release=setup.release)

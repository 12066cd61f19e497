"""What a pass that is trained on holds beside weights and gradients: what the layers keep, and the head."""

from __future__ import annotations

from postgrad.models.cuda_graphs import most_graphs
from postgrad.models.families import Config
from postgrad.models.kernels.fused import GPU_TRAINING_LAYER
from postgrad.models.layer import LayerSpec, layer_spec
from postgrad.training.memory.setup import Setup, parameters

# tokens that meet the head at once on a GPU; logits that do on a CPU: maths/logprob.py
CHUNK, LOGITS = 4096, 1 << 18
COPIES = 6.0  # arrays of a chunk's logits in its backward pass on a CPU


def captured(c: Config, setup: Setup) -> int:
    """CUDA graphs of a model's pass, each with gradients of its own, all with one place for activations; of
    large models there are none."""
    return min(setup.graphs, most_graphs(2 * parameters(c))) if setup.fused and setup.on_gpu else 0


def kept(layer: LayerSpec, setup: Setup) -> float:
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
    q, *others = layer.attention.widths
    offered = 3 * q + setup.tokens if setup.on_gpu and setup.width == 4 else sum(others)
    gated = (0 if setup.fused else 1) - joined(layer, setup)
    return (norms + read + q + offered * (seen if not setup.on_gpu and setup.prompt else 1)
            + sum(matrix.outputs for matrix in layer.mlp.inputs) + gated * layer.mlp.output.inputs)


def joined(layer: LayerSpec, setup: Setup) -> bool:
    """Whether matrices that read the same are one in training."""
    return setup.fused and setup.on_gpu and GPU_TRAINING_LAYER.supports(layer) is None


def layers(c: Config, setup: Setup) -> float:
    """Bytes that one model's layers keep for the backward pass over rows x tokens; recomputed, of each layer
    its input. Last, the final norm's input and output."""
    each = c.hidden_size if setup.recompute else kept(layer_spec(c, 0), setup)
    return setup.width * setup.computed * (c.num_hidden_layers * each + 2 * c.hidden_size)


def walked(c: Config, setup: Setup) -> float:
    """Bytes that the backward pass of the last layer has beside the saved activations: the gradients of the
    state, of gate and of up, less what the last norm kept; joined, their product and its gradient too;
    recomputed, all of the layer but its input."""
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

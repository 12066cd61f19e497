"""What a method asks of a GPU: bytes of weights, gradients, optimizer state, activations and key-value cache.

    estimate(SIZES["7B"], methods.get_method("grpo"), Setup(lora=16)).peak        a shape, a row of the table,
                                                                           how it is trained

A step has two phases: replies are sampled (the cache), then the weights are updated (gradients and
activations). Where the sampler's memory is given back in between (release), the peak is the larger of the
two; else the cache stands through the update. Within an update gradients and activations stand side by side,
from the second pass of a step on. Counted are the arrays that the decoder, the loop, AdamW and the sampler
hold; not the driver's own memory and what an allocator leaves unused: leave about a tenth free. 1 GB is 10^9
bytes. Rows are packed, so a pass has no padding; a prompt that a group shares is laid out once, and then
fewer tokens are kept, as prompt and group say. What autograd saves and the peak of a pass are counted by
tests on a CPU; bench/memory.py holds every part against a GPU.

setup        a shape, and how it is held and trained
passes       what a pass holds beside weights and gradients
parts        the parts of each method, and the estimate

Left out on purpose: sharding over several GPUs, offloading, 8-bit optimizers.
"""

from postgrad.training.memory.parts import (
           GB,
           PARTS,
           Memory,
           cache,
           each_trained,
           estimate,
           held,
           sampler_bytes,
           samples,
)
from postgrad.training.memory.passes import activations, head, kept, layers, walked
from postgrad.training.memory.setup import SIZES, Setup, adapter, matrices, parameters, shape_of

__all__ = ["GB", "PARTS", "SIZES", "Memory", "Setup", "activations", "adapter", "cache",
           "each_trained", "estimate", "head", "held", "kept", "layers", "matrices", "parameters",
           "sampler_bytes", "samples", "shape_of", "walked"]

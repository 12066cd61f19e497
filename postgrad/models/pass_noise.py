"""Seeded noise of a training pass: LoRA's dropout, and NEFTune's noise on the embeddings.

Noise is drawn by (seed, step, ids of the rows, place): a resumed run, and the recomputation of a layer, draw
the same. Outside of `noisy_pass`, and without gradients, there is none: sampling, evaluation, reference and
old log-probs are exact. optim.tokens_per_pass decides which rows are a pass, and so the noise.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from postgrad.maths.noise import seed_of, uniform
from postgrad.maths.packing import Packed


class PassNoise(NamedTuple):
    """The optimizer step, and of a pass the ids of its rows, their lengths [B] and how they are packed."""

    step: int
    ids: tuple[str, ...]
    lengths: Tensor
    packed: Packed | None

    def seed(self, *place: int | str) -> int:
        return seed_of(*place, self.step, *self.ids)


@contextmanager
def noisy_pass(bodies: Iterable[Any], noise: PassNoise) -> Iterator[None]:
    """Within the block a pass of these networks is noisy, where they or their adapters ask for noise."""
    bodies = list(bodies)
    for body in bodies:
        body.pass_noise = noise
    try:
        yield
    finally:
        for body in bodies:
            body.pass_noise = None


def dropout(x: Tensor, share: float, noise: PassNoise | None, *place: int | str) -> Tensor:
    """x with this share of its numbers 0, the others scaled up to the same mean; x itself without noise."""
    if not share or noise is None or not torch.is_grad_enabled():
        return x
    drawn = torch.Generator(x.device).manual_seed(noise.seed(*place))
    keep = torch.empty_like(x).bernoulli_(1 - share, generator=drawn)
    return x * keep / (1 - share)


def add_neftune(body: Any, alpha: float, seed: int) -> None:
    """NEFTune (Jain et al. 2023, arXiv:2310.05914): uniform noise of +-alpha / sqrt(L D) on the embeddings of
    a row of L tokens, of D numbers each, the same on every device. TRL's L is the width of the padded
    batch."""
    def hook(layer: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        noise: PassNoise | None = body.pass_noise
        if noise is None or not torch.is_grad_enabled():
            return output
        if output.dim() == 3:  # [B, T, D]
            lengths = noise.lengths[:, None, None]
        else:                  # packed, [N, D]
            assert noise.packed is not None
            lengths = noise.lengths[noise.packed.cells // noise.packed.home.shape[1], None]
        counter = torch.arange(output.numel(), device=output.device)
        draw = uniform(counter.new_tensor([noise.seed(seed, "neftune")]), counter).view_as(output) * 2 - 1
        return output + (draw * (alpha / (lengths * output.shape[-1]).sqrt())).to(output.dtype)

    body.neftune = alpha
    layer = body.network.get_input_embeddings() if hasattr(body, "network") else body.model.embed_tokens
    layer.register_forward_hook(hook)

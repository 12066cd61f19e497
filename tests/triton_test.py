"""The kernels of sampling on a GPU, interpreted on the CPU: against plain torch, in float32."""

import os
import subprocess
import sys
from importlib.util import find_spec
from itertools import product

import pytest
import torch

from postgrad.models import Config, Decoder
from postgrad.models.engine import Engine
from postgrad.models.kernels import plain

INSIDE = "TRITON_INTERPRET"  # has to be set before the kernels are read


def rows(head_dim, groups, seed=0):
    """qkv, angles and where each row stands; places and caches of keys and values."""
    make = torch.Generator().manual_seed(seed)
    random = lambda *shape: torch.randn(*shape, generator=make)  # noqa: E731
    at, slot = torch.tensor([0, 3, 7, 11, 2]), torch.tensor([4, 0, 2, 1, 5])
    prompt, read = torch.tensor([0, 1, 1, 2, 3]), torch.tensor([9, 4, 4, 1, 1])
    new = (random(5, (groups + 2) * 2 * head_dim), random(40, head_dim // 2), random(40, head_dim // 2),
           read + at, slot, at)
    return new, (random(4, 2, 9, head_dim), random(4, 2, 9, head_dim), prompt, read), [
        random(6, 2, 12, head_dim), random(6, 2, 12, head_dim)]


def close(one, other):
    torch.testing.assert_close(one, other, rtol=1e-5, atol=3e-5)


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_interpreted():
    """In a process of its own: the interpreter is chosen when triton is imported."""
    done = subprocess.run([sys.executable, __file__], env=os.environ | {INSIDE: "1"}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout


def inside():
    from postgrad.models.kernels import gpu
    for head_dim, groups, window in product((32, 64, 48), (1, 3, 20), (None, 5)):
        new, asked, own = rows(head_dim, groups)
        caches = [[x.clone() for x in own] for _ in range(2)]
        close(*(ops.attend(ops.place(*new, *cache), *asked, *cache, new[4], new[5] + 1, window)
                for ops, cache in zip((plain, gpu), caches, strict=True)))
        for mine, right in zip(*caches, strict=True):
            close(mine, right)
    x, delta, weight = torch.randn(3, 48), torch.randn(3, 48), torch.randn(48)
    mine, right = x.clone(), x.clone()
    close(gpu.add_norm(mine, delta, weight, 1e-5), plain.add_norm(right, delta, weight, 1e-5))
    close(mine, right)
    close(gpu.gate_halves(x), plain.gate_halves(x))
    whole_steps(gpu)


@torch.no_grad()
def whole_steps(gpu):
    """An engine's steps by either module's kernels, some with several tokens of a slot."""
    body = Decoder(Config(vocab_size=64, hidden_size=48, intermediate_size=80, num_hidden_layers=2,
                          num_attention_heads=6, num_key_value_heads=2, head_dim=8,
                          max_position_embeddings=64))
    body.start(torch.Generator().manual_seed(0))
    engines = [Engine(body, rows=6, prompts=2, read=8, new=8) for _ in range(2)]
    asked = torch.arange(12).view(2, 6)
    for engine, engine.ops in zip(engines, (plain, gpu), strict=True):
        engine.whole = None
        engine.prefill(asked, torch.tensor([6, 4]), [0, 1])
    number = torch.arange(6)
    place = number // 3
    for at, several in ((0, False), (1, False), (2, True), (4, False)):
        columns = [number + at, torch.full((6,), at), number, place, torch.tensor([6, 4])[place]]
        if several:  # tokens 2 and 3 of each slot
            columns = [torch.cat([x, x + 1 if i < 2 else x]) for i, x in enumerate(columns)]
        close(*(engine.step(*columns) for engine in engines))


if __name__ == "__main__":
    inside()

"""The kernels of sampling on a GPU, interpreted on the CPU: against plain torch, in float32."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

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
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_interpreted():
    """In a process of its own: the interpreter is chosen when triton is imported."""
    done = subprocess.run([sys.executable, __file__], env=os.environ | {INSIDE: "1"}, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout


def inside():
    from postgrad.models.kernels import gpu
    for head_dim, groups in ((32, 3), (64, 1), (48, 20)):
        for window in (None, 5):
            new, asked, own = rows(head_dim, groups)
            caches = [[x.clone() for x in own] for _ in range(3)]
            after = lambda ops, mine: ops.attend(  # noqa: E731
                ops.place(*new, *mine), *asked, *mine, new[4], new[5] + 1, window)
            said = [after(plain, caches[0]), after(gpu, caches[1]),
                    gpu.place_and_attend(*new, *asked, *caches[2], window)]
            for y, cache in zip(said[1:], caches[1:], strict=True):
                close(y, said[0])
                for mine, right in zip(cache, caches[0], strict=True):
                    close(mine, right)
    x, delta, weight = torch.randn(3, 48), torch.randn(3, 48), torch.randn(48)
    mine, right = x.clone(), x.clone()
    close(gpu.add_norm(mine, delta, weight, 1e-5), plain.add_norm(right, delta, weight, 1e-5))
    close(mine, right)
    close(gpu.gate_halves(x), plain.gate_halves(x))


if __name__ == "__main__":
    inside()

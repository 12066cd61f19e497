"""Attention over sequences that share prompts, interpreted on the CPU: against plain torch, gradients
included."""

from importlib.util import find_spec

import pytest
import torch

from postgrad.maths.packing import Packed, pack, pad_packed
from postgrad.models.kernels import plain
from tests.models.kernels.triton_test import close, flash, interpreted

# heads, those of keys, head_dim, window
SHAPES = [(3, 1, 64, None), (4, 4, 32, None), (4, 1, 80, None), (2, 1, 8, None), (2, 2, 16, 5),
          (3, 1, 16, 40)]


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_interpreted():
    interpreted(__file__)


def rows(lengths, prompts, groups) -> Packed:
    """Packed rows of these lengths; those of a group side by side share a prompt."""
    lengths, prompts, groups = (torch.tensor(x) for x in (lengths, prompts, groups))
    columns = torch.arange(int(lengths.max()))
    mask = (columns >= prompts[:, None]) & (columns < lengths[:, None])
    return pack(lengths, columns + 1000 * groups[:, None], mask)


def cases() -> dict[str, Packed]:
    """By what is particular about them; blocks have 16 tokens and more."""
    group = rows([40, 21, 33, 50, 30, 17], [20, 20, 20, 49, 16, 16], [0, 0, 0, 1, 2, 2])
    return {"ragged groups and a row alone": group,
            "padded, as for a graph": pad_packed(group, 200, piece=24),
            "no prompts": pack(torch.tensor([1, 16, 33, 5])),
            "a prompt all of whose rows but one are empty": rows([35, 70, 35], [35, 35, 35], [0, 0, 0]),
            "prompts of several blocks": rows([90, 70], [64, 64], [0, 0])}


def results(attention, shape, tokens, dtype):
    """The answers, and the gradients of q, k and v, which stand side by side; of numbers that 16 bits
    have."""
    H, KV, D, _ = shape
    make = torch.Generator().manual_seed(0)
    qkv = torch.randn(tokens, H + 2 * KV, D, generator=make).half().to(dtype).requires_grad_()
    dy = torch.randn(tokens, H, D, generator=make).half().to(dtype)
    y = attention(*qkv.split([H, KV, KV], 1))
    return torch.cat([y.detach(), torch.autograd.grad(y, qkv, dy)[0]], 1)


def inside():
    from postgrad.models.kernels import gpu
    from postgrad.models.kernels import gpu_training as kernels
    few = kernels.Tiles(32, 16, (16, 4, 1), (16, 4, 1), (32, 4, 1))
    others = kernels.Tiles(16, 32, (32, 4, 1), (16, 4, 1), (16, 4, 1))
    for number, (name, packed) in enumerate(cases().items()):
        for shape in SHAPES[number % 2:: 2]:
            for kernels.TILES in ({256: few}, {256: others}) if number < 1 else ({256: few},):
                compared(gpu, packed, shape, torch.float32, name)
    # in the place of bfloat16, of which the interpreter has no products
    compared(gpu, packed, SHAPES[0], torch.float16, "16 bits")
    turned(gpu)
    by_flash(gpu)


def by_flash(gpu):
    """The way of runs that are not compiled, with what stands for flash attention here."""
    def flash_back(dy, q, k, v, y, sums, laid, window):
        with torch.enable_grad():
            qkv = [x.detach().requires_grad_() for x in (q, k, v)]
            return torch.autograd.grad(flash(*qkv, laid, window)[0], qkv, dy)

    gpu.gpu_training.flash, gpu.gpu_training.flash_back = flash, flash_back
    for name in ("ragged groups and a row alone", "no prompts"):
        spans, N = cases()[name].spans, len(cases()[name].cells)
        close(*(results(lambda *qkv, laid=laid: gpu.attention(*qkv, laid), SHAPES[0], N, torch.float32)
                for laid in (spans.layout("cpu"), spans)))


def compared(gpu, packed, shape, dtype, name):
    H, KV, D, window = shape
    N, room = len(packed.cells), 2 * len(packed.spans.start)  # more than there are
    laid = gpu.block_layout(packed, D, room)
    mine = results(lambda *qkv: gpu.attention(*qkv, laid, window), shape, N, dtype)
    right = results(lambda *qkv: plain.attention(*qkv, packed.spans, window), shape, N, torch.float32)
    off = float((mine.float() - right).norm() / right.norm())
    assert off < (1e-6 if dtype == torch.float32 else 1e-3), (name, shape, off)


def turned(gpu):
    """With the turning to positions before it, and the heads of a key summed on the way back."""
    packed = cases()["ragged groups and a row alone"]
    make, N, half = torch.Generator().manual_seed(0), len(packed.cells), 4
    angle = torch.outer(packed.positions.float(), torch.rand(half, generator=make))
    cos, sin = angle.cos(), angle.sin()
    for H, KV, window in ((6, 2, None), (3, 3, 7), (4, 1, None)):
        qkv = torch.randn(N, (H + 2 * KV) * 2 * half, generator=make).requires_grad_()
        dy = torch.randn(N, H, 2 * half, generator=make)
        q, k, v = qkv.view(N, -1, 2 * half).split([H, KV, KV], 1)
        right = plain.attention(plain.rotate(q, cos, sin), plain.rotate(k, cos, sin), v, packed.spans, window)
        mine = gpu.attend_qkv(qkv, cos, sin, gpu.block_layout(packed, 2 * half), H, 2 * half, window)
        close(mine, right)
        close(*(torch.autograd.grad(y, qkv, dy) for y in (mine, right)))


if __name__ == "__main__":
    inside()

"""The kernels of a step of sampling on a GPU, interpreted on the CPU: against plain torch, in float32."""

from dataclasses import replace
from importlib.util import find_spec
from itertools import product

import pytest
import torch
from triton_test import close, interpreted, small_config

from postgrad.models import Decoder
from postgrad.models.engine import Engine
from postgrad.models.families import Parts
from postgrad.models.kernels import plain


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_steps_interpreted():
    interpreted(__file__)


def inside():
    from postgrad.models.kernels import gpu
    for head_dim, groups, window in product((32, 64, 48), (1, 3, 20), (None, 5)):
        looks(gpu, head_dim, groups, window)
    in_parts(gpu)
    whole_steps(gpu)


def rows(head_dim, groups, seed=0):
    """qkv, angles and where each row stands; places and slots of keys and values."""
    make = torch.Generator().manual_seed(seed)
    random = lambda *shape: torch.randn(*shape, generator=make)  # noqa: E731
    at, slot = torch.tensor([0, 3, 7, 11, 2]), torch.tensor([4, 0, 2, 1, 5])
    prompt, read = torch.tensor([0, 1, 1, 2, 3]), torch.tensor([9, 4, 4, 1, 1])
    new = (random(5, (groups + 2) * 2 * head_dim), random(40, head_dim // 2), random(40, head_dim // 2),
           at, slot, prompt, read)
    return new, (random(4, 2, 9, head_dim), random(4, 2, 9, head_dim)), [
        random(6, 2, 12, head_dim), random(6, 2, 12, head_dim)]


def looks(gpu, head_dim, groups, window):
    qkv, kept, own = rows(head_dim, groups)
    caches = [[x.clone() for x in own] for _ in range(2)]
    close(*(ops.look_back(*qkv, *kept, *cache, window)
            for ops, cache in zip((plain, gpu), caches, strict=True)))
    for mine, right in zip(*caches, strict=True):
        close(mine, right)


def in_parts(gpu):
    """Rows of one part beside rows of several, parts that end within a prompt, with it and after it, windows
    that begin in any of them, and rows that have more tokens than the angles tell of: every launch leaves the
    counts at zero."""
    from postgrad.models.kernels import gpu_step
    usual, count = (gpu_step.SPLIT, gpu_step.WHOLE), gpu_step.zeros(16, torch.device("cpu"))
    assert [gpu_step.part_size(*x) for x in ((1150, 1536), (1150, 384), (1150, 24), (260, 1536), (200, 24))
            ] == [512, 64, 64, 512, 256]
    gpu_step.WHOLE = 0
    for least, most, head_dim, groups, window in (
            (1, 80, 32, 1, 5), (2, 80, 32, 1, 5), (4, 80, 48, 3, None), (4, 80, 32, 20, 9),
            (8, 80, 32, 3, None), (1, 30, 32, 1, None), (3, 80, 32, 1, 8), (4, 9, 32, 1, None)):
        gpu_step.SPLIT = least, least, 0, most
        looks(gpu, head_dim, groups, window)
        assert not count.any()
    gpu_step.SPLIT = 3, 3, 0, 80
    qkv, kept, own = rows(32, 1)
    short = [x[:6] if i in (1, 2) else x for i, x in enumerate(qkv)]  # two parts; the rest is still in memory
    close(gpu.look_back(*short, *kept, *own), plain.look_back(*qkv, *kept, *own))
    assert not count.any()
    gpu_step.SPLIT, gpu_step.WHOLE = usual


@torch.no_grad()
def whole_steps(gpu):
    """An engine's steps by plain torch, by the kernels one after the other, and by those of a whole step, in
    which a row's norm comes after its product; with rows in one part and in several."""
    from postgrad.models.kernels import gpu_step
    usual, gpu_step.WHOLE = gpu_step.SPLIT, 0
    for name, biased, known in (("llama", False, True), ("qwen3", False, True), ("llama", True, False),
                                ("olmo2", False, False)):
        parts = Parts(model_type=name, qkv_bias=biased, o_bias=biased, window=5, window_layers=(1,))
        body = Decoder(replace(small_config(), parts=parts)).start(torch.Generator().manual_seed(0))
        for x in body.parameters():
            x += 0.1 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
        engines = [Engine(body, rows=6, prompts=2, read=8, new=8) for _ in range(3)]
        for engine, ops in zip(engines, (plain, gpu, gpu), strict=True):
            engine.ops, engine.own, engine.panels = plain, set(), {}  # else the C kernels' weights in panels
            engine.refresh()
            engine.ops = ops
            engine.whole = gpu.whole_step(engine) if engine is engines[2] else None
            engine.prefill(torch.arange(12).view(2, 6), torch.tensor([6, 4]), [0, 1])
        assert bool(engines[2].whole) == known
        number = torch.arange(6)
        place = number // 3
        for at, gpu_step.SPLIT in enumerate(((4, 9, 99, 80), usual, usual, (9, 4, 2, 80))):
            columns = [number + at, torch.full((6,), at), number, place, torch.tensor([6, 4])[place]]
            right, *mine = (engine.step(*columns) for engine in engines)
            for found in mine:
                close(found, right)
        for mine in engines[1:]:
            close(mine.k, engines[0].k)
            close(mine.v, engines[0].v)
    gpu_step.SPLIT = usual


if __name__ == "__main__":
    inside()

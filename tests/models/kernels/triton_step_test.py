"""The kernels of a step of sampling on a GPU, interpreted on the CPU: against plain torch, in float32."""

from dataclasses import replace
from importlib.util import find_spec
from itertools import product
from types import SimpleNamespace

import pytest
import torch

from postgrad.models import Decoder
from postgrad.models.engine import Engine
from postgrad.models.families import Architecture
from postgrad.models.hf_engine import HFEngine
from postgrad.models.kernels import plain
from postgrad.sampling import Sampling
from tests.models.kernels.triton_test import close, interpreted, small_config


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
def test_steps_interpreted():
    interpreted(__file__)


def inside():
    from postgrad.models.kernels import gpu
    for head_dim, groups, window in product((32, 64, 48), (1, 3, 20), (None, 5)):
        looks(gpu, head_dim, groups, window)
    in_parts(gpu)
    kept(gpu)
    together()
    chosen(gpu)
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
    close(*(ops.step_attention(*qkv, *kept, *cache, window)
            for ops, cache in zip((plain, gpu), caches, strict=True)))
    for mine, right in zip(*caches, strict=True):
        close(mine, right)


def kept(gpu):
    """Keys and values that stand by themselves, among others, and in another order."""
    make = torch.Generator().manual_seed(0)
    both, place = torch.randn(7, 5, 48, generator=make), torch.tensor([2, 2, 2, 0, 0, 3, 3])
    position, turned = torch.tensor([0, 1, 2, 0, 1, 0, 8]), torch.randn(3, 7, 48, generator=make)
    for k, v in ((both[:, :3], both[:, 2:]), (both[:, :3].contiguous(), turned.transpose(0, 1))):
        places = [[torch.zeros(4, 3, 9, 48) for _ in "kv"] for _ in range(2)]
        for ops, (keys, values) in zip((plain, gpu), places, strict=True):
            ops.store_kv(k, v, place, position, keys, values)
        for mine, right in zip(*places, strict=True):
            assert torch.equal(mine, right) and mine.any()


def in_parts(gpu):
    """Rows of one part beside rows of several, parts that end within a prompt, with it and after it, windows
    that begin in any of them, and rows that have more tokens than the angles tell of: every launch leaves the
    counts at zero."""
    from postgrad.models.kernels import decode_attention as kernel
    usual, count = (kernel.SPLIT, kernel.WHOLE), kernel.zero_counts(16, torch.device("cpu"))
    assert [kernel.part_size(*x) for x in ((1150, 1536), (1150, 384), (1150, 24), (260, 1536), (200, 24))
            ] == [512, 64, 64, 512, 256]
    kernel.WHOLE = 0
    for least, most, head_dim, groups, window in (
            (1, 80, 32, 1, 5), (2, 80, 32, 1, 5), (4, 80, 48, 3, None), (4, 80, 32, 20, 9),
            (8, 80, 32, 3, None), (1, 30, 32, 1, None), (3, 80, 32, 1, 8), (4, 9, 32, 1, None)):
        kernel.SPLIT = least, least, 0, most
        looks(gpu, head_dim, groups, window)
        assert not count.any()
    kernel.SPLIT = 3, 3, 0, 80
    qkv, kept, own = rows(32, 1)
    short = [x[:6] if i in (1, 2) else x for i, x in enumerate(qkv)]  # two parts; the rest is still in memory
    close(gpu.step_attention(*short, *kept, *own), plain.step_attention(*qkv, *kept, *own))
    assert not count.any()
    kernel.SPLIT, kernel.WHOLE = usual


def together():
    """Rows that look at a prompt together beside rows that have another, cut where there are too many, with a
    window that leaves out a part of a prompt; rows that are parted, which look alone; programs of fewer rows
    where there would be too few of them."""
    from postgrad.models.kernels import decode_attention as kernel
    for asked, rows in (((512, 3, 3), 4), ((512, 8, 1), 16), ((512, 8, 9), 1), ((64, 3, 3), 1)):
        assert kernel.rows_of_program(*asked) == rows
    usual = kernel.SPLIT, kernel.WHOLE, kernel.QUERIES, kernel.PROGRAMS
    make, count = torch.Generator().manual_seed(0), kernel.zero_counts(32, torch.device("cpu"))
    random = lambda *shape: torch.randn(*shape, generator=make)  # noqa: E731
    places = torch.tensor([2, 2, 2, 2, 2, 0, 1, 1, 3, 1])
    kernel.WHOLE, kernel.PROGRAMS, read = 0, 1, torch.tensor([4, 9, 13, 1])[places]
    at, slot = torch.tensor([0, 3, 7, 11, 2, 5, 1, 9, 4, 8]), torch.randperm(10, generator=make)
    for queries, head_dim, many, split, window in (
            (3, 32, 16, 99, None), (3, 48, 32, 99, None), (1, 32, 16, 99, 9), (20, 32, 64, 99, None),
            (1, 20, 2, 99, 4), (3, 32, 16, 4, None)):
        kernel.QUERIES, kernel.SPLIT = many, (split, split, 0, 999)
        qkv, angles = random(10, (queries + 2) * 2 * head_dim), [random(30, head_dim // 2) for _ in range(2)]
        kept, own = ([random(n, 2, size, head_dim) for _ in range(2)] for n, size in ((4, 13), (11, 12)))
        caches = [[x.clone() for x in own] for _ in range(2)]
        close(*(ops.step_attention(qkv, *angles, at, slot, places, read, *kept, *cache, window)
                for ops, cache in zip((plain, kernel), caches, strict=True)))
        assert not count.any()
        for mine, right in zip(*caches, strict=True):
            close(mine, right)
    kernel.SPLIT, kernel.WHOLE, kernel.QUERIES, kernel.PROGRAMS = usual


def chosen(gpu):
    """Tokens by way of the sums of pieces against those from the logits, and what is noted of them: rows at
    both ends of the distribution, that go on, stop, reach their length or were done before; a vocabulary that
    ends within a piece and a tile."""
    from postgrad.models.kernels import gpu_decode
    make = torch.Generator().manual_seed(0)
    n, V, K, ends = 6, 700, 40, torch.tensor([1, 2])
    head, hidden = torch.randn(V, K, generator=make), torch.randn(n + 1, K, generator=make)
    head[3], head[1] = 40 * hidden[5] / K, 40 * hidden[4] / K  # the likeliest by far, in two rows
    settings = Sampling(max_new_tokens=5, temperature=0.7)
    engine, found = SimpleNamespace(weights={"head": head}), []
    u = torch.rand(n + 1, 6, generator=make, dtype=torch.float64)
    u[4, 0], u[0, 3] = 0.0, 1 - 1e-6
    for ours in (False, True):
        rows = SimpleNamespace(
            engine=engine, settings=settings, hidden=hidden, u=u, ends=ends,
            slot=torch.tensor([4, 0, 2, 1, 3, 6]), at=torch.tensor([0, 3, 2, 4, 5, 1]),
            shown=torch.tensor([0, 7, 0, 1, 0, 0]),
            count=torch.tensor([0, 3, 2, 4, 5, 1]), done=torch.tensor([False] * 5 + [True]),
            out=torch.zeros(7, 6, dtype=torch.int64), logp=torch.zeros(7, 6))
        if ours:
            token, where = gpu_decode.sample_from_states(rows, n)
        else:
            token, logp = plain.sample_tokens(hidden[:n] @ head.T, u[rows.slot, rows.at],
                                              settings.temperature)
            where = plain.record_tokens(token, logp, rows.at, rows.slot, rows.shown, rows.done, rows.count,
                                        rows.out, rows.logp, ends, settings.max_new_tokens)
        found.append([token, where, rows.at, rows.count, rows.done, rows.out, rows.logp])
    for mine, right in zip(*found, strict=True):
        close(mine, right)
    token, done = found[0][0].tolist(), found[0][4].tolist()
    assert token[4:] == [1, 3] and done == [False, False, False, True, True, True]
    rows.settings, engine.weights["head"] = settings, torch.empty(gpu_decode.LARGE, 8, dtype=torch.bfloat16)
    assert gpu_decode.fused_sampler(rows)
    for change in ({"top_k": 3}, {"temperature": 0.0}):
        rows.settings = replace(settings, **change)
        assert gpu_decode.fused_sampler(rows) is None
    rows.settings, engine.weights["head"] = settings, torch.empty(gpu_decode.LARGE, 8)
    assert gpu_decode.fused_sampler(rows) is None
    engine.weights = HFEngine.weights
    assert gpu_decode.fused_sampler(rows) is None


@torch.no_grad()
def whole_steps(gpu):
    """An engine's steps by plain torch, by the kernels one after the other, and by those of a whole step, in
    which a row's norm comes after its product; with rows in one part and in several, and prompts that are
    looked at for all rows at once."""
    from postgrad.models.kernels import decode_attention as kernel
    usual, kernel.WHOLE = (kernel.SPLIT, kernel.PROGRAMS), 0
    for name, biased, known in (("llama", False, True), ("qwen3", False, True), ("llama", True, False),
                                ("olmo2", False, False)):
        parts = Architecture(model_type=name, qkv_bias=biased, o_bias=biased, window=5, window_layers=(1,))
        body = Decoder(replace(small_config(), architecture=parts)).start(torch.Generator().manual_seed(0))
        for x in body.parameters():
            x += 0.1 * torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
        engines = [Engine(body, rows=6, prompts=2, read=8, new=8) for _ in range(3)]
        for engine, ops in zip(engines, (plain, gpu, gpu), strict=True):
            engine.ops, engine.own, engine.panels = plain, set(), {}  # else the C kernels' weights in panels
            engine.refresh()
            engine.ops = ops
            runs = engine is engines[2] and gpu.FUSED_STEP.supports(engine.layers[0]) is None
            engine.whole = gpu.fused_step(engine) if runs else None
            engine.prefill(torch.arange(12).view(2, 6), torch.tensor([6, 4]), [0, 1])
        assert bool(engines[2].whole) == known
        number = torch.arange(6)
        place = number // 3
        for at, kernel.SPLIT in enumerate(((4, 9, 99, 80), usual[0], usual[0], (9, 4, 2, 80))):
            kernel.PROGRAMS = 256 if at == 2 else 1
            columns = [number + at, torch.full((6,), at), number, place, torch.tensor([6, 4])[place]]
            right, *mine = (engine.step(*columns) for engine in engines)
            for found in mine:
                close(found, right)
        for mine in engines[1:]:
            close(mine.k, engines[0].k)
            close(mine.v, engines[0].v)
    kernel.SPLIT, kernel.PROGRAMS = usual


if __name__ == "__main__":
    inside()

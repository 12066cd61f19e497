"""Attention in training by itself, of one layer: our kernels (models/kernels/gpu_training.py) over their
block sizes, and flash attention with what it has to take and give back (training.py). A part of
train_kernels.py.

Groups of prompts and replies, as GRPO has them; how far off: from plain attention in float32, of the norm.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from shapes import SHAPES
from torch import Tensor

from postgrad.maths.packing import Packed, pack
from postgrad.models.kernels import gpu_training, plain

# tokens of a program, tokens on the other side at a time, warps, stages
GRID = [(64, 64, 4, 2), (64, 64, 4, 3), (64, 32, 4, 3), (64, 128, 4, 2), (128, 64, 4, 2), (128, 64, 8, 2),
        (128, 64, 8, 3), (128, 128, 8, 2), (128, 32, 4, 3)]
REPEATS = 10  # in one graph, so that no launch is waited for


@dataclass(frozen=True)
class Layer:
    """What attention gets in a layer, forward and backward, and what it should give."""

    packed: Packed
    qkv: tuple[Tensor, Tensor, Tensor]
    dy: Tensor
    right: dict[str, Tensor]

    @classmethod
    def made(cls, heads: tuple[int, int, int], groups: int, samples: int, prompt: int, reply: int,
             device: str) -> Layer:
        rows, long = groups * samples, prompt + reply
        columns = torch.arange(long)
        tokens = columns + 10_000 * (torch.arange(rows) // samples)[:, None]
        packed = pack(torch.full((rows,), long), tokens, (columns >= prompt).expand(rows, long)).to(device)
        (H, KV, D), N, make = heads, len(packed.cells), torch.Generator(device).manual_seed(0)
        dtype = torch.bfloat16 if device == "cuda" else torch.float32  # the interpreter has no bfloat16
        q, k, v, dy = (torch.randn(N, n, D, device=device, generator=make).to(dtype) for n in (H, KV, KV, H))
        single = [x.float().requires_grad_() for x in (q, k, v)]
        y = plain.attention(*single, packed.spans)
        slopes = torch.autograd.grad(y, single, dy.float())
        right = dict(zip(("y", "dq", "dk", "dv"), (y.detach(), *slopes), strict=True))
        return cls(packed, (q, k, v), dy, right)

    def off(self, **found: Tensor) -> str:
        """Heads of a key that are still apart are summed."""
        parts = {name: x.float().unflatten(1, (self.right[name].shape[1], -1)).sum(2)
                 for name, x in found.items()}
        return ", ".join(f"{name} {apart(x, self.right[name]):.1e}" for name, x in parts.items())


def apart(mine: Tensor, right: Tensor) -> float:
    return float((mine.double() - right.double()).norm() / right.double().norm())


def microseconds(work: Callable[[], object], rounds: int = 7) -> float:
    """The median, of the GPU's own time where there is one."""
    if not torch.cuda.is_available():
        began = time.perf_counter()
        work()
        return 1e6 * (time.perf_counter() - began)
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(REPEATS):
            work()
    seen = []
    for _ in range(rounds + 2):
        ends = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        ends[0].record()
        graph.replay()
        ends[1].record()
        torch.cuda.synchronize()
        seen.append(1e3 * ends[0].elapsed_time(ends[1]) / REPEATS)
    return statistics.median(seen[2:])


def line(name: str, work: Callable[[], object], off: Callable[[], str] = str) -> str:
    """A way that fails is said, and the next one tried."""
    try:
        wrong = off()  # compiled, and what does not fit is noticed
        return f"  {name:44s} {microseconds(work):9.1f} us  {f'off by {wrong}' if wrong else ''}"
    except Exception as fault:  # shared memory, say
        return f"  {name:44s} failed: {' '.join(str(fault).split())[:120]}"


def by_flash(x: Layer) -> Iterator[str]:
    """Each piece, and all of them, of a layer; the sums over heads are in give_back."""
    (q, k, v), dy, N = x.qkv, x.dy, len(x.dy)
    laid, times = x.packed.spans.laid(q.device), q.shape[1] // k.shape[1]
    taken, again = gpu_training.gather_keys(k, v, laid.keys), gpu_training.gather_keys(k, v, laid.keys, times)
    y, sums = gpu_training.flash(q, *taken, laid, -1)
    slopes = gpu_training.flash_back(dy, q, *again, y, sums, laid, -1)

    def both() -> dict[str, Tensor]:
        y, sums = gpu_training.flash(q, *gpu_training.gather_keys(k, v, laid.keys), laid, -1)
        keys = gpu_training.gather_keys(k, v, laid.keys, times)
        dq, dk, dv = gpu_training.flash_back(dy, q, *keys, y, sums, laid, -1)
        dk, dv = gpu_training.sum_key_gradients(dk, dv, laid, N, times)
        return {"y": y, "dq": dq, "dk": dk, "dv": dv}

    yield line("flash: take", lambda: gpu_training.gather_keys(k, v, laid.keys))
    yield line("flash: forward", lambda: gpu_training.flash(q, *taken, laid, -1))
    yield line("flash: take, a key for each query's head",
               lambda: gpu_training.gather_keys(k, v, laid.keys, times))
    yield line("flash: backward", lambda: gpu_training.flash_back(dy, q, *again, y, sums, laid, -1))
    yield line("flash: give back", lambda: gpu_training.sum_key_gradients(*slopes[1:], laid, N, times))
    yield line("flash: all", both, lambda: x.off(**both()))


def by_ours(x: Layer, quick: bool) -> Iterator[str]:
    """Each kernel as it is and over the grid; the sums over heads are in what turns the gradients back."""
    (q, k, v), dy = x.qkv, x.dy
    (N, H, D), KV = dy.shape, k.shape[1]
    most = next(most for most in gpu_training.TILES if D <= most)
    laid, before = gpu_training.block_layout(x.packed, D), gpu_training.TILES[most]
    y, sums = gpu_training.block_forward(q, k, v, laid, None)
    given = y, sums, gpu_training.back_q(dy, q, k, v, y, sums, laid, None)[1]
    yield from three(x, "as it is", given)
    yield line("ours: all",
               lambda: gpu_training.block_backward(
                   dy, q, k, v, *gpu_training.block_forward(q, k, v, laid, None), laid, None))
    qkv, angles = q.new_empty(N, (H + 2 * KV) * D), q.new_ones(2, N, D // 2)
    for name, parts in (("heads apart", (dy, dy, dy)), ("heads summed before", (dy, k, v))):
        yield line(f"turned back, {name}",
                   lambda parts=parts: gpu_training.launch_rotate(qkv, parts, *angles, KV, back=True))
    for own, *other in [] if quick else GRID:
        gpu_training.TILES[most] = gpu_training.Tiles(own, own, *[tuple(other)] * 3)
        at_a_time, warps, stages = other
        yield from three(x, f"{own} x {at_a_time}, warps {warps}, stages {stages}", given)
    gpu_training.TILES[most] = before


def three(x: Layer, name: str, given: tuple[Tensor, Tensor, Tensor]) -> Iterator[str]:
    """The three kernels in the sizes that are set; given: what the backward pass is."""
    (q, k, v), dy, (y, sums, dots) = x.qkv, x.dy, given
    laid = gpu_training.block_layout(x.packed, dy.shape[2])
    ways: dict[str, tuple[Callable, tuple[str, ...]]] = {
        "forward": (lambda: gpu_training.block_forward(q, k, v, laid, None), ("y",)),
        "back_q ": (lambda: gpu_training.back_q(dy, q, k, v, y, sums, laid, None), ("dq",)),
        "back_kv": (lambda: gpu_training.back_kv(dy, q, k, v, sums, dots, laid, None), ("dk", "dv"))}
    for kernel, (work, names) in ways.items():
        yield line(f"{kernel} {name}", work,
                   lambda work=work, names=names: x.off(**dict(zip(names, work(), strict=False))))


def attention(device: str, quick: bool) -> Iterator[str]:
    """13 prompts of 128 tokens with 8 replies of 128 each, about a pass; on a CPU a few tokens."""
    for name in ("135M", "1B"):
        c = SHAPES[name]
        heads = c.num_attention_heads, c.num_key_value_heads, c.head_dim
        x = Layer.made(heads, *((13, 8, 128, 128) if device == "cuda" else (1, 2, 9, 20)), device)
        yield f"  {name}: {heads[0]} heads, {heads[1]} of keys, of {heads[2]}; {len(x.dy)} tokens"
        if device == "cuda":
            yield from by_flash(x)
        yield from by_ours(x, quick)

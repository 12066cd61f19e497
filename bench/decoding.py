"""The kernels of a step of sampling on a GPU, one at a time and in other divisions: microseconds of a launch
among many, and how far each is from the plain one.

    python bench/decoding.py [--shape 135M] [--rows 512] [--prompt 128] [--new 64]     about a minute

A program of `_attend` goes through its keys block by block, so its time is a chain of a few loads and
products: larger blocks and more warps shorten the chain. `_place` has a program for each head; here also one
for many heads.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from itertools import product
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), str(HERE / "bench")]

import torch  # noqa: E402
import triton  # noqa: E402
import triton.language as tl  # noqa: E402
from shapes import SHAPES  # noqa: E402

from postgrad.models.kernels import gpu, plain  # noqa: E402


@triton.jit
def _place_heads(qkv, cos, sin, position, slot, at, q, k_cache, v_cache, H, KV, NEW, HALF: tl.constexpr,
                 ROUND: tl.constexpr, HEADS: tl.constexpr):
    """As gpu._place, HEADS heads of a row in one program."""
    row, i = tl.program_id(0).to(tl.int64), tl.arange(0, ROUND)[None, :]
    head = tl.program_id(1) * HEADS + tl.arange(0, HEADS)[:, None]
    inside = (head < H + 2 * KV) & (i < HALF)
    source = qkv + (row * (H + 2 * KV) + head) * 2 * HALF + i
    a, b = tl.load(source, inside, 0.0), tl.load(source + HALF, inside, 0.0)
    angle = tl.load(position + row) * HALF + i
    c = tl.load(cos + angle, i < HALF, 0.0).to(tl.float32)
    s = tl.load(sin + angle, i < HALF, 0.0).to(tl.float32)
    left, right = a.to(tl.float32), b.to(tl.float32)
    turned = head < H + KV
    a = tl.where(turned, (left * c - right * s).to(a.dtype), a)
    b = tl.where(turned, (right * c + left * s).to(b.dtype), b)
    asked = q + (row * H + head) * 2 * HALF + i
    tl.store(asked, a, inside & (head < H))
    tl.store(asked + HALF, b, inside & (head < H))
    cell = ((tl.load(slot + row) * KV + (head - H) % KV) * NEW + tl.load(at + row)) * 2 * HALF + i
    key, value = inside & (head >= H) & turned, inside & (head >= H + KV)
    tl.store(k_cache + cell, a, key)
    tl.store(k_cache + cell + HALF, b, key)
    tl.store(v_cache + cell, a, value)
    tl.store(v_cache + cell + HALF, b, value)


def micros(work: Callable[[], object], times: int = 50) -> float:
    """Of one launch in a graph of many."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            work()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    found = []
    for _ in range(4):
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        found.append(1e3 * begin.elapsed_time(end) / times)
    return min(found)


def apart(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double() - b.double()).norm() / b.double().norm())


class Cells:
    """Queries, keys and values of a step in the middle of a call: groups of 8 rows share their prompt."""

    def __init__(self, shape: str, rows: int, prompt: int, new: int):
        c = SHAPES[shape]
        self.H, self.KV, self.D, self.rows = c.num_attention_heads, c.num_key_value_heads, c.head_dim, rows
        make = torch.Generator("cuda").manual_seed(0)
        half = dict(generator=make, device="cuda", dtype=torch.bfloat16)
        places = rows // 8
        self.q = torch.randn(rows, self.H, self.D, **half)
        self.qkv = torch.randn(rows, (self.H + 2 * self.KV) * self.D, **half)
        self.k_prompt, self.v_prompt = (torch.randn(places + 1, self.KV, prompt, self.D, **half)
                                        for _ in range(2))
        self.k, self.v = (torch.randn(rows + 1, self.KV, 2 * new, self.D, **half) for _ in range(2))
        whole = dict(dtype=torch.int64, device="cuda")
        self.prompt = torch.arange(rows, **whole) // 8
        self.slot, self.read = torch.arange(rows, **whole), torch.full((rows,), prompt, **whole)
        self.length = torch.full((rows,), new, **whole)
        angles = torch.rand(prompt + 2 * new, self.D // 2, generator=make, device="cuda")
        self.cos, self.sin = angles.cos().bfloat16(), angles.sin().bfloat16()

    def attend(self, block: int, warps: int, stages: int) -> torch.Tensor:
        out = self.q.new_empty(self.rows, self.H * self.D)
        gpu._attend[(self.rows, self.KV)](
            self.q, self.k_prompt, self.v_prompt, self.prompt, self.read, self.k, self.v, self.slot,
            self.length, out, self.k_prompt.shape[2], self.k.shape[2], self.D**-0.5, 1 << 30, KV=self.KV,
            REP=self.H // self.KV, D=self.D, ROUND=triton.next_power_of_2(max(self.D, 16)), BLOCK=block,
            ROWS=triton.next_power_of_2(max(self.H // self.KV, 16)), num_warps=warps, num_stages=stages)
        return out

    def place(self, heads: int, warps: int) -> torch.Tensor:
        q, half = torch.empty_like(self.q), self.D // 2
        _place_heads[(self.rows, triton.cdiv(self.H + 2 * self.KV, heads))](
            self.qkv, self.cos, self.sin, self.read, self.slot, self.length, q, self.k, self.v, self.H,
            self.KV, self.k.shape[2], HALF=half, ROUND=triton.next_power_of_2(half), HEADS=heads,
            num_warps=warps)
        return q

    def placed(self) -> torch.Tensor:
        return gpu.place(self.qkv, self.cos, self.sin, self.read, self.slot, self.length, self.k, self.v)


def tried(name: str, work: Callable[[], torch.Tensor], right: torch.Tensor) -> None:
    """A division that the compiler or the card refuses is said and passed over."""
    try:
        print(f"{name}: {micros(work):.2f} us, off by {apart(work(), right):.1e}", flush=True)
    except (RuntimeError, triton.runtime.errors.OutOfResources) as error:
        print(f"{name}: {str(error)[:80]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="135M", choices=SHAPES)
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--new", type=int, default=64)
    args = parser.parse_args()
    cells = Cells(args.shape, args.rows, args.prompt, args.new)
    right = plain.attend(cells.q.float(), cells.k_prompt.float(), cells.v_prompt.float(), cells.prompt,
                         cells.read, cells.k.float(), cells.v.float(), cells.slot, cells.length)
    for block, warps, stages in product((16, 32, 64, 128), (1, 2, 4, 8), (1, 2, 3)):
        tried(f"attend, blocks of {block}, {warps} warps, {stages} stages",
              lambda b=block, w=warps, s=stages: cells.attend(b, w, s), right)
    asked = cells.placed()
    tried("place, a program a head", cells.placed, asked)
    for heads, warps in product((4, 8, 16), (1, 2, 4)):
        tried(f"place, {heads} heads a program, {warps} warps",
              lambda h=heads, w=warps: cells.place(h, w), asked)
    x, weight = cells.qkv, torch.ones(cells.qkv.shape[1], device="cuda", dtype=torch.bfloat16)
    print(f"add_norm: {micros(lambda: gpu.add_norm(x, None, weight, 1e-5)):.2f} us")
    print(f"gate_halves of {x.shape[1]}: {micros(lambda: gpu.gate_halves(x)):.2f} us")


if __name__ == "__main__":
    main()

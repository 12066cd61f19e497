"""A step of sampling on a GPU, all layers: kernel by kernel with cuBLAS's products, and by the kernels of a
whole step (models/kernels/gpu_step.py) in this and in other divisions; then what stands around the layers.

    python bench/decoding.py [--shape 135M] [--rows 512] [--prompt 128] [--new 64] [--sweep] [--seconds 120]

Microseconds of a replayed graph, in the middle of a call of groups of 8 rows, and how far the states are from
those of float32. --sweep: each kernel in turn in other divisions, the best of each kept for the next.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), str(HERE / "bench")]

import torch  # noqa: E402
import triton  # noqa: E402
from shapes import SHAPES, write_model  # noqa: E402

from postgrad.models import load_model  # noqa: E402
from postgrad.models.engine import Engine  # noqa: E402
from postgrad.models.kernels import gpu, gpu_step  # noqa: E402
from postgrad.models.kernels.gpu_step import Tile  # noqa: E402


def micros(work: Callable[[], object], times: int = 1) -> float:
    """Of one of so many in a graph."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            work()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    found = []
    for _ in range(12):
        begin.record()
        graph.replay()
        end.record()
        torch.cuda.synchronize()
        found.append(1e3 * begin.elapsed_time(end) / times)
    return sorted(found)[2]


class Midway:
    """An engine whose rows have written half of their tokens."""

    def __init__(self, folder: Path, args: argparse.Namespace, dtype: torch.dtype):
        model = load_model(folder, device="cuda", dtype=dtype)
        self.rows, groups = args.rows, max(1, args.rows // 8)
        self.engine = Engine(model, rows=args.rows, prompts=groups, read=args.prompt, new=2 * args.new + 1)
        make = torch.Generator("cuda").manual_seed(0)
        for kept in (self.engine.k, self.engine.v, self.engine.k_prompt, self.engine.v_prompt):
            kept.copy_(torch.randn(kept.shape, generator=make, device="cuda").to(torch.bfloat16))
        row = torch.arange(args.rows, device="cuda")
        self.columns = (row + 5, torch.full_like(row, args.new), row, row // 8 % groups,
                        torch.full_like(row, args.prompt))

    def states(self) -> torch.Tensor:
        return self.engine.step(*self.columns)


def divisions(name: str, rows: int) -> Iterator[Tile]:
    sizes, parts = (32, 64, 128), 2 if name == "gate_up" else 1
    for high, wide, deep, warps, stages in product(sizes, sizes, (64, 128), (4, 8), (3, 4, 5)):
        room = stages * deep * (high + parts * wide) * 2
        if high <= max(16, rows) and room <= 200_000 and 1024 <= high * wide <= 8192:
            yield Tile(high, wide, deep, warps, stages)


def tried(name: str, work: Callable[[], float]) -> float:
    """A division that the compiler or the card refuses is said and passed over."""
    try:
        found = work()
        print(f"{name}: {found:.1f} us", flush=True)
        return found
    except (RuntimeError, triton.runtime.errors.OutOfResources, triton.CompilationError) as error:
        print(f"{name}: {str(error)[:80]!r}", flush=True)
        return float("inf")


def sweep(now: Midway, seconds: float) -> None:
    """One kernel at a time; the time is shared out between them."""
    best = micros(now.states)
    for place, name in enumerate((*gpu_step.TILES, "look")):
        ends = time.monotonic() + seconds / 5
        table = vars(gpu_step) if name == "look" else gpu_step.TILES
        key, kept = ("LOOK", gpu_step.LOOK) if name == "look" else (name, gpu_step.TILES[name])
        others = list(product((16, 32, 64), (1, 2), (1, 2, 3, 4)) if name == "look"
                      else divisions(name, now.rows))
        others.sort(key=lambda other: sum(a != b for a, b in zip(other, kept, strict=True)))
        for other in others:
            if time.monotonic() > ends:
                break
            table[key] = other
            found = tried(f"{name} {tuple(other)}", lambda: micros(now.states))
            if found < best:
                best, kept = found, other
        table[key] = kept
        print(f"-- {place} {name}: {tuple(kept)}, {best:.1f} us", flush=True)


def around(now: Midway) -> None:
    """What a token takes besides its layers."""
    hidden, engine = now.states(), now.engine
    logits, u = engine.logits(hidden), torch.rand(now.rows, device="cuda", dtype=torch.float64)
    token, logp = gpu.pick(logits, u, 1.0)
    at = torch.zeros(now.rows, dtype=torch.int64, device="cuda")
    done, out = at.bool(), torch.zeros(now.rows + 1, 4, dtype=torch.int64, device="cuda")
    parts = {"embedding": lambda: engine.weights["embed"][token], "logits": lambda: engine.logits(hidden),
             "pick": lambda: gpu.pick(logits, u, 1.0),
             "note": lambda: gpu.note(token, logp, at, now.columns[2], at.clone(), done, at.clone(), out,
                                      out.float(), token[:2], 3),
             "last norm": lambda: gpu.add_norm(hidden, None, engine.weights["norm"], 1e-5)}
    for name, work in parts.items():
        print(f"{name}: {micros(work, 20):.1f} us", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="135M", choices=SHAPES)
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--seconds", type=float, default=120)
    args = parser.parse_args()
    gpu_step.WIDEST = 1 << 20  # also where the other way is taken
    with tempfile.TemporaryDirectory() as folder:
        write_model(Path(folder) / "model", SHAPES[args.shape], dtype=torch.bfloat16)
        exact = Midway(Path(folder) / "model", args, torch.float32).states()
        now = Midway(Path(folder) / "model", args, torch.bfloat16)
    whole = now.engine.whole
    for name, now.engine.whole in (("kernel by kernel", None), ("whole step", whole)):
        off = float((now.states().double() - exact.double()).norm() / exact.double().norm())
        tried(f"{args.shape}, {args.rows} rows, {name}, off by {off:.1e}", lambda: micros(now.states))
    early, gpu_step.starts_early = gpu_step.starts_early, lambda x: False
    tried("whole step, each kernel after the end of the one before", lambda: micros(now.states))
    gpu_step.starts_early = early
    around(now)
    if args.sweep:
        sweep(now, args.seconds)


if __name__ == "__main__":
    main()

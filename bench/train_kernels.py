"""The kernels of training by themselves, before and after, and over their block sizes: the softmax over the
vocabulary (models/kernels/vocab_softmax.py), the head's gradient, the sums of gradients (gradient_sums.py),
attention (train_attention.py).

    python bench/train_kernels.py                        the 135M shape
    python bench/train_kernels.py --only gather          or read, slope, head, joined, graphs, attention
    TRITON_INTERPRET=1 python bench/train_kernels.py --device cpu --rows 4 --quick     on a CPU: that it runs
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product as pairs
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), str(HERE / "bench")]

import torch  # noqa: E402
from shapes import SHAPES  # noqa: E402
from torch import Tensor  # noqa: E402
from train_attention import apart, attention  # noqa: E402

from postgrad.maths import logprob  # noqa: E402
from postgrad.maths.logprob import add_product, product  # noqa: E402
from postgrad.models.kernels import gradient_sums, vocab_softmax  # noqa: E402
from postgrad.models.layer import stored_tensors  # noqa: E402

READS = [(2048, 4), (2048, 8), (4096, 4), (4096, 8), (4096, 16), (8192, 8), (8192, 16)]
SLOPES = [*pairs((1024, 2048, 4096, 8192), (4, 8))]
PIECES = [*pairs((2048, 4096, 8192), (4, 8))]
TILES = [(128, 128, 64, 4, 3), (128, 128, 64, 8, 3), (128, 128, 64, 8, 4), (128, 256, 64, 8, 3),
         (256, 128, 64, 8, 3), (128, 128, 32, 4, 4), (64, 256, 64, 4, 3), (64, 128, 64, 4, 4)]
EXACT = 64  # rows that are compared with float64


@dataclass(frozen=True)
class Chunk:
    """The logits of a chunk, and what its backward pass is given."""

    shape: str
    states: Tensor
    head: Tensor
    tokens: Tensor
    by_logp: Tensor
    by_entropy: Tensor
    logits: Tensor

    @classmethod
    def made(cls, shape: str, rows: int, device: str) -> Chunk:
        c, make = SHAPES[shape], torch.Generator(device).manual_seed(0)
        random = lambda *size: torch.randn(*size, device=device, generator=make)  # noqa: E731
        states = random(rows, c.hidden_size).bfloat16()
        head = (random(c.vocab_size, c.hidden_size) / 10).bfloat16()
        tokens = torch.randint(c.vocab_size, (rows,), device=device, generator=make)
        by_logp, by_entropy = random(2, rows) / rows
        return cls(shape, states, head, tokens, by_logp, by_entropy, product(states, head.T))


def milliseconds(work: Callable[[], object], rounds: int = 12) -> float:
    """The median, on the GPU's own clock where there is one."""
    if not torch.cuda.is_available():
        began = time.perf_counter()
        work()
        return 1e3 * (time.perf_counter() - began)
    seen = []
    for _ in range(rounds + 3):
        ends = [torch.cuda.Event(enable_timing=True) for _ in range(2)]
        ends[0].record()
        work()
        ends[1].record()
        torch.cuda.synchronize()
        seen.append(ends[0].elapsed_time(ends[1]))
    return statistics.median(seen[3:])


def host_milliseconds(work: Callable[[], object], rounds: int = 5) -> float:
    """What it takes the host to ask for it."""
    seen = []
    for _ in range(rounds):
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        began = time.perf_counter()
        work()
        seen.append(1e3 * (time.perf_counter() - began))
    return statistics.median(seen)


def measured(name: str, work: Callable[[], object], off: Callable[[], float], moved: int) -> str:
    """A line of the table; a way that fails is said, and the next one tried. moved: bytes at least."""
    try:
        wrong = off()
        took = milliseconds(work)
        return f"  {name:34s} {took:8.3f} ms  {moved / took / 1e6:6.0f} GB/s  off by {wrong:.1e}"
    except Exception as fault:  # a size that does not fit, say
        return f"  {name:34s} failed: {' '.join(str(fault).split())[:150]}"


def compiled(function: Callable) -> Callable:
    return torch.compile(function, dynamic=True) if torch.cuda.is_available() else function


def read(x: Chunk, quick: bool) -> Iterator[str]:
    right = torch.stack(logprob.read(x.logits[:EXACT].double(), x.tokens[:EXACT]))
    ways: dict[str, Callable] = {"plain, compiled": compiled(logprob.read),
                                 "kernel as it is": vocab_softmax.read_logits}
    for name, way in ways.items():
        yield measured(name, lambda way=way: way(x.logits, x.tokens),
                       lambda way=way: apart(torch.stack(way(x.logits[:EXACT], x.tokens[:EXACT])), right),
                       x.logits.nbytes)
    before = vocab_softmax.READ_BLOCK, vocab_softmax.READ_WARPS, vocab_softmax.READ_STAGES
    for (block, warps), stages in pairs(READS[:1] if quick else READS, (1, 3)):
        vocab_softmax.READ_BLOCK, vocab_softmax.READ_WARPS, vocab_softmax.READ_STAGES = block, warps, stages
        yield measured(f"block {block}, warps {warps}, stages {stages}",
                       lambda: vocab_softmax.read_logits(x.logits, x.tokens),
                       lambda: apart(torch.stack(vocab_softmax.read_logits(x.logits[:EXACT],
                                                                           x.tokens[:EXACT])), right),
                       x.logits.nbytes)
    vocab_softmax.READ_BLOCK, vocab_softmax.READ_WARPS, vocab_softmax.READ_STAGES = before


def slope(x: Chunk, quick: bool) -> Iterator[str]:
    total, _, entropy = vocab_softmax.read_logits(x.logits, x.tokens)
    exact = logprob.read(x.logits[:EXACT].double(), x.tokens[:EXACT])
    few, moved = slice(EXACT), x.logits.nbytes * 3 // 2

    def line(name: str, way: Callable, both: bool = False) -> str:
        def part(rows: slice) -> Tensor:
            return way(x.logits[rows], x.tokens[rows], total[rows], x.by_logp[rows], entropy[rows],
                       x.by_entropy[rows] if both else None, torch.bfloat16)

        right = logprob.slope(x.logits[few].double(), x.tokens[few], exact[0], x.by_logp[few].double(),
                            exact[2], x.by_entropy[few].double() if both else None, torch.float64)
        return measured(name, lambda: part(slice(None)), lambda: apart(part(few), right), moved)

    for both in (False, True):
        what = ", and by entropy" if both else ""
        yield line(f"plain, compiled{what}", compiled(logprob.slope), both)
        yield line(f"kernel as it is{what}", vocab_softmax.slope_logits, both)
    before = vocab_softmax.SLOPE_BLOCK, vocab_softmax.SLOPE_WARPS
    for vocab_softmax.SLOPE_BLOCK, vocab_softmax.SLOPE_WARPS in SLOPES[:1] if quick else SLOPES:
        yield line(f"block {vocab_softmax.SLOPE_BLOCK}, warps {vocab_softmax.SLOPE_WARPS}",
                   vocab_softmax.slope_logits)
    vocab_softmax.SLOPE_BLOCK, vocab_softmax.SLOPE_WARPS = before


def head(x: Chunk, quick: bool) -> Iterator[str]:
    """Its gradient, of one chunk after another."""
    total, _, entropy = vocab_softmax.read_logits(x.logits, x.tokens)
    slopes = vocab_softmax.slope_logits(x.logits, x.tokens, total, x.by_logp, entropy, None, torch.bfloat16)
    sums = torch.zeros(x.head.shape, device=x.head.device)

    def added() -> None:
        sums.add_(product(slopes.T, x.states))

    def off(way: Callable[[], object]) -> float:
        right = 1 + slopes.T[:1000].double() @ x.states.double()
        sums.fill_(1)
        way()
        return apart(sums[:1000], right)

    for name, way in (("product, then added", added),
                      ("added by the product", lambda: add_product(sums, slopes.T, x.states))):
        yield measured(name, way, lambda way=way: off(way), slopes.nbytes + 2 * sums.nbytes)


def joined(x: Chunk, quick: bool) -> Iterator[str]:
    """Product and softmax in one (head.py), and one after the other."""
    exact = logprob.read(x.logits[:EXACT].double(), x.tokens[:EXACT])
    right = logprob.slope(x.logits[:EXACT].double(), x.tokens[:EXACT], exact[0], x.by_logp[:EXACT].double(),
                          exact[2], None, torch.float64)
    total, _, entropy = vocab_softmax.read_logits(x.logits, x.tokens)

    def both(name: str, read: Callable, slope: Callable) -> Iterator[str]:
        def slopes(rows: slice) -> Tensor:
            return slope(x.states[rows], x.head, x.tokens[rows], total[rows], x.by_logp[rows], entropy[rows],
                         None)

        few = slice(EXACT)
        yield measured(f"read, {name}", lambda: read(x.states, x.head, x.tokens),
                       lambda: apart(torch.stack(read(x.states[few], x.head, x.tokens[few])),
                                     torch.stack(exact)), x.states.nbytes + x.head.nbytes)
        yield measured(f"slope, {name}", lambda: slopes(slice(None)), lambda: apart(slopes(few), right),
                       x.logits.nbytes // 2)

    yield from both("apart", lambda s, h, t: vocab_softmax.read_logits(product(s, h.T), t),
                    lambda s, h, *rest: vocab_softmax.slope_logits(product(s, h.T), *rest, torch.bfloat16))
    before = vocab_softmax.TILE
    for vocab_softmax.TILE in (before, *(TILES[:1] if quick else TILES)):
        yield from both(f"tile {vocab_softmax.TILE}", vocab_softmax.read_tiles, vocab_softmax.slope_tiles)
    vocab_softmax.TILE = before


def gather(x: Chunk, quick: bool) -> Iterator[str]:
    """The gradients of all weights of the shape."""
    shapes = [t.shape for t in stored_tensors(SHAPES[x.shape]) if not quick or len(t.shape) == 1]
    device = x.head.device
    parts = [torch.randn(size, device=device).bfloat16() for size in shapes]
    sums = [torch.zeros(size, device=device) for size in shapes]
    moved = sum(2 * s.nbytes + p.nbytes for s, p in zip(sums, parts, strict=True))

    def before() -> None:
        torch._foreach_add_(sums, parts)
        torch._foreach_zero_(parts)

    def off(way: Callable[[], object]) -> float:
        torch._foreach_zero_(sums)
        right = [p.double() for p in parts]
        way()
        return max(apart(s, r) for s, r in zip(sums, right, strict=True))

    def after() -> None:
        gradient_sums.add_by_kernel(sums, parts)

    rest, sizes = (gradient_sums.PIECE, gradient_sums.WARPS), PIECES[:1] if quick else PIECES
    for gradient_sums.PIECE, gradient_sums.WARPS in (rest, *sizes):
        gradient_sums.gradient_pieces.cache_clear()
        yield measured(f"piece {gradient_sums.PIECE}, warps {gradient_sums.WARPS}", after, lambda: off(after),
                       moved)
    gradient_sums.PIECE, gradient_sums.WARPS = rest
    gradient_sums.gradient_pieces.cache_clear()
    yield f"  asked for in {host_milliseconds(after):.2f} ms of the host's time"
    yield measured("foreach, one launch each", before, lambda: off(before), moved)
    yield f"  asked for in {host_milliseconds(before):.2f} ms of the host's time"


def graphs(x: Chunk, quick: bool) -> Iterator[str]:
    """Whether a parameter without a gradient gets the graph's own memory, or a copy."""
    if not torch.cuda.is_available():
        yield "  a GPU has them"
        return
    layer = torch.nn.Linear(64, 64, device="cuda", dtype=torch.bfloat16)
    one = torch.ones(8, 64, device="cuda", dtype=torch.bfloat16)
    graphed = torch.cuda.make_graphed_callables(layer, (one,), allow_unused_input=True)
    places = set()
    for _ in range(4):
        graphed(one).float().sum().backward()
        places.add(layer.weight.grad.data_ptr())
        kept, layer.weight.grad = layer.weight.grad, None
    graphed(2 * one).float().sum().backward()
    yield (f"  gradients at {len(places)} place(s) in four passes; the last one is "
           f"{'written over' if kept.data_ptr() == layer.weight.grad.data_ptr() else 'kept'} by the next")


PARTS = {"read": read, "slope": slope, "head": head, "joined": joined, "gather": gather, "graphs": graphs,
         "attention": lambda x, quick: attention(x.head.device.type, quick)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="135M")
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="few sizes")
    parser.add_argument("--only", choices=PARTS)
    args = parser.parse_args()
    chunk = Chunk.made(args.shape, args.rows, args.device)
    for name in [args.only] if args.only else PARTS:
        began = time.perf_counter()
        print(f"{name}:", flush=True)
        try:
            for line in PARTS[name](chunk, args.quick):
                print(line, flush=True)
        except Exception as fault:  # the other parts are worth having
            print(f"  failed: {type(fault).__name__}: {' '.join(str(fault).split())[:300]}")
        print(f"  ({time.perf_counter() - began:.0f} s)", flush=True)


if __name__ == "__main__":
    main()

"""A step of sampling on a GPU: all layers kernel by kernel, and by the kernels of a whole step
(models/kernels/gpu_decode.py), in this and in other divisions; what stands around the layers; a whole call.

    python bench/decoding.py [--shape 135M] [--rows 512] [--prompt 128] [--new 64] [--sweep] [--profile]
        [--nudge]

Microseconds of a replayed graph, in the middle of a call of groups of 8 rows, and how far the states are from
those of float32, with norms of random weights. --sweep: attention and the choice of a token in other
divisions. --profile: the kernels of a call of the sampler, and how long the GPU had none. --nudge: calls with
the kernel that does nothing before steps (gpu_decode.nudge), and without, in turn.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from types import SimpleNamespace

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), str(HERE / "bench")]

import torch  # noqa: E402
import triton  # noqa: E402
from passes import timed  # noqa: E402
from shapes import SHAPES, questions, write_model  # noqa: E402

from postgrad.models import load_model  # noqa: E402
from postgrad.models.chat import Chat  # noqa: E402
from postgrad.models.engine import Engine  # noqa: E402
from postgrad.models.kernels import decode_attention, gpu, gpu_decode  # noqa: E402
from postgrad.records import Prompt  # noqa: E402
from postgrad.sampling import LocalSampler, Sampling  # noqa: E402
from postgrad.system.gc_tuning import seldom_collected  # noqa: E402


def micros(work: Callable[[], object], times: int = 1) -> float:
    """Of one of so many in a graph."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            work()
    gpu.nudge(torch.empty(1, device="cuda"))  # so that all are measured in the same state of the card
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
        draw = torch.Generator().manual_seed(1)
        for name, x in model.named_parameters():
            if "norm" in name:
                x.data = (0.3 * torch.randn(x.shape, generator=draw)).exp().bfloat16().to(x)
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


def tried(name: str, work: Callable[[], float]) -> float:
    """A division that the compiler or the card refuses is said and passed over."""
    try:
        found = work()
        print(f"{name}: {found:.1f} us", flush=True)
        return found
    except (RuntimeError, triton.runtime.errors.OutOfResources, triton.CompilationError) as error:
        print(f"{name}: {str(error)[:80]!r}", flush=True)
        return float("inf")


def sweep(now: Midway) -> None:
    usual = decode_attention.LOOK, decode_attention.QUERIES, decode_attention.PROGRAMS
    logits = now.engine.logits(now.states())
    u = torch.rand(now.rows, device="cuda", dtype=torch.float64)
    looks = ((32, 1, 2), (32, 1, 3), (64, 1, 3), (32, 2, 3), (64, 2, 2), (64, 2, 3), (64, 2, 4), (64, 4, 3),
             (128, 4, 2), (128, 4, 3))
    for look, decode_attention.QUERIES in product(looks, (16, 32)):
        decode_attention.LOOK = look, look, look
        tried(f"attention by {look}, {decode_attention.QUERIES} queries", lambda: micros(now.states))
    decode_attention.PROGRAMS = 1 << 30
    for look in looks[:6]:
        decode_attention.LOOK = look, look, look
        tried(f"attention by {look}, each row alone", lambda: micros(now.states))
    decode_attention.LOOK, decode_attention.QUERIES, decode_attention.PROGRAMS = usual
    for gpu.PICK in product((1024, 2048, 4096, 8192), (4, 8, 16)):
        tried(f"pick by {gpu.PICK}", lambda: micros(lambda: gpu.sample_tokens(logits, u, 1.0), 20))


def caller(folder: Path, args: argparse.Namespace) -> Callable:
    """Of a sampler, by the seed."""
    sampler = LocalSampler(load_model(folder, device="cuda", dtype=torch.bfloat16), Chat.load(folder))
    asked = [Prompt.ask(q, id=str(i)) for i, q in enumerate(
        questions(args.rows // 8, args.prompt, SHAPES[args.shape].vocab_size))]
    return partial(sampler.sample, asked, 8, Sampling(max_new_tokens=2 * args.new))


def nudged(folder: Path, args: argparse.Namespace) -> None:
    call, nudge = caller(folder, args), gpu.nudge
    seconds: dict[str, list[float]] = {"with a nudge": [], "without": []}
    for turn in range(3):
        call(turn)
    with seldom_collected():
        for turn in range(10):
            for name, found in seconds.items():
                gpu.nudge = nudge if name == "with a nudge" else lambda x: None
                found.append(timed(partial(call, turn))[0])
    gpu.nudge = nudge
    for name, found in seconds.items():
        print(f"a call {name}: {1e3 * statistics.median(found):.1f} ms, the median of {len(found)}")


def profile(folder: Path, args: argparse.Namespace) -> None:
    """Of the third call of a sampler."""
    call = caller(folder, args)
    seconds = [timed(partial(call, turn))[0] for turn in range(4)]
    kinds = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kinds.CUDA]) as seen:
        timed(partial(call, 4))
    spent = [e for e in seen.key_averages() if e.device_type == torch.autograd.DeviceType.CUDA]
    spent.sort(key=lambda e: -e.self_device_time_total)
    busy = sum(e.self_device_time_total for e in spent) / 1e6
    print(f"a call: {min(seconds[2:]):.4f} s, {busy:.4f} s of kernels")
    for e in spent[:22]:
        print(f"{e.self_device_time_total / 1e3:9.3f} ms {e.count:6d}  {e.key[:90]}")


def around(now: Midway) -> None:
    """What a token takes besides its layers."""
    hidden, engine = now.states(), now.engine
    logits, u = engine.logits(hidden), torch.rand(now.rows, device="cuda", dtype=torch.float64)
    token, logp = gpu.sample_tokens(logits, u, 1.0)
    at = torch.zeros(now.rows, dtype=torch.int64, device="cuda")
    done, out = at.bool(), torch.zeros(now.rows + 1, 4, dtype=torch.int64, device="cuda")
    rows = SimpleNamespace(
        engine=engine, settings=Sampling(max_new_tokens=3), hidden=hidden, at=at.clone(), slot=now.columns[2],
        u=u[:, None].expand(-1, 4).contiguous(), shown=at.clone(), done=done, count=at.clone(), out=out,
        logp=out.float(), ends=token[:2])
    parts = {"embedding": lambda: engine.weights["embed"][token], "logits": lambda: engine.logits(hidden),
             "pick": lambda: gpu.sample_tokens(logits, u, 1.0),
             "note": lambda: gpu.record_tokens(token, logp, at, now.columns[2], at.clone(), done, at.clone(),
                                               out, out.float(), token[:2], 3),
             "all from the state to the note by way of pieces":
                 lambda: gpu_decode.sample_from_states(rows, now.rows),
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
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--nudge", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = write_model(Path(place) / "model", SHAPES[args.shape], dtype=torch.bfloat16)
        if args.nudge:
            return nudged(folder, args)
        exact = Midway(folder, args, torch.float32).states()
        known, programs = gpu.FUSED_STEP, decode_attention.PROGRAMS
        ways = {"kernel by kernel": (None, programs),
                "whole step, each row alone": (known, 1 << 30), "whole step": (known, programs)}
        for name, (gpu.FUSED_STEP, decode_attention.PROGRAMS) in ways.items():
            now = Midway(folder, args, torch.bfloat16)
            off = float((now.states().double() - exact.double()).norm() / exact.double().norm())
            tried(f"{args.shape}, {args.rows} rows, {name}, off by {off:.1e}", lambda n=now: micros(n.states))
            early, gpu_decode.starts_early = gpu_decode.starts_early, lambda x: False
            tried("the same, each kernel after the end of the one before", lambda n=now: micros(n.states))
            gpu_decode.starts_early = early
            if args.profile:
                profile(folder, args)
        around(now)
        if args.sweep:
            sweep(now)


if __name__ == "__main__":
    main()

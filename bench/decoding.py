"""Where a step of sampling spends its time on a GPU: the attention of one token in variants, whole calls, and
what the profiler says.

    python bench/decoding.py attention | products | calls | profile | training

One line of JSON each. 135M shape, 64 prompts x 8 samples, 128 + 128 tokens, as bench/h200.py has them.
"""

from __future__ import annotations

import json
import sys
import tempfile
from functools import partial
from itertools import product
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), *(str(HERE / name) for name in ("bench", "proofs", "tools"))]

import torch  # noqa: E402
from parity import mismatch  # noqa: E402
from passes import Setting, draw, train  # noqa: E402
from shapes import SHAPES  # noqa: E402
from torch.nn.functional import linear  # noqa: E402

from postgrad.models.engine import Engine  # noqa: E402
from postgrad.models.kernels import gpu, gpu_attend, gpu_products  # noqa: E402


def replayed(work, times: int = 30) -> float:
    """Microseconds of one call of `work`, many of them as one graph."""
    work()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            work()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graph.replay()
    begin.record()
    for _ in range(10):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) * 1000 / 10 / times


def attention(s: Setting) -> dict:
    """Microseconds of one layer at the middle of a reply: two kernels, and one in several sizes; with them
    the largest difference."""
    c, R = SHAPES[s.shape], s.rows
    make = partial(torch.randn, dtype=s.dtype, device=s.device)
    KV, H, D = c.num_key_value_heads, c.num_attention_heads, c.head_dim
    whole = partial(torch.full, (R,), device=s.device, dtype=torch.int64)
    number = torch.arange(R, device=s.device)
    new = (make(R, (H + 2 * KV) * D), make(512, D // 2), make(512, D // 2), whole(192), number, whole(64))
    asked = (make(s.prompts + 1, KV, s.prompt, D), make(s.prompts + 1, KV, s.prompt, D), number // s.group,
             whole(128))
    own = make(R + 1, KV, s.new + 1, D), make(R + 1, KV, s.new + 1, D)

    def apart():
        return gpu.attend(gpu.place(*new, *own), *asked, *own, number, new[-1] + 1)

    found, right = {"two kernels": replayed(apart)}, apart()
    for shared in (False, True):
        for prompts, mine in product(*sizes(shared)):
            gpu_attend.PROMPTS, gpu_attend.OWN = prompts, mine
            work = partial(gpu.place_and_attend, *new, *asked, *own, None, shared)
            said = (work().float() - right.float()).abs().max().item()
            found[f"{prompts if shared else 'each row alone'}; {mine}"] = [round(replayed(work), 2), said]
    return found


def sizes(shared: bool) -> tuple[list, list]:
    """How the kernel of prompts and that of rows may be run."""
    return ([{"BLOCK": block, "num_warps": warps} for block in (32, 64, 128) for warps in (2, 4)]
            if shared else [gpu_attend.PROMPTS],
            [{"BLOCK": block, "num_warps": warps} for block in (16, 32, 64) for warps in (1, 2)])


def products(s: Setting) -> dict:
    """Microseconds of a layer's products as cuBLAS and the kernels beside them, and in one kernel each."""
    c, R = SHAPES[s.shape], s.rows
    make = partial(torch.randn, dtype=s.dtype, device=s.device)
    D, inner, wide = c.hidden_size, c.intermediate_size, c.head_dim * (
        c.num_attention_heads + 2 * c.num_key_value_heads)
    x, norm, heads, h = make(R, D), make(D), make(R, c.num_attention_heads * c.head_dim), make(R, inner)
    qkv, o, up, down = make(wide, D) * 0.02, make(D, heads.shape[1]) * 0.02, make(2 * inner, D) * 0.02, make(
        D, inner) * 0.02
    eps, delta, both = 1e-5, make(R, D), linear(x, up)
    found = {"norm, qkv": replayed(lambda: linear(gpu.add_norm(x, None, norm, eps), qkv)),
             "norm, gate and up, gate": replayed(
                 lambda: gpu.gate_halves(linear(gpu.add_norm(x, None, norm, eps), up))),
             "o": replayed(lambda: linear(heads, o)), "down": replayed(lambda: linear(h, down)),
             "sum and norm": replayed(lambda: gpu.add_norm(x, delta, norm, eps)),
             "gate": replayed(lambda: gpu.gate_halves(both))}
    right = gpu.gate_halves(linear(gpu.add_norm(x, None, norm, eps), up)).float()
    for how in tiles():
        for table in ("NORM", "GATE", "ADD"):
            setattr(gpu_products, table, {1 << 40: how})
        try:
            times = [replayed(lambda: gpu.norm_linear(x, norm, qkv, None, eps)),
                     replayed(lambda: gpu.norm_linear(x, norm, up, None, eps, True)),
                     replayed(lambda: gpu.linear_add(delta, heads, o, None)),
                     replayed(lambda: gpu.linear_add(delta, h, down, None))]
            off = (gpu.norm_linear(x, norm, up, None, eps, True).float() - right).abs().max().item()
        except Exception as error:  # too much shared memory, say
            times, off = repr(error)[:80], None
        found[" ".join(map(str, how.values()))] = [times, off]
    return found


def tiles() -> list[dict]:
    names = "BM", "BN", "BK", "num_warps", "num_stages"
    return [dict(zip(names, how, strict=True)) for how in (
        (64, 64, 64, 4, 4), (64, 64, 64, 4, 3), (64, 32, 64, 4, 4), (32, 64, 64, 4, 4), (64, 64, 64, 8, 4),
        (128, 64, 64, 4, 4), (128, 64, 64, 8, 3), (64, 128, 64, 4, 4), (64, 128, 64, 8, 3),
        (64, 64, 32, 4, 5), (64, 64, 128, 4, 3), (64, 32, 128, 4, 3), (128, 32, 64, 4, 4),
        (32, 32, 128, 4, 3))]


def halves(step):
    """A step's rows in two streams."""
    side = torch.cuda.Stream()

    def stepped(engine, *columns, several=False):
        n, here = len(columns[0]) // 2, torch.cuda.current_stream()
        side.wait_stream(here)
        with torch.cuda.stream(side):
            second = step(engine, *(x[n:] for x in columns), several=several)
        first = step(engine, *(x[:n] for x in columns), several=several)
        here.wait_stream(side)
        return torch.cat([first, second])

    return stepped


def calls(s: Setting) -> dict:
    """Whole calls: each part of a step in a kernel of its own, and with more and more of them together."""
    found, kernel, product, step = {}, gpu.place_and_attend, gpu.norm_linear, Engine.step
    alone = lambda *given: kernel(*given[:-1], False)  # noqa: E731
    for name, attend, multiply, split in (
            ("each alone", None, None, False), ("attention", alone, None, False),
            ("prompts shared", kernel, None, False), ("products too", kernel, product, False),
            ("in two streams", kernel, product, True)):
        gpu.place_and_attend, gpu.norm_linear = attend, multiply
        Engine.step = halves(step) if split else step
        seconds, _, speed, model, rows = draw(s, 0.0, s.new)
        found[name] = {"tokens/s": speed, "seconds": seconds,
                       "from the trainer's": mismatch(model, rows[:64])}
        torch.cuda.empty_cache()
    gpu.place_and_attend, gpu.norm_linear, Engine.step = kernel, product, step
    return found


def profiled(work, limit: int = 25) -> dict:
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as seen:
        work()
        torch.cuda.synchronize()
    events = sorted(seen.key_averages(), key=lambda e: -e.self_device_time_total)[:limit]
    return {e.key[:90]: [round(e.self_device_time_total / 1000, 2), e.count] for e in events}


def main(parts: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        s = Setting(folder=Path(folder), ours=(), dtype=torch.bfloat16)
        ways = {"attention": attention, "products": products, "calls": calls,
                "profile": lambda s: profiled(lambda: draw(s, 0.0, s.new, 1)),
                "training": lambda s: profiled(lambda: print(json.dumps(train(s))))}
        for part in parts:
            try:
                print(json.dumps({part: ways[part](s)}), flush=True)
            except Exception as error:  # the other parts go on
                print(json.dumps({part: repr(error)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Where a step of sampling spends its time on a GPU: the attention of one token in variants, whole calls, and
what the profiler says.

    python bench/decoding.py attention | calls | profile | training

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

from postgrad.models.engine import Engine  # noqa: E402
from postgrad.models.kernels import gpu, gpu_attend  # noqa: E402


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
    found, kernel, step = {}, gpu.place_and_attend, Engine.step
    alone = lambda *given: kernel(*given[:-1], False)  # noqa: E731
    for name, fuse, split in (("two kernels", None, False), ("one kernel", alone, False),
                              ("prompts shared", kernel, False), ("the same in two streams", kernel, True)):
        gpu.place_and_attend, Engine.step = fuse, halves(step) if split else step
        seconds, _, speed, model, rows = draw(s, 0.0, s.new)
        found[name] = {"tokens/s": speed, "seconds": seconds,
                       "from the trainer's": mismatch(model, rows[:64])}
        torch.cuda.empty_cache()
    gpu.place_and_attend, Engine.step = kernel, step
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
        ways = {"attention": attention, "calls": calls,
                "profile": lambda s: profiled(lambda: draw(s, 0.0, s.new, 1)),
                "training": lambda s: profiled(lambda: print(json.dumps(train(s))))}
        for part in parts:
            try:
                print(json.dumps({part: ways[part](s)}), flush=True)
            except Exception as error:  # the other parts go on
                print(json.dumps({part: repr(error)}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

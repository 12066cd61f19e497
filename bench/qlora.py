"""What 4 bits save and cost on a CPU: bytes held, unpacking against a look-up in torch,
sampling and training on tiny.

    OMP_NUM_THREADS=1 python bench/qlora.py      needs postgrad[qlora]; about a minute on one core

Timings are the best of several, and meant as ratios.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

sys.path[:0] = [str(Path(__file__).resolve().parent.parent), str(Path(__file__).resolve().parent)]

from shapes import SHAPES  # noqa: E402

from postgrad.data.tasks import load_task  # noqa: E402
from postgrad.models import Adapted, Adapter, Decoder, quantise  # noqa: E402
from postgrad.models.nf4 import BLOCK, Linear4, held_bytes  # noqa: E402
from postgrad.resolve.models import open_model  # noqa: E402
from postgrad.sampling import LocalSampler, Sampling  # noqa: E402


def best(act: Callable, times: int = 15) -> float:
    """The shortest of several runs, in seconds."""
    def once() -> float:
        began = time.perf_counter()
        act()
        return time.perf_counter() - began

    act()
    return min(once() for _ in range(times))


def unpacking(out: int, into: int) -> None:
    layer = Linear4(nn.Linear(into, out, bias=False), "cpu")
    codes, levels = layer.codes.flatten(), torch.linspace(-1, 1, 16)
    pairs = torch.stack([levels.repeat_interleave(16), levels.repeat(16)], 1)  # the two numbers of each byte
    scale, plain = torch.rand(out * into // BLOCK, 1), torch.rand(out, into)

    def look_up() -> torch.Tensor:
        return (pairs.index_select(0, codes.int()).view(-1, BLOCK) * scale).view(out, into)

    theirs = best(lambda: layer.weight)
    ours = best(look_up)
    copied = best(lambda: torch.empty(out, into).copy_(plain))
    print(f"unpack {out} x {into}: bitsandbytes {1e3 * theirs:.2f} ms, a look-up in torch "
          f"{1e3 * ours:.2f} ms, "
          f"a copy of as many numbers {1e3 * copied:.2f} ms")


def bits_held() -> None:
    model = Decoder(SHAPES["135M"])
    whole = held_bytes(model)
    packed = held_bytes(quantise(model))
    layers = [m for m in model.modules() if isinstance(m, Linear4)]
    each = 8 * sum(m.nbytes for m in layers) / sum(m.in_features * m.out_features for m in layers)
    print(f"SmolLM2-135M's shape: {whole / 1e6:.0f} MB in float32, {packed / 1e6:.0f} MB with its matrices "
          f"in 4 bits, {each:.3f} bits a weight")


def both_ways() -> None:
    prompts = load_task("words").prompts("test", 8, 0)
    took = {}
    for bits in (16, 4):
        body, chat = open_model("tiny-chat", bits=bits)
        model = Adapted(body, Adapter(body, rank=8, generator=torch.Generator().manual_seed(0)))
        sampler, settings = LocalSampler(model, chat), Sampling(max_new_tokens=32)
        tokens = torch.randint(0, 1024, (16, 64), generator=torch.Generator().manual_seed(0))
        mask = torch.arange(64).expand(16, -1) > 0
        took[bits] = (best(lambda: sampler.sample(prompts, 4, settings, 0), 5),  # noqa: B023
                      best(lambda: model.logp(tokens, mask)[0].sum().backward(), 5))  # noqa: B023
    (sampled, trained), (sampled4, trained4) = took[16], took[4]
    print(f"tiny-chat with an adapter: sampling 32 rows takes {sampled4 / sampled:.1f} times as long in 4 "
          f"bits, a pass of training {trained4 / trained:.2f} times")


if __name__ == "__main__":
    unpacking(1536, 576)
    bits_held()
    both_ways()

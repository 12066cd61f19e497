"""Throughput of a training and where its time goes, from the metrics of its steps."""

from __future__ import annotations

import math
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

RATES = {"sampling": ("sampled", "time/sample"), "training": ("tokens", "time/train")}
PARTS = {"time/sample": "sampling", "time/wait": "waiting for samples", "time/score": "scoring",
         "time/train": "training"}
RECENT = 10  # steps over which a rate is averaged
MACHINES = ("time/", "memory")  # metrics that differ from one machine to the next

# torch.compile on an H200: seconds to compile and capture; seconds of a layer's kernel launches in a pass
# without it; seconds saved per FLOP, about half
COMPILING, LAUNCHING, SAVED = 20.0, 6e-4, 2.6e-15

Column = Callable[[str], Sequence[float]]  # a metric's values, oldest first
T = TypeVar("T")


def repeatable(row: Mapping[str, T]) -> dict[str, T]:
    """The metrics of a step that are the same in every run."""
    return {name: value for name, value in row.items() if not name.startswith(MACHINES)}


def compiling_pays(parameters: int, layers: int, tokens: int, steps: int, tokens_per_pass: int) -> bool:
    """Whether a run on a GPU ends sooner with torch.compile and CUDA graphs.

    Each pass saves its kernel launches or half of its arithmetic, 6 FLOPs per parameter and token, whichever
    is more. 135M parameters and 131,072 tokens a step: from 74 steps on; 2M parameters and
    8,192 tokens, 4 layers: from 8,334 on.
    """
    passes = -(-tokens // tokens_per_pass)
    saved = max(passes * layers * LAUNCHING, SAVED * 6 * parameters * tokens)
    return steps * saved > COMPILING


def memory_taken() -> float:
    """Peak GB so far: of tensors on the GPU, else of the process."""
    import torch
    if torch.cuda.is_initialized():
        return torch.cuda.max_memory_allocated() / 1e9
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def rates(column: Column) -> dict[str, float]:
    """Tokens per second of sampling and of training, over the last RECENT steps that had any."""
    out = {}
    for part, (tokens, seconds) in RATES.items():
        pairs = [pair for pair in zip(reversed(column(tokens)), reversed(column(seconds)), strict=False)
                 if all(map(math.isfinite, pair))][:RECENT]
        spent = sum(second for _, second in pairs)
        if spent > 0 and math.isfinite(rate := sum(token for token, _ in pairs) / spent):
            out[part] = rate
    return out


def time_shares(column: Column) -> dict[str, float]:
    """Shares of the time of all steps, which add up to 1. Samples drawn asynchronously cost only the time
    waited for them; what is none of the parts goes to evaluations, checkpoints and logs."""
    spent = {name: sum(filter(math.isfinite, column(name))) for name in ("time/step", *PARTS)}
    if len(column("time/wait")):
        spent["time/sample"] = 0.0
    whole = spent.pop("time/step")
    if not whole > 0:
        return {}
    shares = {PARTS[name]: part / whole for name, part in spent.items() if part > 0}
    rest = 1 - sum(shares.values())
    return shares | ({"evaluating and saving": rest} if shares and rest > 0 else {})


def throughput_words(column: Column) -> str:
    """"sampling 9,870 tokens/s, training 41,000 tokens/s; 61 % of the time sampling, 30 % training;
    0.4 GB"; what is not known is left out."""
    speeds = [f"{part} {round(rate):,} tokens/s" for part, rate in rates(column).items()]
    parts = [f"{share:.0%} {part}".replace("%", " %") for part, share in time_shares(column).items()
             if 0.005 <= share < math.inf]
    if parts:
        parts[0] = parts[0].replace(" % ", " % of the time ", 1)
    most = [f"{max(held):.1f} GB" for held in [[*filter(math.isfinite, column("memory"))]] if held]
    return "; ".join(", ".join(words) for words in (speeds, parts, most) if words)

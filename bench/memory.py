"""The memory estimate held against a GPU: random weights in real shapes, two passes a step, AdamW, the
allocator's own peak.

    python bench/memory.py        prints a line a case; needs a GPU with 100 GB and a minute

What stands between the passes (weights, optimizer state) is known exactly; compared is what comes on top of
it: gradients and activations. The steps are those of the loop: its optimizer, its masters, layers compiled
where a run would compile them.
"""

from __future__ import annotations

import gc
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import torch  # noqa: E402

from postgrad import methods  # noqa: E402
from postgrad.loop import Optim, OptimSettings  # noqa: E402
from postgrad.memory import GB, SIZES, Setup, estimate, held  # noqa: E402
from postgrad.models import Adapted, Adapter, Decoder, Models, ScalarModel  # noqa: E402

CASES = [  # size, method, setup
    ("1B", "sft", Setup(bits=32)), ("1B", "sft", Setup(bits=32, rows=4)),
    ("1B", "sft", Setup(bits=16, rows=8)), ("1B", "ppo", Setup(bits=32, rows=4, reward_model=True)),
    ("1B", "ppo", Setup(bits=32, rows=4, lora=16, reward_model=True)),
    ("1B", "grpo", Setup(bits=16, rows=8, lora=16)), ("7B", "grpo", Setup(bits=16, lora=16, rows=2)),
]


def model(size: str) -> Decoder:
    with torch.device("cuda"):
        made = Decoder(SIZES[size])
    for p in made.parameters():
        p.data.uniform_(-0.02, 0.02)
    return made


def build(size: str, method, setup: Setup) -> dict:
    body, out = model(size), {}
    for role in held(method, setup.reward_model):
        if setup.lora:
            adapter = (Adapter(body, rank=setup.lora, generator=torch.Generator()) if role != "reference"
                       else None)
            inner = Adapted(body, adapter)
        else:
            inner = body if role == "policy" else model(size)
        out[role] = ScalarModel(inner) if role in ("reward", "critic") else inner
        if role in ("reference", "reward"):
            out[role].requires_grad_(False)
    return out


def measure(size: str, method, setup: Setup) -> float:
    """Bytes above what stands, at the peak of the second of two steps."""
    gc.collect()
    torch.cuda.empty_cache()
    models = build(size, method, setup)
    settings = OptimSettings(lr=1e-5, precision="fp32" if setup.bits == 32 else "bf16")
    optim = Optim(Models(**models), settings, steps=2)
    tokens = torch.randint(0, SIZES[size].vocab_size, (setup.rows, setup.tokens), device="cuda")
    mask = torch.ones_like(tokens, dtype=torch.bool)
    mask[:, 0] = False
    for step in (1, 2):
        torch.cuda.reset_peak_memory_stats()
        stands = torch.cuda.memory_allocated()
        for _ in range(2):
            loss = models["policy"].logp(tokens, mask)[0].sum()
            if "critic" in models:
                loss = loss + models["critic"].value(tokens).sum()
            loss.backward()
            optim.gather()
        optim.step(step, float(loss.detach()))
        del loss
    return torch.cuda.max_memory_allocated() - stands


def main() -> None:
    for size, name, setup in CASES:
        made = estimate(SIZES[size], methods.get(name), setup)
        said, seen = made.gradients + made.activations, measure(size, methods.get(name), setup)
        print(f"{size} {name:<5} {setup.bits} bits, LoRA {setup.lora}, {setup.rows} x {setup.tokens} tokens: "
              f"estimate {said / GB:.2f} GB, measured {seen / GB:.2f} GB, {said / seen:.3f}", flush=True)


if __name__ == "__main__":
    main()

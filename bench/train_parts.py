"""Forward and backward of training on a GPU where samples share prompts: its time, its kernels, and how far
its gradients are from those of float32.

    python bench/train_parts.py                     the 135M shape; about a minute
    python bench/train_parts.py --only speed        or gradients
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE), str(HERE / "bench")]

import torch  # noqa: E402
from passes import Setting, opened, rows, step, timed, train_seconds  # noqa: E402
from shapes import SHAPES, write_model  # noqa: E402

from postgrad import methods  # noqa: E402
from postgrad.training import objectives  # noqa: E402


def speed(s: Setting) -> str:
    """Of the rows of a step, once all is compiled and captured; then the kernels of its first pass."""
    (models, optim), batch = opened(s, s.model(s.shape)), rows(s, s.rows)
    seconds = train_seconds(models, optim, batch, rounds=8)
    warm = statistics.median(seconds[3:])
    first = next(batch.split(optim.tokens_per_pass))
    return (f"{1e3 * warm:.1f} ms for {s.rows} rows, {s.rows * (s.prompt + s.new) / warm:,.0f} tokens/s "
            f"(the first step: {seconds[0]:.1f} s)\n" + kernels(partial(step, models, optim, first)))


def kernels(work: partial, shown: int = 25) -> str:
    """Those that take the longest: milliseconds and launches of each."""
    work()
    kinds = torch.profiler.ProfilerActivity
    with torch.profiler.profile(activities=[kinds.CPU, kinds.CUDA]) as seen:
        timed(work)
    spent = [e for e in seen.key_averages() if e.device_type == torch.autograd.DeviceType.CUDA]
    spent.sort(key=lambda e: -e.self_device_time_total)
    total = sum(e.self_device_time_total for e in spent)
    return "\n".join([f"one pass: {total / 1e3:.2f} ms of kernels",
                      *(f"{e.self_device_time_total / 1e3:8.3f} ms {e.count:5d}  {e.key[:100]}"
                        for e in spent[:shown])])


def slopes(s: Setting, folder: Path) -> dict[str, torch.Tensor]:
    """The gradient of each parameter, over ragged rows."""
    models, _ = opened(s, folder)
    objective = objectives.build_objective(replace(methods.get_method("grpo"), kl_in_loss=0.0))
    for _ in range(2):  # the second time, graphs are replayed
        models.policy.zero_grad()
        for micro in rows(s, 3 * s.group, ragged=True).split(2048):
            (objective(models, micro)[0] * micro.weight).sum().backward()
    return {name: p.grad.float() for name, p in models.policy.named_parameters()}


def gradients(s: Setting) -> str:
    """Those of a shallow model in bfloat16 against float32, which has kernels of its own: the parameter that
    is farthest off."""
    folder = s.folder / "shallow"
    if not folder.exists():
        write_model(folder, replace(SHAPES[s.shape], num_hidden_layers=3), 1 / s.new)
    exact, mine = slopes(replace(s, dtype=torch.float32), folder), slopes(s, folder)
    # a gradient of zeros has no relative difference
    off, name = max((float((mine[name] - y).norm() / y.norm().clamp_min(1e-12)), name)
                    for name, y in exact.items())
    return f"gradients off by {off:.4f} of their length at most ({name})"


PARTS = {"speed": speed, "gradients": gradients}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", default="135M")
    parser.add_argument("--only", choices=PARTS)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        s = Setting(folder=Path(folder), ours=(), dtype=torch.bfloat16, shape=args.shape)
        for name in [args.only] if args.only else PARTS:
            print(PARTS[name](s), flush=True)


if __name__ == "__main__":
    main()

"""How cost grows with rows, with tokens and with the size of the model:
sampling, and forward and backward of training.

    python bench/scaling.py [--device cpu|cuda] [--axes rows,tokens,size] [--most 4096] [--dtype float32]
        [--write]

One axis at a time, the others held: rows 64 to 4,096, new tokens 128 to 4,096, shapes. The exponent is the
slope of log(seconds) over log(size), by least squares over the axis: 1 is linear. Attention makes the cost of
a token grow with the length; the floor (floors.py) beside each figure has that in it too. On a CPU the shape
and the other sizes are small, to take a few minutes.
"""

from __future__ import annotations

import argparse
import math
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(HERE / "bench"), str(HERE / "tools")]

import torch  # noqa: E402
from floors import decode_floor, parameters  # noqa: E402
from passes import Setting, draw, train  # noqa: E402
from results import bar, grid, write  # noqa: E402
from shapes import SHAPES  # noqa: E402

HELD = {  # what stands still: rows, prompt and new tokens, tokens at once, shapes
    "cpu": {"shape": "tiny", "rows": 64, "prompt": 16, "new": 16, "long_rows": 8, "at_once": 8192,
            "shapes": ("tiny", "1M", "5M")},
    "cuda": {"shape": "135M", "rows": 512, "prompt": 128, "new": 128, "long_rows": 64, "at_once": 32768,
             "shapes": ("1M", "5M", "135M", "1B")},
}


def slope(x: list[float], y: list[float]) -> float:
    """The exponent of y ~ x^a."""
    u, v = [math.log(a) for a in x], [math.log(b) for b in y]
    mean_u, mean_v = sum(u) / len(u), sum(v) / len(v)
    return sum((a - mean_u) * (b - mean_v)
               for a, b in zip(u, v, strict=True)) / sum((a - mean_u) ** 2 for a in u)


def point(s: Setting, at_once: int, label: str, size: float) -> dict:
    """Seconds and microseconds a token, sampling and training, with their floors."""
    width = s.prompt + s.new
    s = replace(s, passes=max(1, math.ceil(s.rows * width / at_once)))
    _, tokens, speed, *_ = draw(s, 0.0, s.new, rounds=1)
    floor = decode_floor(SHAPES[s.shape], s.rates(s.shape), s.prompts, s.group, s.prompt, s.new)
    learnt = train(s, rounds=2)
    return {label: size, "sampling s": tokens / speed, "sampling us/token": 1e6 / speed,
            "sampling floor us/token": 1e6 * floor / tokens,
            "training s": s.rows * width / learnt["tokens/s"], "training us/token": 1e6 / learnt["tokens/s"],
            "training floor us/token": 1e6 / learnt["floor tokens/s"]}


def doubling(first: int, most: int, by: int = 2) -> list[int]:
    return [first * by**i for i in range(20) if first * by**i <= most]


def axis(name: str, s: Setting, held: dict, most: int) -> list[dict]:
    group = 8
    s = replace(s, shape=held["shape"], group=group, prompts=held["rows"] // group, prompt=held["prompt"],
                new=held["new"])
    at_once, rows = held["at_once"], []
    if name == "rows":
        points = ((replace(s, prompts=n // group), n) for n in doubling(64, most))
    elif name == "tokens":
        points = ((replace(s, prompts=held["long_rows"] // group, new=n), n) for n in doubling(128, most))
    else:
        points = ((replace(s, shape=shape), parameters(SHAPES[shape])) for shape in held["shapes"])
    for setting, size in points:
        rows.append(point(setting, at_once, "parameters" if name == "size" else name, size))
        print(rows[-1], flush=True)
    return rows


def exponents(rows: list[dict]) -> dict[str, tuple[float, float]]:
    """Of the seconds measured, and of the floor's."""
    sizes, found = [r[next(iter(r))] for r in rows], {}
    for what in ("sampling", "training"):
        seconds = [r[f"{what} s"] for r in rows]
        floors = [s * r[f"{what} floor us/token"] / r[f"{what} us/token"]
                  for s, r in zip(seconds, rows, strict=True)]
        found[what] = slope(sizes, seconds), slope(sizes, floors)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--device", default="cpu", choices=HELD)
    parser.add_argument("--axes", default="rows,tokens,size")
    parser.add_argument("--most", type=int, default=4096)
    parser.add_argument("--dtype", default=None, choices=("bfloat16", "float32"))
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    dtype = getattr(torch, args.dtype or ("float32" if args.device == "cpu" else "bfloat16"))
    tables, bars = {}, []
    with tempfile.TemporaryDirectory() as folder:
        s = Setting(folder=Path(folder), ours=(), dtype=dtype, device=args.device)
        for name in args.axes.split(","):
            rows = axis(name, s, HELD[args.device], args.most)
            found = exponents(rows)
            said = ", ".join(f"{what} {a:.2f} (the floor {b:.2f})" for what, (a, b) in found.items())
            heading = f"By {name}: seconds grow as its power, {said}"
            tables[heading] = rows
            print(f"\n## {heading}\n\n" + "\n".join(grid(rows)) + "\n", flush=True)
            if name != "size":
                size = next(iter(rows[0]))
                bars.append(
                    bar(f"cost grows linearly in {name}, {rows[0][size]} to {rows[-1][size]}, {args.device}",
                        "exponent <= 1.1, or the floor's and 0.1 (attention)", said,
                        all(a <= max(1.0, b) + 0.1 for a, b in found.values()),
                        f"python bench/scaling.py --device {args.device}"))
    if args.write:
        print(write(f"scaling-{args.device}", "How cost grows with rows, tokens and size", bars, seeds=[0],
                    tables=tables))


if __name__ == "__main__":
    main()

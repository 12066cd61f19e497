"""How often the 95 % intervals hold the truth, on simulated problems of which some are harder than others.

    python proofs/interval_coverage.py [--times 2000] [--seed 0] [--out FILE.json]
A problem's chance of a right sample is drawn from a beta distribution of mean p; several samples share it.
The gain is of a second model that finds half the problems as hard as the first does, and the others anew.
Beside ours, the interval of Student over problems. About two minutes on one core.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tools")]

from results import bar, end, grid  # noqa: E402

from postgrad.maths.intervals import gain_interval, mean_interval  # noqa: E402
from postgrad.maths.passk import pass_at_k  # noqa: E402

PROBLEMS, SAMPLES, SHARES = (20, 100, 500), (1, 4, 16), (0.0, 0.02, 0.1, 0.5, 0.9, 1.0)
ALIKE = 2.0  # a + b of the beta distribution: at p = 1/2 every chance is as likely as any other
LEAST = 0.92
KINDS = ("mean", "pass@k", "graded", "gain")


@dataclass(frozen=True)
class Cell:
    """n problems, k samples of each, a share p of right samples."""

    kind: str
    n: int
    k: int
    p: float

    @property
    def certain(self) -> bool:
        return self.p in (0.0, 1.0)


def chances(rng: np.random.Generator, p: float, shape: tuple[int, ...]) -> np.ndarray:
    return rng.beta(ALIKE * p, ALIKE * (1 - p), shape) if 0 < p < 1 else np.full(shape, p)


def other(p: float) -> float:
    """The share of the second model."""
    return 0.1 + 0.8 * p if 0 < p < 1 else p


def truth(cell: Cell) -> float:
    if cell.kind == "gain":
        return (other(cell.p) - cell.p) / 2
    if cell.kind == "pass@k":  # E (1 - q)^k of the beta distribution
        missed = (math.prod((ALIKE * (1 - cell.p) + j) / (ALIKE + j) for j in range(cell.k))
                  if not cell.certain else 1 - cell.p)
        return 1 - missed
    return cell.p


def values(cell: Cell, times: int, rng: np.random.Generator) -> Iterator[tuple[list[float], ...]]:
    """One value a problem, `times` times over; of a gain, those of both models."""
    first = chances(rng, cell.p, (times, cell.n))
    right = rng.binomial(cell.k, first)
    if cell.kind == "pass@k":
        table = np.array([pass_at_k(cell.k, c, cell.k) for c in range(cell.k + 1)])
        return ((row,) for row in table[right].tolist())
    if cell.kind == "graded":  # a reward in [0, 1] with the chance as its mean, neither 0 nor 1
        parts = [rng.beta(3 * first + 1e-9, 3 * (1 - first) + 1e-9) for _ in range(cell.k)]
        return ((row,) for row in np.clip(np.mean(parts, axis=0), 0.0, 1.0).tolist())
    if cell.kind == "mean":
        return ((row,) for row in (right / cell.k).tolist())
    same = rng.random((times, cell.n)) < 0.5
    second = np.where(same, first, chances(rng, other(cell.p), (times, cell.n)))
    return zip((right / cell.k).tolist(), (rng.binomial(cell.k, second) / cell.k).tolist(), strict=True)


def covered(cell: Cell, times: int, seed: int) -> tuple[float, float, float]:
    """How often the interval holds the truth, how often Student's does, and the mean width of ours."""
    rng = np.random.default_rng([seed, KINDS.index(cell.kind), cell.n, cell.k, round(1000 * cell.p)])
    interval, real = gain_interval if cell.kind == "gain" else mean_interval, truth(cell)
    held, plain, width = 0, 0, 0.0
    for found in values(cell, times, rng):
        _, low, high = interval(*found, within=(0.0, 1.0))
        held += low - 1e-9 <= real <= high + 1e-9
        width += (high - low) / times
        _, low, high = interval(*found)
        plain += math.isfinite(low) and low - 1e-9 <= real <= high + 1e-9
    return held / times, plain / times, width


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--times", type=int, default=2000)
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--out", type=Path)
    args = asked.parse_args()
    rows = []
    for cell in (Cell(kind, n, k, p) for kind in KINDS for n in PROBLEMS for k in SAMPLES for p in SHARES):
        held, plain, width = covered(cell, args.times, args.seed)
        rows.append({"of": cell.kind, "problems": cell.n, "samples": cell.k, "p": cell.p, "covers": held,
                     "Student": plain, "width": width, "certain": cell.certain})
    print("\n".join(grid([{k: v for k, v in row.items() if k != "certain"} for row in rows])))
    command = f"python proofs/interval_coverage.py --times {args.times} --seed {args.seed}"
    usual = [row for row in rows if not row["certain"]]
    sure = [row for row in rows if row["certain"]]
    least, mean = min(row["covers"] for row in usual), sum(row["covers"] for row in usual) / len(usual)
    bars = [bar(f"coverage of the 95 % intervals, least of {len(usual)} cells", f">= {LEAST}",
                f"{least:.3f}; mean {mean:.3f}; Student's least {min(row['Student'] for row in usual):.3f}",
                least >= LEAST, command),
            bar(f"all right or all wrong, {len(sure)} cells: the truth is held, and the width above 0",
                "always", f"{min(row['covers'] for row in sure):.3f}; narrowest "
                f"{min(row['width'] for row in sure):.4f}",
                all(row["covers"] == 1 and row["width"] > 0 for row in sure), command)]
    end(bars, args.out)


if __name__ == "__main__":
    main()

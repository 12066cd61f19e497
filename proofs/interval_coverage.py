"""How often the 95 % intervals hold the truth, on simulated problems of which some are harder than others.

    python proofs/interval_coverage.py [--times 2000] [--seed 0] [--out FILE.json]
A problem's chance of a right sample is drawn from a beta distribution of mean p; several samples share it.
The sum of its two parameters says how alike problems are: at 0.5 most are always or never solved, at 10 most
have chances near the mean.

    mean     pass@1            pass@k   of k samples              solved   the same, with p as its share
    graded   a reward in [0, 1]                                    same     of two models, as good on each
    gain     a second model that finds half the problems as hard as the first does, and the others anew

Beside ours, the interval of Student over problems. First a wide grid, then what is asked of `eval` and
`compare`: 200 problems x 8 samples and 30 x 8, at 2, 20 and 80 %. About five minutes on one core.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator, Sequence
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
KINDS = ("mean", "pass@k", "graded", "gain", "solved", "same")
WIDE = KINDS[:4]
ASKED, SPREADS, AMONG = (0.02, 0.2, 0.8), (0.5, 2.0, 10.0), (0.93, 0.97)


@dataclass(frozen=True)
class Cell:
    """n problems, k samples of each, a share p of right samples."""

    kind: str
    n: int
    k: int
    p: float
    alike: float = ALIKE

    @property
    def certain(self) -> bool:
        return self.p in (0.0, 1.0)

    @property
    def mean(self) -> float:
        """Of the chances: p, or for `solved` what makes a share p of the problems solved, by halving."""
        low, high = (0.0, 1.0) if self.kind == "solved" else (self.p, self.p)
        while high - low > 1e-12:
            middle = (low + high) / 2
            low, high = (low, middle) if solved(middle, self.k, self.alike) > self.p else (middle, high)
        return low


def solved(p: float, k: int, alike: float) -> float:
    """The share of problems of which one of k samples is right: 1 - E (1 - q)^k of the beta distribution."""
    if p in (0.0, 1.0):
        return p
    return 1 - math.prod((alike * (1 - p) + j) / (alike + j) for j in range(k))


def chances(rng: np.random.Generator, p: float, alike: float, shape: tuple[int, ...]) -> np.ndarray:
    return rng.beta(alike * p, alike * (1 - p), shape) if 0 < p < 1 else np.full(shape, p)


def other(p: float) -> float:
    """The share of the second model."""
    return 0.1 + 0.8 * p if 0 < p < 1 else p


def truth(cell: Cell) -> float:
    if cell.kind == "gain":
        return (other(cell.p) - cell.p) / 2
    if cell.kind == "pass@k":
        return solved(cell.p, cell.k, cell.alike)
    return 0.0 if cell.kind == "same" else cell.p


def values(cell: Cell, times: int, rng: np.random.Generator) -> Iterator[tuple[list[float], ...]]:
    """One value a problem, `times` times over; of a gain, those of both models."""
    first = chances(rng, cell.mean, cell.alike, (times, cell.n))
    right = rng.binomial(cell.k, first)
    if cell.kind in ("pass@k", "solved"):
        table = np.array([pass_at_k(cell.k, c, cell.k) for c in range(cell.k + 1)])
        return ((row,) for row in table[right].tolist())
    if cell.kind == "graded":  # a reward in [0, 1] with the chance as its mean, neither 0 nor 1
        parts = [rng.beta(3 * first + 1e-9, 3 * (1 - first) + 1e-9) for _ in range(cell.k)]
        return ((row,) for row in np.clip(np.mean(parts, axis=0), 0.0, 1.0).tolist())
    if cell.kind == "mean":
        return ((row,) for row in (right / cell.k).tolist())
    same = rng.random((times, cell.n)) < (0.5 if cell.kind == "gain" else 1.1)
    second = np.where(same, first, chances(rng, other(cell.p), cell.alike, (times, cell.n)))
    return zip((right / cell.k).tolist(), (rng.binomial(cell.k, second) / cell.k).tolist(), strict=True)


def covered(cell: Cell, times: int, seed: int) -> tuple[float, float, float]:
    """How often the interval holds the truth, how often Student's does, and the mean width of ours."""
    rng = np.random.default_rng([seed, KINDS.index(cell.kind), cell.n, cell.k, round(1000 * cell.p)])
    interval, real = gain_interval if cell.kind in ("gain", "same") else mean_interval, truth(cell)
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
    rows = table([Cell(kind, n, k, p) for kind in WIDE for n in PROBLEMS for k in SAMPLES for p in SHARES],
                 args.times, args.seed)
    asked_of = table([Cell(kind, n, 8, p, alike) for kind in ("mean", "solved", "pass@k", "gain", "same")
                      for n in (200, 30) for alike in SPREADS for p in ASKED], 2 * args.times, args.seed)
    for found in (rows, asked_of):
        print("\n".join(grid([{k: v for k, v in row.items() if k != "certain"} for row in found])), "\n")
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
                all(row["covers"] == 1 and row["width"] > 0 for row in sure), command),
            *demanded(asked_of, command)]
    end(bars, args.out)


def table(cells: Sequence[Cell], times: int, seed: int) -> list[dict]:
    rows = []
    for cell in cells:
        held, plain, width = covered(cell, times, seed)
        rows.append({"of": cell.kind, "problems": cell.n, "samples": cell.k, "p": cell.p, "alike": cell.alike,
                     "covers": held, "Student": plain, "width": width, "certain": cell.certain})
    return rows


def demanded(rows: Sequence[dict], command: str) -> Iterator[dict]:
    """The bars of `eval` and `compare`.

    Where almost nothing differs an interval can only be too wide, and is asked for the lower bound alone:
    pass@8 where pass@1 is 80 %, of which one problem in 70 or fewer is missed; and two models that are
    equally good on each problem, where 2 % is solved or problems are solved always or never (alike 0.5).
    """
    low, high = AMONG
    names = {"mean": "pass@1", "solved": "pass@8", "gain": "paired difference", "same": "no difference"}
    for kind, name in names.items():
        every = [row for row in rows if row["of"] == kind and row["problems"] == 200]
        found = [row["covers"] for row in every
                 if kind != "same" or row["p"] > 0.02 and row["alike"] > SPREADS[0]]
        wide = max(row["covers"] for row in every)
        shares = "20 and 80 %" if kind == "same" else "2, 20 and 80 %"
        yield bar(f"coverage of {name} at {shares}, 200 problems x 8, {len(found)} cells",
                  f"{low:.0%} to {high:.0%}", f"{min(found):.3f} to {max(found):.3f}"
                  + (f"; where almost nothing differs up to {wide:.3f}" if kind == "same" else ""),
                  low <= min(found) and max(found) <= high, command)
    few = [row["covers"] for row in rows if row["problems"] == 30]
    wide = [row["covers"] for row in rows if row["problems"] == 200]
    yield bar(f"the same with 30 problems x 8, pass@8 by its own share and by pass@1's, {len(few)} cells",
              f">= {low:.0%}", f"least {min(few):.3f}; of the 200 x 8 {min(wide):.3f}",
              min(few + wide) >= low, command)


if __name__ == "__main__":
    main()

"""The geometry of figures of measurements: lines with bands over samples spent, gains problem by problem."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from postgrad.runs.report.curves import ticks
from postgrad.runs.report.figures import show
from postgrad.runs.rows import JsonDict, JsonMapping

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 640, 330, 68, 14, 14, 54


def height_of(low: float, high: float) -> Callable[[float], float]:
    """Values to heights in the figure."""
    return lambda value: round(TOP + (HEIGHT - TOP - BOTTOM) * (high - value) / (high - low), 1)


def over_samples(rows: Sequence[JsonMapping], names: Mapping[str, str]) -> JsonDict:
    """Lines over the numbers of samples spent, `k` of each row, a doubling as far as the next.

    names: key of a figure -> its label; bands are the key's intervals.
    """
    last = max(math.log2(rows[-1]["k"]), 1.0)
    tops = [row[f"{key}_interval"][1] for row in rows for key in names]
    levels = ticks(0.0, min(1.0, max([*tops, 0.02])), 4)
    y = height_of(0.0, levels[-1])

    def x(k: int) -> float:
        return round(LEFT + (WIDTH - LEFT - RIGHT) * math.log2(k) / last, 1)

    drawn = []
    for at, (key, label) in enumerate(names.items()):
        points = [(x(row["k"]), y(row[key])) for row in rows]
        ends = [[(x(row["k"]), y(row[f"{key}_interval"][side])) for row in rows] for side in (0, 1)]
        drawn.append({
            "label": label, "hue": f"l{at % 5}", "path": "M" + "L".join(f"{a} {b}" for a, b in points),
            "band": " ".join(f"{a},{b}" for a, b in ends[0] + ends[1][::-1]),
            "dots": [(a, b, f"{label}, {row['k']} samples: {show(row[key], 'pass@1')}")
                     for (a, b), row in zip(points, rows, strict=True)]})
    return {"width": WIDTH, "height": HEIGHT, "left": LEFT, "right": WIDTH - RIGHT, "base": y(0.0),
            "rows": [(y(t), show(t, "pass@1")) for t in levels],
            "columns": [(x(row["k"]), row["k"]) for row in rows], "lines": drawn,
            "aria": "; ".join(f"{label}: {show(rows[0][key], 'pass@1')} with {rows[0]['k']} sample, "
                              f"{show(rows[-1][key], 'pass@1')} with {rows[-1]['k']}"
                              for key, label in names.items())}


def by_problem(gains: Sequence[float]) -> JsonDict:
    """A bar for every problem, from the most won to the most lost."""
    ranked = sorted(gains, reverse=True)
    y, wide = height_of(-1.0, 1.0), (WIDTH - LEFT - RIGHT) / len(ranked)
    bars = [{"x": round(LEFT + i * wide, 2), "width": round(max(wide - (0.6 if wide > 2 else 0), 0.3), 2),
             "y": y(max(gain, 0.0)), "height": round(abs(y(gain) - y(0.0)), 1),
             "kind": "won" if gain > 0 else "lost"} for i, gain in enumerate(ranked) if gain]
    won, lost = sum(g > 0 for g in gains), sum(g < 0 for g in gains)
    return {"width": WIDTH, "height": HEIGHT, "left": LEFT, "right": WIDTH - RIGHT, "base": y(0.0),
            "rows": [(y(t), f"{100 * t:+.0f}".replace("-", "\u2212") if t else "0") for t in
                     (-1.0, -0.5, 0.0, 0.5, 1.0)], "bars": bars,
            "aria": f"{won} problems won, {lost} lost, {len(gains) - won - lost} even"}

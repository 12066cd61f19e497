"""The geometry of a curve: which of its points are drawn, its axes, its path."""

from __future__ import annotations

import math
from collections.abc import Sequence

from postgrad.runs.report.figures import RATES, show, tick
from postgrad.runs.rows import JsonDict, JsonMapping

SMALL = ("clip_fraction", "grad_norm", "flat_groups", "lr", "ratio_max", "truncated")
SAYS = {
    "reward": "The mean score of the step’s own samples: the number that training pushes up.",
    "pass@1": "Held-out problems, on which the model is not trained. Bars are 95 % intervals.",
    "length": "Tokens in a sample. It grows where longer answers are right more often.",
    "kl": "How far the model has moved from where this stage began. A slow rise is normal.",
    "entropy": "How undecided the model is at each token. It falls as the model settles on a "
               "way of answering.",
    "flat_groups": "Share of prompts whose samples all scored the same: nothing to learn from "
                   "them in that step.",
    "clip_fraction": "Share of tokens on which the clip held the update back.",
    "grad_norm": "Length of the gradient. A spike is one odd batch.",
}


def ticks(low: float, high: float, count: int = 3) -> list[float]:
    """About `count` steps of 1, 2, 2.5 or 5 times a power of ten that cover low to high.

    (0, 0.83) -> 0, 0.5, 1
    """
    raw = (high - low) / count
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(m * unit for m in (1, 2, 2.5, 5, 10) if m * unit >= raw * 0.999)
    start, stop = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(start, stop + 1)]


def extremes(values: Sequence[float], most: int = 600) -> list[int]:
    """The places of the lowest and highest value of each stretch of a long curve:
    no spike is lost, nothing is averaged.

    A value that is not finite stands for its stretch beside them: a gap stays a gap. The last place stays.
    """
    if len(values) <= most:
        return list(range(len(values)))
    size, kept = math.ceil(len(values) / (most // 2)), []
    for start in range(0, len(values), size):
        part = values[start: start + size]
        finite = part if math.isfinite(sum(part)) else [x for x in part if math.isfinite(x)]
        places = {part.index(min(finite)), part.index(max(finite))} if finite else set()
        gap = [i for i, x in enumerate(part) if not math.isfinite(x)][:1] if finite is not part else []
        kept += [start + i for i in sorted(places.union(gap))]
    return kept if kept[-1] == len(values) - 1 else [*kept, len(values) - 1]


def thin(points: list[tuple[float, float]], most: int = 600) -> list[tuple[float, float]]:
    """Of a long curve its `extremes`."""
    return [points[i] for i in extremes([value for _, value in points], most)]


def draw_curve(curve: JsonMapping, lead: bool = False) -> JsonDict | None:
    """The geometry of one curve in its own units: path, ticks, whiskers, labels.

    None when there is nothing finite to draw.
    """
    name, small = curve["name"], curve["name"] in SMALL
    points = thin([(float(s), float(v)) for s, v in curve["points"]])
    good = [(s, v) for s, v in points if math.isfinite(v)]
    if not good:
        return None
    bars = [b for b in curve.get("interval") or () if all(math.isfinite(x) for x in b)]
    rate = bool(RATES.fullmatch(name))
    bars = [(s, max(low, 0.0), min(high, 1.0)) if rate else (s, low, high) for s, low, high in bars]
    values = [v for _, v in good] + [x for _, low, high in bars for x in (low, high)]
    low, high = min(0.0, *values), max(values)
    high = 1.0 if rate and high > 0.5 else high if high > low else low + 1.0
    ys = ticks(low, high, 2 if small else 3)
    width, height = (500, 236) if lead else (340, 110 if small else 176)
    left, right, top, bottom = (54, 58, 12, 30) if lead else (44, 50, 10, 26)
    unit = curve.get("unit") or ""
    top, height = (top + 14, height + 14) if unit else (top, height)
    first, last = points[0][0], points[-1][0]
    begin = 0.0 if first <= 1 else first
    xs = [t for t in ticks(begin, max(last, begin + 1), 4)
          if begin <= t <= max(last, begin + 1) and t == int(t)]

    def x(step: float) -> float:
        return round(left + (width - left - right) * (step - begin) / max(last - begin, 1), 1)

    def y(value: float) -> float:
        return round(top + (height - top - bottom) * (ys[-1] - value) / (ys[-1] - ys[0]), 1)

    path, pen = [], "M"
    for s, v in points:
        if math.isfinite(v):
            path.append(f"{pen}{x(s)} {y(v)}")
        pen = "L" if math.isfinite(v) else "M"
    start, end, label = good[0], good[-1], curve.get("label") or name
    began, ended = show(start[1], name, 2), show(end[1], name, 2)
    return {
        "name": name, "label": label, "unit": unit, "says": curve.get("explain") or SAYS.get(name, ""),
        "reward": name == "reward", "lead": lead, "small": small, "width": width, "height": height,
        "left": left, "right": width - right, "base": y(ys[0]),
        "path": "".join(path), "bars": [(x(s), y(a), y(b)) for s, a, b in bars], "before": y(start[1]),
        "dots": [(x(s), y(v), f"step {s:g}: {show(v, name)}") for s, v in good] if bars
                or len(good) < 16 else [], "rows": [(y(t), tick(t, name)) for t in ys],
        "columns": [(x(t), f"{t:.0f}") for t in xs], "end": (x(end[0]), y(end[1]), ended),
        "change": f"{began} → {ended}", "lost": len(points) - len(good),
        "aria": f"{label} by step: {began} at step {start[0]:g}, {ended} {unit} at step {end[0]:g}",
    }

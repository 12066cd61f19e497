"""The geometry of the small charts: scales, ticks, paths.

Markup is made by templates/svg.html, colours by CSS class.

Left out on purpose: smoothing, legends (a line is labelled where it ends), colours.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from postgrad.studio.json_types import JsonDict

Point = tuple[float, float]


def axis_ticks(low: float, high: float, count: int = 4) -> list[float]:
    """About `count` round numbers inside low to high: steps of 1, 2, 2.5 or 5 times a power of ten.

    (0, 1) -> 0, 0.25, ... 1
    """
    if not count:
        return []
    if not high > low:
        return [low]
    raw = (high - low) / count
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next(m * unit for m in (1, 2, 2.5, 5, 10) if m * unit >= raw * 0.999)
    return [round(i * step, 12)
            for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]


def path(points: Iterable[Point]) -> str:
    """The d of a path through points in pixels; a point that is not finite lifts the pen."""
    parts, pen = [], "M"
    for x, y in points:
        if math.isfinite(x) and math.isfinite(y):
            parts.append(f"{pen}{x:.1f} {y:.1f}")
        pen = "L" if math.isfinite(x) and math.isfinite(y) else "M"
    return "".join(parts)


def spread(values: Sequence[float], zero: bool = False, margin: float = 0.05) -> tuple[float, float]:
    """A range that holds the finite values with a little margin; with zero, 0 as well.

    Nothing finite: (0, 1).
    """
    good = [v for v in values if math.isfinite(v)] + ([0.0] if zero else [])
    if not good:
        return 0.0, 1.0
    low, high = min(good), max(good)
    extra = margin * (high - low) if high > low else 0.5 * abs(high) or 0.5
    return low - (0 if zero and low == 0 else extra), high + extra


@dataclass(frozen=True)
class Plot:
    """A drawing area: data to pixels. Plot((-5, 5), (0, 1)).at(0, 0.5) is its middle.

    x, y: the data's ranges. left, right, top, bottom: room for labels, in pixels of the viewBox.
    """

    x: tuple[float, float]
    y: tuple[float, float]
    width: int = 560
    height: int = 300
    left: int = 48
    right: int = 72
    top: int = 30
    bottom: int = 40

    @property
    def x0(self) -> float:
        return self.left

    @property
    def x1(self) -> float:
        return self.width - self.right

    @property
    def y0(self) -> float:
        """The bottom edge."""
        return self.height - self.bottom

    @property
    def y1(self) -> float:
        return self.top

    def px(self, x: float) -> float:
        low, high = self.x
        return round(self.x0 + (self.x1 - self.x0) * (x - low) / ((high - low) or 1), 1)

    def py(self, y: float) -> float:
        low, high = self.y
        return round(self.y0 + (self.y1 - self.y0) * (y - low) / ((high - low) or 1), 1)

    def at(self, x: float, y: float) -> Point:
        return self.px(x), self.py(y)

    def path(self, points: Iterable[Point]) -> str:
        return path((self.px(x), self.py(y)) for x, y in points)

    def rings(self, marks: Iterable[tuple[float, float, bool]], radius: float, marked: bool) -> str:
        """The d of a path of circles: those of the (x, y, marked) that are marked, or those that are not; of
        circles at the same pixel one."""
        ring = f"a{radius} {radius} 0 1 0 {2 * radius} 0a{radius} {radius} 0 1 0 {-2 * radius} 0"
        at = {f"M{self.px(x) - radius:.0f} {self.py(y):.0f}": ring for x, y, of in marks if of == marked}
        return "".join(start + circle for start, circle in at.items())

    def xticks(self, count: int = 5) -> list[tuple[float, float]]:
        """(pixel, value)"""
        return [(self.px(t), t) for t in axis_ticks(*self.x, count)]

    def yticks(self, count: int = 4) -> list[tuple[float, float]]:
        return [(self.py(t), t) for t in axis_ticks(*self.y, count)]

    def digits(self, found: list[tuple[float, float]]) -> int:
        """The decimals that tell these ticks apart and round none of them: 0, 2.5, 5 -> 1"""
        return next((d for d in range(6) if all(abs(round(t, d) - t) < 1e-9 for _, t in found)), 6)


def sparks(curves: Sequence[Sequence[float]], width: int = 120, height: int = 28) -> JsonDict:
    """Sparklines on one scale: their path and where the first ends; an empty one has an empty path."""
    good = [[(i, v) for i, v in enumerate(series) if math.isfinite(v)] for series in curves]
    area = Plot((0, max([len(series) - 1 for series in curves] + [1])),
                spread([v for points in good for _, v in points], margin=0.0), width, height, 2, 4, 4, 4)
    return {"path": "".join(map(area.path, good)), "end": area.at(*good[0][-1]) if good[0] else None,
            "width": width, "height": height}


def spark(series: Sequence[float], width: int = 120, height: int = 28) -> JsonDict:
    """A sparkline of one curve."""
    return sparks([series], width, height)

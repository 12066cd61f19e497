"""What the pages share: numbers and times as text, ticks, long curves thinned, templates."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from postgrad.system.files import write_text

RATES = re.compile(r"pass@\d+|greedy|format|accuracy|flat_groups|clip_fraction|truncated|finished|repetition")


def show(value: object, name: str = "", digits: int = 3) -> str:
    """A number as text: 0.2412 as a rate is 24 %, 34.52 is 34.5, -0.5 has a true minus; else a dash."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return "–"
    if RATES.fullmatch(name):
        edge = 0 < value < 0.01 or 0.995 <= value < 1  # a few in a thousand is not none, and not all
        text = f"{100 * value:.{1 if edge else 0}f}\u202f%"
    elif float(value).is_integer() and abs(value) < 1e6:
        text = f"{value:.0f}"
    else:
        places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
        text = f"{value:.{places}f}" if places <= 5 and abs(value) < 1e6 else f"{value:.1e}"
    return text.replace("-", "\u2212")


def tick(value: float, name: str) -> str:
    """A label of an axis: 0.5, not 0.500."""
    return show(value, name) if RATES.fullmatch(name) else f"{value:g}".replace("-", "\u2212")


def seconds(value: object) -> str:
    """7.24 -> "7.2 s", 200 -> "3 min 20 s"."""
    if not isinstance(value, int | float) or not math.isfinite(value):
        return "–"
    if value < 60:
        return f"{value:.0f} s" if value >= 10 or value == 0 else f"{value:.1f} s"
    hours, minutes, rest = int(value) // 3600, int(value) // 60 % 60, int(value) % 60
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


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
    """Indices of the lowest and highest value of each stretch of a long curve, and of the last value.

    No spike is lost, nothing is averaged. The first non-finite value of a stretch stays too: a gap stays a
    gap.
    """
    if len(values) <= most:
        return list(range(len(values)))
    import numpy as np  # not at the top: reading a run needs the standard library alone
    size = math.ceil(len(values) / (most // 2))
    parts = np.full((math.ceil(len(values) / size), size), np.nan)  # a stretch a row
    parts.flat[:len(values)] = values
    finite, kept = np.isfinite(parts), np.zeros(parts.shape, bool)
    low, high = np.where(finite, parts, np.inf).argmin(1), np.where(finite, parts, -np.inf).argmax(1)
    for found, first in ((finite, low), (finite, high), (~finite, (~finite).argmax(1))):
        kept[np.arange(len(parts)), first] |= found.any(1)
    kept.flat[len(values) - 1:] = False  # what fills the last row up
    return [*np.flatnonzero(kept).tolist(), len(values) - 1]


def thin(points: list[tuple[float, float]], most: int = 600) -> list[tuple[float, float]]:
    """The points of a curve at its `extremes`."""
    return [points[i] for i in extremes([value for _, value in points], most)]


def write_page(path: str | Path, template: str, **values: object) -> Path:
    """Renders a template and writes it atomically; -> its path. Values are escaped."""
    import jinja2  # not at the top: reading a run needs the standard library alone

    home = files("postgrad.runs.report")
    strict = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True,
                                undefined=jinja2.StrictUndefined,
                                loader=jinja2.FunctionLoader(lambda name: (home / name).read_text("utf-8")))
    html = strict.get_template(template).render(**values)
    write_text(Path(path), html.encode("utf-8", "replace").decode())
    return Path(path)

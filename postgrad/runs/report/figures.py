"""Numbers and times as a reader of the page sees them."""

import math
import re

RATES = re.compile(r"pass@\d+|greedy|format|accuracy|flat_groups|clip_fraction|truncated|finished|repetition")


def show(value: object, name: str = "", digits: int = 3) -> str:
    """A number for a reader: 0.2412 as a rate is 24 %, 34.52 is 34.5, -0.5 has a true minus; what is no
    number is a dash."""
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

"""Numbers, times and a model's words as text that can't steer a terminal."""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Sequence
from typing import TextIO

BARS = "▁▂▃▄▅▆▇█"
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")



def clean(text: object) -> str:
    """Text that can't steer a terminal: tabs become spaces,
    other control characters and direction marks a sign."""
    return CONTROLS.sub("\ufffd", str(text).replace("\r\n", "\n").replace("\t", "    "))


def figure(value: object) -> str:
    """A number in few characters: 0.8123 -> 0.812, 34.5 -> 34.5, 1234567 -> 1.23e+06, 3 -> 3;
    other things as they are."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "" if value is None else clean(value).replace("\n", " ")
    if not math.isfinite(value) or isinstance(value, int):
        return str(value)
    size = abs(value)
    if size and (size < 1e-3 or size >= 1e5):
        return f"{value:.2e}"
    return f"{value:.{3 if size < 10 else 1 if size < 1000 else 0}f}"


def sparkline(values: Sequence[float], width: int = 24) -> str:
    """The last stretch of a curve in `width` characters, each the mean of its part. [0, 1, 2] -> ▁▄█"""
    values = [v for v in values if math.isfinite(v)]
    if len(values) > width:
        cuts = [i * len(values) // width for i in range(width + 1)]
        values = [sum(values[a:b]) / (b - a) for a, b in zip(cuts, cuts[1:], strict=False)]
    if not values:
        return ""
    low, spread = min(values), max(values) - min(values)
    return "".join(BARS[min(7, int(8 * (v - low) / spread))] if spread else BARS[0] for v in values)


def duration(seconds: float) -> str:
    """75 -> 1:15, 3700 -> 1:01:40"""
    whole = int(seconds)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def time_ago(moment: float | None, now: float | None = None) -> str:
    """A time of the clock as people say it: just now, 2 min ago, 14:03 (today), 3 Nov, 3 Nov 2024."""
    if moment is None:
        return ""
    now = time.time() if now is None else now
    if 0 <= now - moment < 3600:
        return f"{int(now - moment) // 60} min ago" if now - moment >= 60 else "just now"
    then, today = time.localtime(moment), time.localtime(now)
    if then[:3] == today[:3]:
        return time.strftime("%H:%M", then)
    return f"{then.tm_mday} {time.strftime('%b', then)}" + (f" {then[0]}" if then[0] != today[0] else "")


def is_terminal(file: object) -> bool:
    """A terminal that understands cursor movement; settings that force colour don't make a pipe one."""
    return (bool(getattr(file, "isatty", lambda: False)())
            and os.environ.get("TERM") not in ("dumb", "unknown"))


def print_plain(file: TextIO, text: str) -> None:
    """One plain line, whatever the encoding of the file; gone readers (a closed pipe) are no
    fault of the training."""
    coding = getattr(file, "encoding", None) or "utf-8"
    try:
        file.write(clean(text).encode(coding, "replace").decode(coding) + "\n")
        file.flush()
    except BrokenPipeError:
        pass

"""The ledger: what a training gained and what it lost, on a panel of tasks that it was not all trained for.

A run's folder, or a pipeline's, holds ledger.json: how it was measured, and an entry for every model that
was, with one value a problem, so that gains are taken problem by problem.

    {"panel": ["words", "text"], "problems": 50, "samples": 4, "seed": 0, "entries": [
      {"name": "start", "step": 0, "figures": {"text": {"nats": [1.1, 0.9]}, "words": {
          "pass@1": [0.5, 0.25], "pass@4": [1.0, 1.0], "different_replies": [0.75, 1.0]}}},
      {"name": "step 40", "step": 40, "figures": ...}]}

Standard library only. Left out on purpose: measuring, which needs models (recipes/panel.py).
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from postgrad.maths.intervals import gain_interval, mean_interval
from postgrad.runs.rows import JsonDict, JsonMapping
from postgrad.system.files import load_json, write_text

FILE = "ledger.json"
HEADER = ("panel", "problems", "samples", "seed")
DIVERSITY = "different_replies"
COLLAPSE = 0.5  # of the diversity it began with: what is left of it where it has collapsed
SHARE = (0.0, 1.0)
RANGES = {"reward": (-1e9, 1e9), "nats": (0.0, 100.0)}  # of what is no share: within reason


class Line(NamedTuple):
    """One measure of one task, of the first and of another model. gain: what the second has more, with its
    interval; verdict: gain, loss, collapse, or nothing that can be told."""

    task: str
    measure: str
    first: tuple[float, float, float]
    last: tuple[float, float, float]
    gain: tuple[float, float, float]
    verdict: str


# the file

def read_ledger(folder: str | Path) -> JsonDict | None:
    """The ledger in a folder, looked through: it may have come from somewhere else. None: there is none."""
    path = Path(folder) / FILE
    if not path.is_file():
        return None
    found = load_json(path, flags=os.O_NOFOLLOW)
    fault = fault_in(found)
    if fault:
        raise ValueError(f"{path} is no ledger ({fault}): take it away, and `postgrad ledger {folder}` makes "
                         "it anew.")
    assert isinstance(found, dict)
    return found


def fault_in(found: object) -> str:
    """What is wrong with a ledger; "" where nothing is."""
    if not isinstance(found, dict) or not all(key in found for key in (*HEADER, "entries")):
        return f"it has not {', '.join(HEADER)} and entries"
    if not (isinstance(found["panel"], list) and all(isinstance(name, str) for name in found["panel"])
            and all(isinstance(found[key], int) for key in HEADER[1:])
            and isinstance(found["entries"], list)):
        return "panel is no list of names, entries no list, or a count no number"
    for at, entry in enumerate(found["entries"]):
        if not (isinstance(entry, dict) and isinstance(entry.get("name"), str)
                and isinstance(entry.get("step"), int) and isinstance(entry.get("figures"), dict)):
            return f"entry {at} has no name, step and figures"
        for figures in entry["figures"].values():
            if not isinstance(figures, dict) or not all(is_values(*item) for item in figures.items()):
                return f"entry {at} has figures that are no numbers, or out of their range"
    shapes = [{(task, measure): len(values) for task, figures in entry["figures"].items()
               for measure, values in figures.items()} for entry in found["entries"]]
    uneven = any(shape.get(key, count) != count for shape in shapes[1:] for key, count in shapes[0].items())
    return "its entries are of different problems" if uneven else ""


def is_values(measure: str, found: object) -> bool:
    low, high = RANGES.get(measure, SHARE)
    return (isinstance(found, list) and len(found) > 0
            and all(x is None or isinstance(x, int | float) and low <= x <= high for x in found))


def write_ledger(folder: str | Path, ledger: JsonMapping) -> None:
    write_text(Path(folder) / FILE, json.dumps(ledger, indent=None, allow_nan=False))


def add_entry(folder: str | Path, header: JsonMapping, entry: JsonMapping) -> None:
    """Puts an entry down while a run is trained: what was measured at later steps, before the run went back,
    goes."""
    known = read_ledger(folder)
    kept = known["entries"] if known and same_panel(known, header) else []
    write_ledger(folder, {**header, "entries": [*(e for e in kept if e["step"] < entry["step"]),
                                                dict(entry)]})


def same_panel(ledger: JsonMapping, header: JsonMapping) -> bool:
    """Whether a ledger was measured as the header says."""
    return all(ledger[key] == header[key] for key in HEADER)


# gains and losses

def compare_entries(first: JsonMapping, last: JsonMapping) -> list[Line]:
    """Every measure that both entries have, task by task."""
    return [compare_measure(task, measure, values, last["figures"][task][measure])
            for task, figures in first["figures"].items() if task in last["figures"]
            for measure, values in figures.items() if measure in last["figures"][task]]


def compare_measure(task: str, measure: str, before: Sequence[float | None],
                    after: Sequence[float | None]) -> Line:
    """Over the problems that both have a value of; None stands for one that could not be judged."""
    within = SHARE if measure not in RANGES else None
    pairs = [(a, b) for a, b in zip(before, after, strict=True) if a is not None and b is not None]
    if not pairs:
        raise ValueError(f"no problem of {task} has a {measure} of both models: measure with more problems.")
    first, last = [a for a, _ in pairs], [b for _, b in pairs]
    gain = gain_interval(first, last, within)
    if within is None and gain[1] == -math.inf:  # differences that are all alike know no spread
        gain = gain[0], gain[0], gain[0]
    ends = [interval if math.isfinite(interval[1]) else (interval[0],) * 3
            for interval in (mean_interval(first, within), mean_interval(last, within))]
    return Line(task, measure, ends[0], ends[1], gain, verdict_on(measure, ends[0][0], ends[1][0], gain))


def verdict_on(measure: str, first: float, last: float, gain: tuple[float, float, float]) -> str:
    """By the interval of the gain. Fewer nats are better; diversity is neither good nor bad, but may
    collapse."""
    _, low, high = gain
    up, down = low > 0, high < 0
    if measure == DIVERSITY:
        return "collapse" if down and last <= COLLAPSE * first else "less varied" if down else \
            "more varied" if up else "not told"
    if measure == "nats":
        up, down = down, up
    return "gain" if up else "loss" if down else "not told"


def sentences(found: Sequence[Line]) -> list[str]:
    """Gains, losses and collapses in words; differences that chance could explain are named too."""
    main = [x for x in found if x.measure in ("pass@1", "reward", "nats")]
    tasks = [x.task for x in main]

    def name(x: Line) -> str:
        return f"{x.task} ({x.measure})" if tasks.count(x.task) > 1 else x.task

    said = [f"{word}: " + "; ".join(f"{name(x)} {gain_text(x)}" for x in part) + "."
            for word, kind in (("Gained", "gain"), ("Lost", "loss"))
            if (part := [x for x in main if x.verdict == kind])]
    if rest := [name(x) for x in main if x.verdict == "not told"]:
        said.append(f"Not told from chance: {', '.join(rest)}.")
    if gone := [x for x in found if x.verdict == "collapse"]:
        said.append("Diversity collapsed: " + "; ".join(
            f"on {x.task} {x.last[0]:.0%} of a problem's replies differ, {x.first[0]:.0%} before"
            for x in gone) + ".")
    for narrow in narrowed(found):
        said.append(f"On {narrow} fewer problems are solved within several tries, though single tries are "
                    "right as often or oftener: what the model can do has narrowed.")
    return said


def narrowed(found: Sequence[Line]) -> list[str]:
    """The tasks on which pass@k was lost and pass@1 was not."""
    kinds = {(x.task, x.measure): x.verdict for x in found}
    return [task for (task, measure), verdict in kinds.items()
            if measure.startswith("pass@") and measure != "pass@1" and verdict == "loss"
            and kinds.get((task, "pass@1")) != "loss"]


def gain_text(x: Line) -> str:
    """A gain as a reader sees it: in points, or as perplexities."""
    if x.measure == "nats":
        return f"perplexity {math.exp(x.first[0]):.2f} to {math.exp(x.last[0]):.2f}"
    size, unit = (1, "") if x.measure in RANGES else (100, " points")
    gain, low, high = (size * v for v in x.gain)
    return f"{gain:+.{1 if unit else 2}f}{unit} ({low:+.{1 if unit else 2}f} to {high:+.{1 if unit else 2}f})"


def table_row(x: Line) -> dict[str, str]:
    """A line of the table: the two models' figures and the gain, as text."""
    def text(value: tuple[float, float, float]) -> str:
        mid, low, high = value
        if x.measure == "nats":
            return f"{math.exp(mid):.2f} ({math.exp(low):.2f} to {math.exp(high):.2f})"
        if x.measure in RANGES:
            return f"{mid:.2f} ({low:.2f} to {high:.2f})"
        return f"{mid:.1%} ({100 * low:.1f} to {100 * high:.1f})"

    name = "perplexity" if x.measure == "nats" else x.measure.replace("_", " ")
    gain = perplexity_ratio(x) if x.measure == "nats" else gain_text(x)
    return {"task": x.task, "measure": name, "first": text(x.first), "last": text(x.last), "gain": gain,
            "": "" if x.verdict == "not told" else x.verdict}


def perplexity_ratio(x: Line) -> str:
    """How many times the perplexity has become."""
    gain, low, high = map(math.exp, x.gain)
    return f"x {gain:.3f} ({low:.3f} to {high:.3f})"

"""Curves for the page: which metrics are shown, under which names, and their points without a spike lost."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import partial, reduce

from postgrad.runs import explain, number
from postgrad.runs.report import extremes
from postgrad.studio.json_types import JsonDict
from postgrad.studio.runs.traces import EVALS, Trace

KNOTS = 300   # steps at which the sums of tokens and seconds are given
POINTS = 800  # of a curve at first sight; what comes later is appended as it is
SHOWN = {  # the curves that are always looked at, where a run has them: name -> (label, unit, role)
    "reward": ("Reward", "", "reward"),
    "evals/pass@1": ("pass@1, held out", "", "up"),
    "evals/reward": ("Reward, held out", "", "up"),
    "evals/proxy": ("Reward model’s score, held out", "", "reward"),
    "accuracy": ("Accuracy on pairs", "", "reward"),
    "loss": ("Loss", "", "policy"),
    "margin": ("Margin", "", "policy"),
    "kl": ("KL to the reference", "nats per token", "policy"),
    "teacher_kl": ("KL to the teacher", "nats per token", "policy"),
    "entropy": ("Entropy", "nats per token", "policy"),
    "length": ("Length", "tokens", "policy"),
    "clip_fraction": ("Clip fraction", "", "policy"),
    "flat_groups": ("Groups without signal", "", "policy"),
    "grad_norm": ("Gradient norm", "", "policy"),
    "value_loss": ("Value loss", "", "critic"),
    "explained_variance": ("Explained variance", "", "critic"),
}


# metrics that are shares, drawn from 0 to 100 % in every chart
SHARE = re.compile(r"pass@\d+|greedy|lenient|accuracy|format|finished")
HELD_OUT = {"reward": "The mean score of samples on held-out problems."}


def chosen_metrics(traces: list[Trace]) -> tuple[list[str], list[str]]:
    """The metrics that any of the runs has: those always looked at, and the rest.

    A policy's loss says nothing, and its held-out reward is pass@1 again unless a reward model stands
    between: both are rest.
    """
    import numpy as np  # not at the top: the studio's start is quick
    names = list(dict.fromkeys(name for trace in traces for name in trace.names()))
    names = [n for n in names if any(np.isfinite(trace.column(n)[1]).any() for trace in traces)]
    aside = {"loss"} if "reward" in names else set()
    aside |= {"evals/reward"} if "reward" in names and "evals/proxy" not in names else set()
    first = [n for n in SHOWN if n in names and n not in aside]
    return first, sorted(n for n in names if n not in first)


def metric_description(name: str) -> JsonDict:
    """Label, unit and colour of a metric, and the sentences that `postgrad explain` has."""
    log, metric = ("evals", name.removeprefix(EVALS)) if name.startswith(EVALS) else ("metrics", name)
    label, unit, role = SHOWN.get(name, (metric if log == "metrics" else f"{metric}, held out", "", "policy"))
    found = {"name": name, "log": log, "metric": metric, "label": label, "unit": unit, "role": role,
             "share": bool(SHARE.fullmatch(metric))}
    try:
        entry = explain.explain(metric)
    except ValueError:
        return found | {"meaning": "", "healthy": ""}
    meaning = HELD_OUT.get(metric, entry.meaning) if log == "evals" else entry.meaning
    return found | {"meaning": meaning, "healthy": entry.healthy}


def six_digits(values: Sequence[float]) -> list[float | None]:
    """Six digits are more than a picture shows; what is not finite is a gap."""
    found = map(float, ("%.6g " * len(values) % tuple(values)).split())  # at once: thousands in no time
    return [*found] if math.isfinite(sum(values)) else [x if math.isfinite(x) else None for x in found]


def smoothed(values: Sequence[float], weight: float) -> list[float]:
    """The moving mean: what came before has this weight. Gaps stay.

    smoothed([0.0, 1.0, 1.0], 0.5) -> [0.0, 0.5, 0.75]
    """
    found, mean = [], math.nan
    for value in values:
        if math.isfinite(value):
            mean = weight * mean + (1 - weight) * value if math.isfinite(mean) else value
        found.append(mean if math.isfinite(value) else value)
    return found


def run_axis(trace: Trace, most: int = KNOTS) -> JsonDict:
    """Steps, and the sums of tokens and of seconds up to them, for curves by tokens or time; of a long run
    every so many steps. None where they are not logged."""
    import numpy as np
    found: JsonDict = {"steps": [], "tokens": None, "time": None}
    for key, name in (("tokens", "tokens"), ("time", "time/step")):
        steps, values = map(np.asarray, trace.column(name))
        if not len(steps):
            continue
        sums = np.cumsum(np.where(np.isfinite(values), values, 0.0))
        kept = np.union1d(np.arange(0, len(steps), max(1, len(steps) // most)), len(steps) - 1)
        if found["steps"] in ([], picked := steps[kept].tolist()):
            found |= {"steps": picked, key: six_digits(sums[kept].tolist())}
    return found


def trace_curve(name: str, trace: Trace, most: int = POINTS, between: tuple[float, float]
                | None = None, smooth: float = 0.0) -> JsonDict:
    """One run's curve: steps, values, and the intervals of evaluations."""
    steps, values = trace.column(name)
    if smooth:
        values = smoothed(values, smooth)
    if between:
        start, end = bisect_left(steps, between[0]), bisect_right(steps, between[1])
        steps, values = steps[start:end], values[start:end]
    kept = extremes(values, most)
    found: JsonDict = {"steps": [steps[i] for i in kept], "values": six_digits([values[i] for i in kept]),
             "whole": len(kept) == len(values)}
    bars = {row["step"]: row.get(f"{name.removeprefix(EVALS)}_interval") for row in trace.evals}
    if name.startswith(EVALS) and any(isinstance(b, list) and len(b) == 2 for b in bars.values()):
        logged = [bars.get(step) for step in found["steps"]]
        ends = [b if isinstance(b, list) and len(b) == 2 else [math.nan, math.nan] for b in logged]
        found |= {"low": six_digits([number(b[0]) for b in ends]),
                  "high": six_digits([number(b[1]) for b in ends])}
    return found


def chart_curves(traces: dict[str, Trace], names: list[str], later: Sequence[str] = ()) -> dict[str,
                                                                                                JsonDict]:
    """What the page's charts are drawn from: {"reward": {"label", ..., "series":
    [{"run", "steps", "values"}]}}

    later: metrics whose points the page fetches when somebody opens their drawer.
    """
    drawn = {name: metric_description(name)
             | {"series": [{"run": run, **trace_curve(name, trace)} for run, trace in traces.items()]}
             for name in names}
    return drawn | late_curves([*traces], later)


def seed_curves(groups: dict[str, dict[str, Trace]], names: list[str], later: Sequence[str] = ()) -> dict[
        str, JsonDict]:
    """As `chart_curves`, of runs that differ in their seeds: at the steps that all of a group have the mean,
    and from the lowest to the highest of them a band."""
    drawn = {name: metric_description(name) | {"series": [
        {"run": label, "seeds": len(group), "whole": True, "band": len(group) > 1,
         **seed_band([trace.column(name) for trace in group.values()])} for label, group in groups.items()]}
        for name in names}
    return drawn | late_curves([*groups], later)


def late_curves(runs: list[str], names: Sequence[str]) -> dict[str, JsonDict]:
    return {name: metric_description(name) | {"series": [
        {"run": run, "steps": [], "values": [], "late": True} for run in runs]} for name in names}


def seed_band(columns: list[tuple[Sequence[int], Sequence[float]]], most: int = POINTS) -> JsonDict:
    """seed_band([([1, 2], [0.0, 1.0]), ([1, 2, 3], [1.0, 3.0, 5.0])]) -> steps [1, 2], values [0.5, 2.0],
    low [0.0, 1.0], high [1.0, 3.0]"""
    import numpy as np
    found = [(*np.unique(np.asarray(steps)[::-1], return_index=True), np.asarray(values)[::-1])
             for steps, values in columns]  # the last value of a step, by step
    steps = reduce(partial(np.intersect1d, assume_unique=True), [own for own, _, _ in found])
    rows = np.stack([values[at][np.searchsorted(own, steps)] for own, at, values in found])
    with np.errstate(all="ignore"):
        finite, means = np.where(np.isfinite(rows), rows, np.nan), rows.mean(0)
    kept = extremes(means, most)
    lines = {"values": means, "low": np.fmin.reduce(finite), "high": np.fmax.reduce(finite)}
    return {"steps": steps[kept].tolist()} | {
        name: six_digits(line[kept].tolist()) for name, line in lines.items()}

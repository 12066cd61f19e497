"""Curves for the page: which metrics are shown, under which names, and their points without a spike lost."""

from __future__ import annotations

import math

from postgrad import explain
from postgrad.report import thin
from postgrad.run import number
from postgrad.studio.traces import Trace

POINTS = 800  # of a curve at first sight; what comes later is appended as it is
SHOWN = {  # the curves that are always looked at, where a run has them: name -> (label, unit, role)
    "reward": ("Reward", "", "reward"),
    "pass@1": ("pass@1, held out", "", "up"),
    "accuracy": ("Accuracy on pairs", "", "reward"),
    "loss": ("Loss", "", "policy"),
    "margin": ("Margin", "", "policy"),
    "kl": ("KL to the reference", "nats per token", "policy"),
    "entropy": ("Entropy", "nats per token", "policy"),
    "length": ("Length", "tokens", "policy"),
    "clip_fraction": ("Clip fraction", "", "policy"),
    "flat_groups": ("Groups without signal", "", "policy"),
    "grad_norm": ("Gradient norm", "", "policy"),
    "value_loss": ("Value loss", "", "critic"),
    "explained_variance": ("Explained variance", "", "critic"),
}


def chosen(traces: list[Trace]) -> tuple[list[str], list[str]]:
    """The metrics that any of the runs has: those always looked at, and the rest. A policy's loss says nothing: it is rest."""
    names = list(dict.fromkeys(name for trace in traces for name in trace.names()))
    names = [n for n in names if any(math.isfinite(v) for trace in traces for _, v in trace.points(n))]
    first = [n for n in SHOWN if n in names and not (n == "loss" and "reward" in names)]
    return first, sorted(n for n in names if n not in first)


def described(name: str) -> dict:
    """Label, unit and colour of a metric, and the sentences that `postgrad explain` has."""
    label, unit, role = SHOWN.get(name, (name, "", "policy"))
    try:
        entry = explain.explain(name)
        return {"name": name, "label": label, "unit": unit, "role": role, "meaning": entry.meaning, "healthy": entry.healthy}
    except ValueError:
        return {"name": name, "label": label, "unit": unit, "role": role, "meaning": "", "healthy": ""}


def short(value: float) -> float | None:
    """Six digits are more than a picture shows; what is not finite is a gap."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


def series(name: str, trace: Trace, most: int = POINTS, between: tuple[float, float] | None = None) -> dict:
    """One run's curve: steps, values, and the intervals of examinations."""
    points = trace.points(name)
    if between:
        points = [p for p in points if between[0] <= p[0] <= between[1]]
    kept = thin(points, most)
    found = {"steps": [int(s) for s, _ in kept], "values": [short(v) for _, v in kept], "whole": len(kept) == len(points)}
    bars = {row["step"]: row.get(f"{name}_interval") for row in trace.evals}
    if name not in trace.columns and any(isinstance(b, list) and len(b) == 2 for b in bars.values()):
        ends = [bars.get(int(s)) for s, _ in kept]
        ends = [b if isinstance(b, list) and len(b) == 2 else (math.nan, math.nan) for b in ends]
        found |= {"low": [short(number(b[0])) for b in ends], "high": [short(number(b[1])) for b in ends]}
    return found


def charts(traces: dict[str, Trace], names: list[str], most: int = POINTS) -> dict[str, dict]:
    """What the page's charts are drawn from: {"reward": {"label", ..., "series": [{"run", "steps", "values"}]}}"""
    return {name: described(name) | {"series": [{"run": run, **series(name, trace, most)} for run, trace in traces.items()]}
            for name in names}

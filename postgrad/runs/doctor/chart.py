"""The chart of a run: its logs as rows and curves. A symptom, and a finding."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean
from typing import Any

from postgrad.runs.folder import Run
from postgrad.runs.rows import JsonMapping, number

Point = tuple[int, float]  # step, value


@dataclass(frozen=True, kw_only=True)
class Chart:
    """The input of a symptom: Chart.of(Run.open("runs/first")), or Chart(metrics=[{"step": 1, "kl": 0.1}]).

    info, config: run.json and config.json; the others are the logs of the same name.
    """

    info: JsonMapping = field(default_factory=dict)
    config: JsonMapping = field(default_factory=dict)
    metrics: Sequence[JsonMapping] = ()
    evals: Sequence[JsonMapping] = ()
    samples: Sequence[JsonMapping] = ()
    status: JsonMapping = field(default_factory=dict)

    @classmethod
    def of(cls, run: Run) -> Chart:
        logs = {name: run.rows(name)[0] for name in ("metrics", "evals", "samples")}
        return cls(info=run.info, config=run.config, status=run.state(), **logs)

    # settings

    def setting(self, name: str, default: Any = None) -> Any:
        """A setting by its dotted name, or the default where the run has none."""
        value: object = self.config
        for part in name.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        return default if value is None else value

    @property
    def row(self) -> JsonMapping:
        """The trained row of the table, as saved in run.json."""
        return self.info.get("row") or {}

    @property
    def taught(self) -> bool:
        """Whether a teacher's log-probs, not scores, are the reward."""
        return "teacher_logp" in self.row.get("wants", ())

    def constant(self, name: str, default: float = 0.0) -> float:
        return float(self.row.get("constants", {}).get(name, default))

    @property
    def updates(self) -> float:
        """Optimizer steps per collection, at most."""
        return self.constant("epochs", 1) * self.constant("minibatches", 1)

    # curves

    @cached_property
    def steps(self) -> int:
        return int(self.metrics[-1]["step"]) if self.metrics else 0

    @cached_property
    def _curves(self) -> dict[str, list[Point]]:
        return {}

    def curve(self, name: str) -> list[Point]:
        """The finite values of a metric with their steps."""
        if name not in self._curves:
            self._curves[name] = finite(self.metrics, name)
        return self._curves[name]

    def evaluated(self, name: str) -> list[Point]:
        """The finite values of an evaluation with their steps."""
        return finite(self.evals, name)

    @cached_property
    def shown(self) -> dict[int, list[JsonMapping]]:
        """The logged samples by step, where their mask is logged too."""
        by_step: dict[int, list[JsonMapping]] = {}
        for row in self.samples:
            if isinstance(row.get("columns"), Mapping) and "mask" in row["columns"]:
                by_step.setdefault(int(row["step"]), []).append(row)
        return by_step

    def has(self, name: str) -> bool:
        """Whether a figure was logged: "kl", "evaluation pass@1", "samples moved", "data leaked"."""
        place, _, key = name.rpartition(" ")
        if place == "data":
            return key in (self.info.get("data") or {})
        if place == "samples":
            return any(key in row["columns"] for rows in self.shown.values() for row in rows)
        return bool(self.evaluated(key) if place == "evaluation" else self.curve(key))


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A symptom's evidence, consequence and remedy. steps: the first and the last that show it."""

    evidence: str
    consequence: str
    remedy: str
    figures: Mapping[str, float] = field(default_factory=dict)
    steps: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True)
class Symptom:
    """One thing that can be wrong, and the pure function that finds it.

    needs: figures it reads, as in `Chart.has`; "kl|evaluation kl_reply": one of the two. after: fewest steps.
    """

    name: str
    about: str
    find: Callable[[Chart], Finding | None]
    needs: tuple[str, ...] = ()
    after: int = 0

    def cannot_look(self, chart: Chart) -> str:
        """Why it cannot be looked for; "" if it can."""
        missing = [name for name in self.needs if not any(map(chart.has, name.split("|")))]
        if missing:
            return f"{missing[0].replace('|', ' or ')} is not logged"
        return f"too early: {chart.steps} of {self.after} steps" if chart.steps < self.after else ""


def finite(rows: Iterable[JsonMapping], name: str) -> list[Point]:
    points = ((int(row["step"]), number(row[name])) for row in rows if name in row)
    return [(step, value) for step, value in points if math.isfinite(value)]


def values(points: Iterable[Point]) -> list[float]:
    return [value for _, value in points]


def first(points: Sequence[Point], share: float = 1 / 3) -> float:
    """The mean over the first share of a curve."""
    return fmean(values(points[: max(1, round(share * len(points)))]))


def last(points: Sequence[Point], share: float = 1 / 3) -> float:
    """The mean over the last share of a curve."""
    return fmean(values(points[-max(1, round(share * len(points))):]))


def span(points: Sequence[Point]) -> tuple[int, int]:
    return points[0][0], points[-1][0]


def correlation(xs: Sequence[float], ys: Sequence[float]) -> float | None:
    """Pearson's; None where one of the two does not vary."""
    mx, my = fmean(xs), fmean(ys)
    sx = math.sqrt(sum((x - mx) ** 2 for x in xs))
    sy = math.sqrt(sum((y - my) ** 2 for y in ys))
    if sx * sy < 1e-12:
        return None
    return sum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True)) / (sx * sy)


def symptom(name: str, about: str, *, needs: tuple[str, ...] = (),
            after: int = 0) -> Callable[[Callable[[Chart], Finding | None]], Symptom]:
    """Decorates the function that finds a symptom."""
    return lambda find: Symptom(name=name, about=about, find=find, needs=needs, after=after)


def trained(columns: JsonMapping, name: str) -> list[float]:
    """A column's values at the trained tokens."""
    return [number(x) for x, kept in zip(columns.get(name, ()), columns["mask"], strict=False) if kept]


def step_sizes(chart: Chart) -> list[Point]:
    """(step, mean absolute change of a token's log-prob by the update on it, in nats)."""
    points = []
    for step, rows in chart.shown.items():
        moved = [abs(x) for row in rows for x in trained(row["columns"], "moved") if math.isfinite(x)]
        points += [(step, fmean(moved))] if moved else []
    return points


def spread_at_start(chart: Chart) -> float:
    """The standard deviation of scores within a group in the first third: the unit of gains and losses."""
    std = chart.curve("reward_std")
    return first(std) if std and first(std) > 0 else 1.0


def tighter_leash(chart: Chart) -> str:
    weight = chart.constant("kl_in_loss") or chart.constant("kl_in_reward") or chart.constant("beta")
    leash = f"set kl.coef={max(0.02, 3 * weight):.2g}" + (f" (it is {weight:g})" if weight > 0 else "")
    return f"{leash}, or end the run sooner; in a row of your own look at the sign of its KL"


def gain(points: list[Point]) -> float:
    return last(points) - first(points)


def evaluated_quality(chart: Chart) -> list[Point]:
    """The held-out reward by the task's own verifier, else pass@1."""
    return chart.evaluated("reward") or chart.evaluated("pass@1")


def chance(chart: Chart, *steps: int) -> float:
    """How far two evaluations may differ by chance: the root of the sum of their squared half intervals."""
    name = "reward_interval" if chart.evaluated("reward") else "pass@1_interval"
    ends = [row[name] for row in chart.evals if row["step"] in steps and row.get(name)]
    return math.hypot(*((number(high) - number(low)) / 2 for low, high in ends))

"""Warns once in a run when a metric passes its limit; runs/explain has the limits."""

from __future__ import annotations

from collections.abc import Mapping

from postgrad.recipes.base import TrainConfig
from postgrad.resolve.rewards import parse_reward
from postgrad.runs.explain import METRICS, Limit
from postgrad.runs.tracker import RunTrackers, Tracker

KIND = "worry"  # of these events


def metric_limits(config: TrainConfig) -> dict[str, Limit]:
    """The limits that hold for a run. The KL per reply has one where a model judges: a verifier is not gamed
    so."""
    learned = parse_reward(config.inputs.reward).learned
    return {name: metric.limit for name, metric in METRICS.items()
            if metric.limit and (name != "kl_reply" or learned)}


class MetricAlerts(Tracker):
    """An event for each metric that passes its limit, the first time it does."""

    def __init__(self, run: RunTrackers, limits: Mapping[str, Limit]):
        self.run, self.limits = run, limits
        self.told = {row["data"].get("metric") for row in run.run.rows("events")[0] if row["kind"] == KIND}

    def on_step(self, step: int, metrics: Mapping) -> None:
        for name, limit in self.limits.items():
            if name not in self.told and metrics.get(name, 0.0) > limit.above:
                self.told.add(name)
                text = (f"step {step}: {name} is {metrics[name]:.3g} {limit.unit}, over {limit.above:g}: "
                        f"{limit.advice} (postgrad explain {name})")
                self.run.event(KIND, text, step=step, metric=name)

    on_eval = on_step

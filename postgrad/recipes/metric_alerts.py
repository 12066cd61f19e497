"""Warns once in a run when a metric passes its limit, by runs/explain, and when a verifier fails."""

from __future__ import annotations

from collections.abc import Mapping

from postgrad.recipes.base import TrainConfig
from postgrad.resolve.rewards import parse_reward
from postgrad.runs import Run
from postgrad.runs.explain import METRICS, Limit
from postgrad.runs.tracker import Metrics, Row, RunTrackers, Tracker

KIND = "worry"  # of these events
ERRORS = "errors"  # the metric: samples of a step whose verifier failed


def metric_limits(config: TrainConfig) -> dict[str, Limit]:
    """The limits of a run's metrics. The KL per reply has one where a model judges: verifiers are not gamed
    so."""
    learned = parse_reward(config.inputs.reward).learned
    return {name: metric.limit for name, metric in METRICS.items()
            if metric.limit and (name != "kl_reply" or learned)}


class MetricAlerts(Tracker):
    """An event for each metric, the first time it passes its limit."""

    def __init__(self, run: RunTrackers, limits: Mapping[str, Limit]):
        assert isinstance(run.run, Run)
        self.run, self.limits = run, limits
        events = run.run.rows("events")[0]
        self.reported = {row["data"].get("metric") for row in events if row["kind"] == KIND}

    def on_step(self, step: int, metrics: Metrics) -> None:
        self.on_eval(step, metrics)

    def on_eval(self, step: int, figures: Row) -> None:
        for name, limit in self.limits.items():
            value = figures.get(name)
            if name not in self.reported and isinstance(value, int | float) and value > limit.above:
                self.reported.add(name)
                text = (f"step {step}: {name} is {value:.3g} {limit.unit}, over {limit.above:g}: "
                        f"{limit.advice} (postgrad explain {name})")
                self.run.event(KIND, text, step=step, metric=name)


def failed_samples(metrics: Metrics) -> int:
    """Of a step that collected samples; further updates on a collection repeat its figures."""
    return int(metrics.get(ERRORS, 0)) if "sampled" in metrics else 0


class VerifierFailures(Tracker):
    """Samples that could not be judged: an event at the first step that has any, and their number at the
    end."""

    def __init__(self, run: RunTrackers):
        assert isinstance(run.run, Run)
        self.run = run
        failed = [count for row in run.run.rows("metrics")[0] if (count := failed_samples(row))]
        self.failed, self.steps = sum(failed), len(failed)

    def on_step(self, step: int, metrics: Metrics) -> None:
        if not (failed := failed_samples(metrics)):
            return
        self.failed, self.steps = self.failed + failed, self.steps + 1
        if self.steps == 1:
            place = self.run.run.folder / "samples.jsonl"
            self.run.event(KIND, f"step {step}: the verifier failed on {failed} samples, which are not "
                           f"trained on; the reasons stand in {place}", step=step, metric=ERRORS)

    def summary(self) -> str:
        """A sentence for the end of a run; "" where nothing failed."""
        return (f"the verifier failed on {self.failed:,} samples in {self.steps:,} steps, which were not "
                "trained on (postgrad doctor says more)") if self.failed else ""

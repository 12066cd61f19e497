"""Warns once in a run when a metric passes its limit, by runs/explain, and when a verifier fails; and what a
run does where the guard (runs/doctor/guard) names a trouble."""

from __future__ import annotations

import math
from collections.abc import Mapping

from postgrad.recipes.base import TrainConfig
from postgrad.resolve.rewards import parse_reward
from postgrad.runs import Run
from postgrad.runs.doctor.guard import Guard, Trouble
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
                self.tell(step, name, value, limit)

    def tell(self, step: int, name: str, value: float, limit: Limit) -> None:
        self.reported.add(name)
        text = (f"step {step}: {name} is {value:.3g} {limit.unit}, over {limit.above:g}: "
                f"{limit.advice} (postgrad explain {name})")
        self.run.event(KIND, text, step=step, metric=name)


HALVED = "halved"  # the event: data.factor is the rate's from the step after data.after on
MOST_HALVINGS = 6  # a rate that is 64 times too high; then a trouble is named alone


class HalveRate(Exception):
    """The run is to go back to a checkpoint before `since`, and on at half the rate."""

    def __init__(self, since: int, text: str):
        super().__init__(text)
        self.since = since


def rate_factor(run: Run, step: int) -> float:
    """What the guard has left of the rate of the steps after this one."""
    halved = [row["data"] for row in run.rows("events")[0] if row["kind"] == HALVED]
    return next((float(data["factor"]) for data in reversed(halved) if data["after"] <= step), 1.0)


def good_checkpoints(run: Run, since: int) -> list[int]:
    """The steps of the checkpoints before a trouble, without those that were evaluated as worse than the
    start."""
    _, _, values = run.figures()
    start = values.get(0, -math.inf)
    return [step for step in run.checkpoints() if step < since and values.get(step, start) >= start]


class TroubleAlerts(Tracker):
    """An event for each trouble that the guard names, the first time. acts: what on_trouble asks for, once
    there is a trouble: (since, sentence)."""

    def __init__(self, run: RunTrackers, config: TrainConfig):
        assert isinstance(run.run, Run)
        kind = str((run.run.info.get("row") or {}).get("kind", "supervised"))
        self.run, self.guard = run, Guard(kind, run.run.rows("metrics")[0], run.run.rows("evals")[0])
        events = run.run.rows("events")[0]
        self.reported = {row["data"].get("trouble") for row in events if row["kind"] == KIND}
        spent = sum(row["kind"] == HALVED for row in events) >= MOST_HALVINGS
        self.on_trouble = "warn" if spent and config.on_trouble == "halve_rate" else config.on_trouble
        self.acts: tuple[int, str] | None = None

    def on_step(self, step: int, metrics: Metrics) -> None:
        if trouble := self.guard.on_step(step, metrics):
            self.tell(trouble)

    def on_eval(self, step: int, figures: Row) -> None:
        if trouble := self.guard.on_eval(step, figures):
            self.tell(trouble)

    def tell(self, trouble: Trouble) -> None:
        if self.on_trouble != "warn" and self.acts is None:
            self.acts = trouble.since, trouble.sentence
        if trouble.name not in self.reported:
            self.reported.add(trouble.name)
            self.run.event(KIND, trouble.sentence, step=trouble.step, trouble=trouble.name)


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
        if failed := failed_samples(metrics):
            self.tell(step, failed)

    def tell(self, step: int, failed: int) -> None:
        self.failed, self.steps = self.failed + failed, self.steps + 1
        if self.steps == 1:
            place = self.run.run.folder / "samples.jsonl"
            self.run.event(KIND, f"step {step}: the verifier failed on {failed} samples, which are not "
                           f"trained on; the reasons stand in {place}", step=step, metric=ERRORS)

    def summary(self) -> str:
        """A sentence for the end of a run; "" where nothing failed."""
        return (f"the verifier failed on {self.failed:,} samples in {self.steps:,} steps, which were not "
                "trained on (postgrad doctor says more)") if self.failed else ""

"""What is said, once in a run, when a number is past where it should worry; explain/ has the limits."""

from __future__ import annotations

import sys
from collections.abc import Mapping

from postgrad.resolve.rewards import parse_reward
from postgrad.runs.explain import METRICS, Worry


def worries_of(config) -> dict[str, Worry]:
    """What holds for a run. A KL per reply worries where a model judges: a verifier is not gamed so."""
    learned = parse_reward(getattr(config, "reward", None)).learned
    return {name: metric.worry for name, metric in METRICS.items()
            if metric.worry and (name != "kl_reply" or learned)}


class Worries:
    """worries(step, row): each number of a row that is over its limit, in the events and to who looks on."""

    def __init__(self, run, limits: Mapping[str, Worry], aloud: bool):
        self.run, self.limits, self.aloud = run, limits, aloud
        self.said = {row["data"].get("metric") for row in run.rows("events")[0] if row["kind"] == "worry"}

    def __call__(self, step: int, row: Mapping) -> None:
        for name, limit in self.limits.items():
            if name not in self.said and row.get(name, 0.0) > limit.above:
                self.said.add(name)
                text = (f"step {step}: {name} is {row[name]:.3g} {limit.unit}, over {limit.above:g}: "
                        f"{limit.advice} (postgrad explain {name})")
                self.run.event("worry", text, step=step, metric=name)
                if self.aloud:
                    print(text, file=sys.stderr)

"""One entry of the glossary, and where numbers come from."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Limit:
    """Above which value a run warns, once; in which unit, with what advice."""

    above: float
    unit: str
    advice: str


@dataclass(frozen=True, kw_only=True)
class Metric:
    """One entry: `meaning` in one sentence, `healthy` says what to expect and what to worry about.

    limit: None where no one number fits.
    """

    name: str
    meaning: str
    healthy: str
    formula: str
    source: str
    limit: Limit | None = None

    def __str__(self) -> str:
        return (f"{self.name}: {self.meaning}\n  healthy: {self.healthy}\n  formula: {self.formula}\n"
                f"  source:  {self.source}")


ROLLOUTS, EVAL = "the rollouts of the step", "evaluation on held-out problems"
TRAIN, CLOCK, PAIRS = "the training pass", "the clock", "the pairs of the step"
STEPS = "the labelled replies"

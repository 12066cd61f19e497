"""The doctor: names what is wrong with a run, worst first, with evidence, consequence and remedy.

chart     a run's logs as curves; Symptom and Finding
symptoms  their order; one pure function of a chart each in unsound (the figures are worthless), updates and
          learning
limits    every threshold, with its reason

diagnose(Run.open("runs/first")).findings -> (NamedFinding(symptom="truncation", finding=Finding(...)), ...)
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import NamedTuple

from postgrad.runs.doctor.chart import Chart, Finding, Symptom
from postgrad.runs.doctor.symptoms import MINOR, SYMPTOMS
from postgrad.runs.folder import Run
from postgrad.runs.rows import JsonDict

__all__ = ["MINOR", "SYMPTOMS", "Chart", "Diagnosis", "Finding", "NamedFinding", "Symptom", "diagnose"]


class NamedFinding(NamedTuple):
    """A finding and the symptom it is of."""

    symptom: str
    finding: Finding


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """findings: worst first; clear: symptoms that the run does not have; not_looked: symptoms that could not
    be looked for, each with the reason."""

    steps: int
    state: str
    findings: tuple[NamedFinding, ...]
    clear: tuple[str, ...]
    not_looked: tuple[tuple[str, str], ...]

    def as_dict(self) -> JsonDict:
        return {"steps": self.steps, "state": self.state,
                "findings": [{"symptom": name} | asdict(finding) for name, finding in self.findings],
                "clear": list(self.clear), "not_looked": dict(self.not_looked)}


def diagnose(run: Run | Chart, symptoms: tuple[Symptom, ...] = SYMPTOMS) -> Diagnosis:
    """Looks for every symptom in a run, or in its chart."""
    chart = run if isinstance(run, Chart) else Chart.of(run)
    blind = {s.name: why for s in symptoms if (why := s.cannot_look(chart))}
    findings = {s.name: finding for s in symptoms if s.name not in blind and (finding := s.find(chart))}
    return Diagnosis(steps=chart.steps, state=str(chart.status.get("state", "unknown")),
                     findings=tuple(NamedFinding(*named) for named in findings.items()),
                     clear=tuple(s.name for s in symptoms if s.name not in blind | findings),
                     not_looked=tuple(blind.items()))

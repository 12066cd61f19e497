"""The doctor: reads a run's folder and names what is wrong with it, worst first, with evidence, consequence
and remedy.

A symptom is one pure function of the run's rows; no torch.

chart    what a run says, as rows and curves      limits   every threshold, with why
trust, update, learned   the symptoms, by subject  table   all of them, worst first

diagnose(Run.open("runs/first")).findings -> (Named(symptom="truncation", finding=Finding(...)), ...)
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import NamedTuple

from postgrad.runs.doctor.chart import Chart, Finding, Symptom
from postgrad.runs.doctor.table import SYMPTOMS
from postgrad.runs.folder import Run
from postgrad.runs.rows import JsonDict

__all__ = ["SYMPTOMS", "Chart", "Diagnosis", "Finding", "NamedFinding", "Symptom", "diagnose"]


class NamedFinding(NamedTuple):
    """A finding and the symptom it is of."""

    symptom: str
    finding: Finding


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What was found, worst first; what was looked for in vain; what could not be looked for, with why."""

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
    """Looks for every symptom in a run that is open to be read, or in a chart."""
    chart = run if isinstance(run, Chart) else Chart.of(run)
    blind = {s.name: why for s in symptoms if (why := s.cannot_look(chart))}
    found = {s.name: finding for s in symptoms if s.name not in blind and (finding := s.find(chart))}
    return Diagnosis(steps=chart.steps, state=str(chart.status.get("state", "unknown")),
                     findings=tuple(NamedFinding(*named) for named in found.items()),
                     clear=tuple(s.name for s in symptoms if s.name not in blind | found),
                     not_looked=tuple(blind.items()))

"""`postgrad doctor`: what is wrong with a run, once or until it ends."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from postgrad.cli.options import Command, CommandOptions
from postgrad.cli.output import print_json
from postgrad.system.settings import POSITIVE, setting

if TYPE_CHECKING:
    from postgrad.runs.doctor import Diagnosis


@dataclass(frozen=True, kw_only=True)
class DoctorOptions(CommandOptions):
    run: str = setting(about="a run's folder, or a folder of runs", metavar="RUN", positional=True)
    watch: bool = setting(False, "diagnose again while the run goes on, until it ends")
    every: float = setting(10.0, "seconds between two diagnoses, with --watch", within=POSITIVE,
                           metavar="SECONDS")


def run_doctor(options: DoctorOptions) -> None:
    from postgrad.runs import Run
    from postgrad.runs.doctor import diagnose
    folders = run_folders(Path(options.run))
    before: dict[Path, Diagnosis] = {}
    while True:
        now = {folder: diagnose(Run.open(folder)) for folder in folders}
        for folder in folders:
            if folder not in before or has_news(before[folder], now[folder]):
                print_diagnosis(folder, now[folder], options.json)
        before = now
        if not options.watch or not any(diagnosis.state == "running" for diagnosis in now.values()):
            return
        time.sleep(options.every)


def run_folders(folder: Path) -> list[Path]:
    """The run in a folder, or the runs of a folder of them, as a pipeline leaves them."""
    if (folder / "run.json").is_file():
        return [folder]
    inside = sorted(path.parent for path in folder.glob("*/run.json"))
    if not inside:
        raise ValueError(f"there is no run in {folder}: give the folder of one, e.g. runs/grpo-words-1.")
    return inside


def has_news(before: Diagnosis, now: Diagnosis) -> bool:
    """Another symptom, one that is gone, or another state; figures that move are no news."""
    first, second = ((d.state, [finding.symptom for finding in d.findings]) for d in (before, now))
    return first != second


def print_diagnosis(folder: Path, diagnosis: Diagnosis, as_json: bool) -> None:
    if as_json:
        return print_json({"run": str(folder), **diagnosis.as_dict()})
    print(f"{folder}: {diagnosis.steps} steps, {diagnosis.state}")
    for number, (symptom, finding) in enumerate(diagnosis.findings, start=1):
        print(f"\n{number}. {symptom}: {finding.evidence}.\n   so: {finding.consequence}.\n"
              f"   do: {finding.remedy}.")
    if not diagnosis.findings:
        print("\nNothing wrong was found.")
    print(f"\nLooked for and not found: {'; '.join(diagnosis.clear) or 'nothing'}.")
    if diagnosis.not_looked:
        print("Could not be looked for: "
              + "; ".join(f"{name} ({why})" for name, why in diagnosis.not_looked) + ".")
    return None


COMMAND = Command("doctor", "what is wrong with a run, worst first: evidence, consequence, remedy",
                  DoctorOptions, run_doctor)

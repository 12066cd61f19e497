"""The command `postgrad doctor`: what is wrong with a run, once or as long as it goes on."""

from __future__ import annotations

import time
from pathlib import Path

from postgrad.cli.options import DoctorOptions, made
from postgrad.cli.output import say_json
from postgrad.runs import Run
from postgrad.runs.doctor import Diagnosis, diagnose


def doctor(args) -> int:
    asked = made(DoctorOptions, args)
    folders = runs_in(Path(asked.run))
    said: dict[Path, Diagnosis] = {}
    while True:
        now = {folder: diagnose(Run.open(folder)) for folder in folders}
        for folder in folders:
            if folder not in said or is_news(said[folder], now[folder]):
                tell(folder, now[folder], args.json)
        said = now
        if not asked.watch or not any(found.state == "running" for found in now.values()):
            return 0
        time.sleep(asked.every)


def runs_in(folder: Path) -> list[Path]:
    """The run in a folder, or the runs of a folder of them, as a pipeline leaves them."""
    if (folder / "run.json").is_file():
        return [folder]
    inside = sorted(path.parent for path in folder.glob("*/run.json"))
    if not inside:
        raise ValueError(f"there is no run in {folder}: give the folder of one, e.g. runs/grpo-words-1.")
    return inside


def is_news(before: Diagnosis, now: Diagnosis) -> bool:
    """Another symptom, one that is gone, or another state; figures that move are no news."""
    first, second = ((found.state, [n.symptom for n in found.findings]) for found in (before, now))
    return first != second


def tell(folder: Path, found: Diagnosis, as_json: bool) -> None:
    if as_json:
        return say_json({"run": str(folder), **found.as_dict()})
    print(f"{folder}: {found.steps} steps, {found.state}")
    for number, (symptom, finding) in enumerate(found.findings, start=1):
        print(f"\n{number}. {symptom}: {finding.evidence}.\n   so: {finding.consequence}.\n"
              f"   do: {finding.remedy}.")
    if not found.findings:
        print("\nNothing wrong was found.")
    print(f"\nLooked for and not found: {'; '.join(found.clear) or 'nothing'}.")
    if found.not_looked:
        print("Could not be looked for: "
              + "; ".join(f"{name} ({why})" for name, why in found.not_looked) + ".")

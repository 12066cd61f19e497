"""`postgrad runs`, `track` and `doctor`: a folder of runs, one run, its tracker, what is wrong with it."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from postgrad.cli.options import Command, CommandOptions
from postgrad.cli.output import print_json, print_table
from postgrad.runs.backends import BACKENDS
from postgrad.system.files import error_text
from postgrad.system.settings import POSITIVE, setting

if TYPE_CHECKING:
    from postgrad.runs.doctor import Diagnosis

COLUMNS = ("run", "method", "model", "task", "state", "steps", "latest", "pass@1", "started")
HOME = Path("runs")


@dataclass(frozen=True, kw_only=True)
class RunsOptions(CommandOptions):
    run: str = setting(str(HOME), "a folder of runs, or one run; by its path or its name in runs/",
                       metavar="FOLDER", positional=True)
    csv: bool = setting(False, "print a table as CSV: of one run its figures, a row a step, those of "
                        "evaluations as eval/NAME; of a folder its runs")


def run_runs(options: RunsOptions) -> None:
    from postgrad.runs import Run
    from postgrad.runs.rows import number
    from postgrad.system.throughput import throughput_words
    folder = named_runs_folder(options.run)
    if options.csv:
        return print_csv(folder, options.json)
    if (folder / "run.json").is_file():
        run = Run.open(folder)
        if options.json:
            return print_json(run.summary())
        rows = run.rows("metrics")[0]
        speed = throughput_words(lambda name: [number(row[name]) for row in rows if name in row])
        return print_table(run_facts(run.summary() | {"speed": speed or None}))
    summaries = list(summaries_in(folder))
    if options.json:
        return print_json(summaries)
    if summaries:
        rows = [{key: value for key, value in row.items() if value is not None}
                for row in run_lines(summaries)]
        return print_table(rows, columns=[name for name in COLUMNS if any(name in row for row in rows)],
                           whole=["run"])
    if folder != HOME:
        raise ValueError(f"no runs in {folder}: name a folder of runs, or one run.")
    return print(f"no runs in {folder} yet: try `postgrad demo` or `postgrad train grpo:words`.")


def print_csv(folder: Path, as_json: bool) -> None:
    from postgrad.runs import Run
    from postgrad.runs.frame import csv_of, merge_steps
    if as_json:
        raise ValueError("--csv and --json are two forms of the same: leave one out.")
    if (folder / "run.json").is_file():
        run = Run.open(folder)
        steps = merge_steps(run.rows("metrics")[0], run.rows("evals")[0])
        rows: list[dict[str, Any]] = [{"step": step, **figures} for step, figures in steps.items()]
    else:
        rows = [{name: value for name, value in row.items() if not isinstance(value, list)}
                for row in summaries_in(folder)]
    print(csv_of(rows), end="")


def named_runs_folder(name: str) -> Path:
    """A run or a folder of runs, by its path or by its name in runs/."""
    if places := [path for path in (Path(name), HOME / name) if path.is_dir()]:
        return places[0]
    if Path(name) == HOME:
        return HOME
    known = [str(path.parent) for pattern in ("*/run.json", "*/*/run.json") for path in HOME.glob(pattern)]
    by_name = {Path(place).name: place for place in reversed(known)}
    near = [by_name[match] for match in get_close_matches(Path(name).name, by_name, 1)]
    hint = f"did you mean {near[0]}?" if near else f"there is: {', '.join(sorted(known)[:8]) or 'none yet'}."
    raise ValueError(f"no run or folder of runs is called {name!r}; {hint}")


def summaries_in(folder: Path) -> Iterator[dict[str, Any]]:
    """Summaries, newest first; the runs of a pipeline or demo together, oldest first, by its name."""
    from postgrad.runs import list_runs
    groups = [[row | {"pipeline": None}] for row in list_runs(folder)]
    for inside in sorted(path for path in folder.glob("*/") if not (path / "run.json").exists()):
        if stages := list_runs(inside)[::-1]:
            groups.append([row | {"pipeline": inside.name} for row in stages])
    for group in sorted(groups, key=lambda rows: -max(row["created"] or 0 for row in rows)):
        yield from group


def run_lines(summaries: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """A row of the table for every run, and one for the name of a pipeline."""
    from postgrad.runs.display import figure, time_ago
    above = None
    for row in summaries:
        if row["pipeline"] not in (None, above):
            yield {"run": row["pipeline"]}
        above = row["pipeline"]
        series = row["series"]
        yield {"run": f"  {row['name']}" if above else row["name"],
               "method": row.get("method") or row.get("recipe"), "model": row.get("model"),
               "task": row.get("task"), "state": row["state"],
               "steps": f"{row['step']}/{row['steps']}" if row.get("steps") else None,
               "latest": f"{row['series_name']} {figure(series[-1])}" if series else None,
               "pass@1": row.get("pass@1"), "started": time_ago(row["created"])}


def run_facts(summary: Mapping[str, Any]) -> list[dict[str, str]]:
    """One run, a fact a line."""
    from postgrad.runs.display import duration, figure, time_ago
    facts = {**summary, "created": time_ago(summary["created"]), "updated": time_ago(summary["updated"]),
             "seconds": duration(summary["seconds"])}
    return [{"": "time in steps" if name == "seconds" else name, "value": figure(value)}
            for name, value in facts.items()
            if value is not None and name != "series_name" and not isinstance(value, dict | list)]


# track

@dataclass(frozen=True, kw_only=True)
class TrackOptions(CommandOptions):
    run: str = setting(about="a run's folder, or a folder of runs", metavar="RUN", positional=True)
    to: str = setting(about="the tracker, whose package is an extra of its own", choices=tuple(BACKENDS))
    every: float = setting(1.0, "seconds between two looks at a run that is being trained", within=POSITIVE,
                           metavar="SECONDS")


def run_track(options: TrackOptions) -> None:
    from postgrad.runs import Run
    from postgrad.runs.backends import check_installed
    from postgrad.runs.follow import follow_run
    check_installed(options.to)
    for folder in run_folders(named_runs_folder(options.run)):
        try:
            with redirect_stdout(sys.stderr):  # trackers print what they do
                steps, state = follow_run(Run.open(folder), options.to, lambda: time.sleep(options.every))
        except (ValueError, KeyboardInterrupt):
            raise
        except Exception as error:  # whatever a tracker's package raises
            raise ValueError(f"{options.to} took no more of {folder} ({type(error).__name__}: "
                             f"{error_text(error)}): the run is as it was; the same command sends what is "
                             "missing.") from error
        if options.json:
            print_json({"run": str(folder), "to": options.to, "steps": steps, "state": state})
        else:
            print(f"{folder} -> {options.to}: {steps} steps sent, the run is {state}"
                  + ("" if state in ("done", "stopped") else "; its last step is sent once it was resumed"))


# doctor

@dataclass(frozen=True, kw_only=True)
class DoctorOptions(CommandOptions):
    run: str = setting(about="a run's folder, or a folder of runs; with --before what `train` takes, "
                       "grpo:words say", metavar="RUN", positional=True)
    changes: list[str] = setting([], "with --before: settings, as in `train`", metavar="KEY=VALUE",
                                 positional=True)
    before: bool = setting(False, "look at a training that has not begun: probe replies, template, data, "
                           "memory, time")
    task: str | None = setting(None, "with --before: the task, as in `train`", metavar="NAME|FILE")
    watch: bool = setting(False, "repeat until the run ends, and print what changes")
    every: float = setting(10.0, "seconds between two diagnoses, with --watch", within=POSITIVE,
                           metavar="SECONDS")


def run_doctor(options: DoctorOptions) -> None:
    if options.before:
        return look_before(options)
    if options.changes or options.task:
        raise ValueError(f"{' '.join(options.changes) or options.task}: settings and a task belong to a look "
                         "at what has not begun, `postgrad doctor --before`; of a run name its folder alone.")
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


def look_before(options: DoctorOptions) -> None:
    """The look before the first step, of what `postgrad train` with the same words would train."""
    from postgrad.cli.settings import config_from_text
    from postgrad.recipes.base import RunConfig
    from postgrad.recipes.defaults import fill_defaults
    from postgrad.recipes.look import take_look
    from postgrad.recipes.running import build_setup, model_source
    _, config = config_from_text(options.run, options.changes, options.task)
    if not isinstance(config, RunConfig):
        raise ValueError(f"{options.run} is no single training: look at one of its stages, e.g. grpo:words.")
    config, chosen = fill_defaults(config)
    look = take_look(config, build_setup(config, model_source(config)))
    if options.json:
        return print_json({"recipe": options.run, **look.as_dict()})
    print(f"{options.run} before its first step ({look.seconds:.1f} s)" + (f"\n{chosen.sentence}" * bool(
        chosen.sentence)))
    return print(*look.lines(), sep="\n")


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


COMMANDS = (
    Command("runs", "list the runs of a folder, or show one", RunsOptions, run_runs),
    Command("track", "send a run to a tracker: afterwards, or beside a training until it ends", TrackOptions,
            run_track, "beside a training from its first step: postgrad train RECIPE track=NAME. What the "
            "tracker has already is not sent again."),
    Command("doctor", "diagnose a run: what is wrong, worst first, with evidence, consequence and remedy",
            DoctorOptions, run_doctor),
)

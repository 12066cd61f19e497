"""`postgrad runs`: the runs of a folder, the stages of a pipeline under its name; or one run."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from pathlib import Path

from postgrad.cli.options import RunsOptions
from postgrad.cli.output import say_json, table
from postgrad.runs import display
from postgrad.runs.display import duration, figure, when
from postgrad.system.throughput import told

COLUMNS = ("run", "method", "model", "task", "state", "steps", "latest", "pass@1", "started")
HOME = Path(RunsOptions().run)


def runs(args) -> int | None:
    from postgrad.runs import Run
    folder = named(args.run)
    if (folder / "run.json").is_file():
        run = Run.open(folder)
        speed = told(lambda name: run.curve(name)[1])
        summary = run.summary()
        return say_json(summary) if args.json else table(facts(summary | {"speed": speed or None}))
    found = list(listed(folder))
    if args.json:
        return say_json(found)
    if found:
        rows = [{key: value for key, value in row.items() if value is not None} for row in lines(found)]
        return display.table(rows, [name for name in COLUMNS if any(name in row for row in rows)],
                             whole=["run"])
    if folder != HOME:
        raise ValueError(f"no runs in {folder}: name a folder of runs, or one run.")
    return print(f"no runs in {folder} yet: try `postgrad demo` or `postgrad train grpo:words`.")


def named(word: str) -> Path:
    """A run or a folder of runs, by its path or by its name in runs/."""
    if found := [path for path in (Path(word), HOME / word) if path.is_dir()]:
        return found[0]
    if Path(word) == HOME:
        return HOME
    there = [str(path.parent) for pattern in ("*/run.json", "*/*/run.json") for path in HOME.glob(pattern)]
    short = {Path(place).name: place for place in reversed(there)}
    near = [short[name] for name in get_close_matches(Path(word).name, short, 1)]
    hint = f"did you mean {near[0]}?" if near else f"there is: {', '.join(sorted(there)[:8]) or 'none yet'}."
    raise ValueError(f"no run or folder of runs is called {word!r}; {hint}")


def listed(folder: Path) -> Iterator[dict]:
    """Summaries, newest first; the runs of a pipeline or demo together, oldest first, by its name."""
    from postgrad.runs import list_runs
    groups = [[row | {"pipeline": None}] for row in list_runs(folder)]
    for inside in sorted(path for path in folder.glob("*/") if not (path / "run.json").exists()):
        if stages := list_runs(inside)[::-1]:
            groups.append([row | {"pipeline": inside.name} for row in stages])
    for group in sorted(groups, key=lambda rows: -max(row["created"] or 0 for row in rows)):
        yield from group


def lines(found: list[dict]) -> Iterator[dict]:
    """A row of the table for every run, and one for the name of a pipeline."""
    above = None
    for row in found:
        if row["pipeline"] not in (None, above):
            yield {"run": row["pipeline"]}
        above = row["pipeline"]
        series = row["series"]
        yield {"run": f"  {row['name']}" if above else row["name"],
               "method": row.get("method") or row.get("recipe"), "model": row.get("model"),
               "task": row.get("task"), "state": row["state"],
               "steps": f"{row['step']}/{row['steps']}" if row.get("steps") else None,
               "latest": f"{row['series_name']} {figure(series[-1])}" if series else None,
               "pass@1": row.get("pass@1"), "started": when(row["created"])}


def facts(summary: dict) -> list[dict]:
    """One run, a fact a line."""
    said = summary | {"created": when(summary["created"]), "updated": when(summary["updated"]),
                      "seconds": duration(summary["seconds"])}
    said = {{"seconds": "time in steps"}.get(name, name): value for name, value in said.items()}
    return [{"": name, "value": figure(value)} for name, value in said.items()
            if value is not None and name != "series_name" and not isinstance(value, dict | list)]

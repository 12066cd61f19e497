"""The page of a pipeline: its steps in order, how each stands, the results.

Only files count: pipeline.json has the steps, each step's own folder says whether it is done, summary.json
has the tables. Whatever is in them is shown as text.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from postgrad.runs import number
from postgrad.runs.rows import read_json
from postgrad.studio.json_types import JsonDict, JsonMapping
from postgrad.studio.pages import format_share, fragment, full_page, num
from postgrad.studio.runs import live
from postgrad.studio.runs.progress import progress_text
from postgrad.studio.runs.samples import as_list, safe_text
from postgrad.studio.runs.shared import clinic_of, is_export, traces_of
from postgrad.studio.runs.traces import (
    NoSuchRun,
    existing_run_folder,
    find_runs,
    optional_text,
    run_address,
    run_folder,
    run_id_parts,
)
from postgrad.studio.security import SANDBOXED
from postgrad.studio.svg import spark
from postgrad.system.files import read_text

KINDS = {"run": "trained", "data": "data", "measured": "measured"}
FIGURES = ("pass@1", "reward", "kept", "chains")  # of a step that is no run, the first few that it has
REPORT = "report.html"
STILL = f"{SANDBOXED}; default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:"
MOST = 200  # steps, and rows of a table


def holds_pipeline(root: Path, name: str) -> bool:
    """Whether a pipeline is in the folder of this name."""
    try:
        return (run_folder(root, name) / "pipeline.json").is_file()
    except NoSuchRun:
        return False


def pipeline_names(root: Path, runs: Iterable[str]) -> list[str]:
    """The pipelines of a folder that have begun with one of these runs."""
    above = dict.fromkeys(name.rpartition("/")[0] for name in runs)
    return [name for name in above if name and holds_pipeline(root, name)]


def read_if_present(path: Path) -> JsonDict:
    """A file of a pipeline; {} where it is not there yet."""
    return read_json(path) if path.is_file() else {}


def as_mapping(value: object) -> JsonMapping:
    return value if isinstance(value, Mapping) else {}


def pipeline_steps(request: Request, name: str) -> Iterator[JsonDict]:
    folder = run_folder(request.app.state.runs, name)
    spent = as_mapping(read_if_present(folder / "state.json").get("seconds"))
    for step in as_list(read_if_present(folder / "pipeline.json").get("steps"))[:MOST]:
        given = as_mapping(step)
        kind, own = optional_text(given.get("kind")) or "", optional_text(given.get("name")) or ""
        needs = as_list(given.get("needs")) or [as_mapping(given.get("settings")).get("model") or ""]
        row = {"name": own, "kind": KINDS.get(kind, kind), "needs": [safe_text(x) for x in needs],
               "seconds": number(spent.get(f"{kind} {own}")), "address": None, "figures": "", "by": "",
               "far": "", "spark": None, "level": "", "health": ""}
        yield row | (run_step(request, f"{name}/{own}") if kind == "run" else file_step(folder, kind, own))


def run_step(request: Request, name: str) -> JsonDict:
    """How a run stands."""
    try:
        existing_run_folder(request.app.state.runs, name)
        found = traces_of(request).row(name)
    except NoSuchRun:
        return {"state": "waiting"}
    except Exception as error:  # whatever is wrong with one run, the others are shown
        return {"state": "broken", "figures": safe_text(error)}
    latest = f"{found['series_name']} {num(found['series'][-1], 2)}" if found["series"] else ""
    passed = f"pass@1 {format_share(found['pass@1'])}" if found["pass@1"] is not None else ""
    health, far = clinic_of(request).known(name), ""
    if found["state"] == "running":
        far = progress_text(traces_of(request).get(name), "running")
    return {"state": found["state"], "address": run_address(name), "by": found["method"] or found["recipe"]
            or "", "far": far, "spark": spark(found["series"], width=96), "series_name": found["series_name"],
            "level": health.level if health else "", "health": health.word if health else "",
            "figures": ", ".join(filter(None, (latest, passed)))}


def file_step(folder: Path, kind: str, own: str) -> JsonDict:
    """How a step stands that leaves a file: data, or a measurement."""
    try:
        run_id_parts(own)
        path = folder / own / "counts.json" if kind == "data" else folder / "measured" / f"{own}.json"
        found = read_if_present(path)
    except ValueError as error:
        return {"state": "broken", "figures": safe_text(error)}
    return {"state": "done" if found else "waiting", "figures": ", ".join(figure_texts(found))}


def figure_texts(found: JsonMapping, before: str = "") -> Iterator[str]:
    """The figures of a measurement in a few words; those inside a part of it with the part's name."""
    for key in FIGURES:
        if isinstance(found.get(key), int | float):
            yield f"{before}{key} {format_share(found[key]) if key == 'pass@1' else num(found[key], 2)}"
    if not before:
        for part, inner in found.items():
            yield from figure_texts(as_mapping(inner), f"{safe_text(part)} " if part != "figures" else " ")


def summary_tables(summary: JsonMapping) -> list[JsonDict]:
    """The tables of a summary as text: {"title", "columns", "rows"}."""
    found = []
    for title, given in as_mapping(summary.get("tables")).items():
        rows = [as_mapping(row) for row in as_list(given)[:MOST]]
        columns = [key for key in (rows[0] if rows else {})
                   if not (key.endswith("_interval") and key.removesuffix("_interval") in rows[0])]
        found.append({"title": safe_text(title), "columns": [safe_text(column) for column in columns],
                      "rows": [[table_cell(row, column) for column in columns] for row in rows]})
    return found


def table_cell(row: JsonMapping, column: str) -> str:
    value, interval = row.get(column), as_list(row.get(f"{column}_interval"))
    if isinstance(value, list):
        return " to ".join(num(number(x)) for x in value[:2])
    text = num(value) if isinstance(value, int | float) else "" if value is None else safe_text(value)
    low_to_high = " to ".join(num(number(x)) for x in interval)
    return f"{text} ({low_to_high})" if len(interval) == 2 else text


def pipeline_context(request: Request, name: str) -> JsonDict:
    root = request.app.state.runs
    folder = run_folder(root, name)
    begun, clinic = read_if_present(folder / "pipeline.json"), clinic_of(request)
    inside = [run for run in find_runs(folder, f"{name}/", 1) if clinic.due(run)]
    if is_export(request):
        for run in inside:
            clinic.look(run)
    else:
        clinic.ask(inside)
    rows = list(pipeline_steps(request, name))
    return {"name": name, "recipe": optional_text(begun.get("name") or begun.get("recipe")),
            "command": optional_text(begun.get("command")), "folder": folder, "rows": rows,
            "done": sum(row["state"] == "done" for row in rows),
            "tables": summary_tables(read_if_present(folder / "summary.json")), "report": has_report(folder),
            "seconds": sum(row["seconds"] for row in rows if math.isfinite(row["seconds"])),
            "signature": live.runs_signature(root, clinic.version)}


def pipeline_page(request: Request, name: str) -> Response:
    return full_page(request, "runs/pipeline.html", **pipeline_context(request, name))


def has_report(folder: Path) -> bool:
    """Whether a pipeline wrote one; a link that leads elsewhere is none."""
    return (folder / REPORT).is_file() and not (folder / REPORT).is_symlink()


def report_page(request: Request) -> Response:
    """The report that a pipeline wrote: a file of the folder, shown as a page that can do nothing."""
    name, root = request.query_params.get("run", ""), request.app.state.runs
    if not holds_pipeline(root, name) or not has_report(run_folder(root, name)):
        raise HTTPException(404, f"{name} has no report.")
    return HTMLResponse(read_text(run_folder(root, name) / REPORT),
                        headers={"Content-Security-Policy": STILL})


def part_steps(request: Request) -> Response:
    name = request.query_params.get("run", "")
    if not holds_pipeline(request.app.state.runs, name):
        raise HTTPException(404, f"there is no pipeline {name} here.")
    return fragment(request, "runs/steps.html", **pipeline_context(request, name))

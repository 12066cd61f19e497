"""The page of a pipeline: its steps in order, how each stands, what was found.

Only files count: pipeline.json has the steps, each step's own folder says whether it is done, summary.json
has the tables. Whatever is in them is shown as text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from postgrad.runs import number
from postgrad.runs.rows import read_json
from postgrad.studio.pages import fragment, num, page, share
from postgrad.studio.runs import live
from postgrad.studio.runs.samples import clean, listed
from postgrad.studio.runs.shared import traces
from postgrad.studio.runs.traces import NoRun, address, find, parts_of, place, text_of
from postgrad.studio.security import SANDBOXED
from postgrad.system.files import read_text

KINDS = {"run": "trained", "data": "data", "measured": "measured"}
FIGURES = ("pass@1", "reward", "kept", "chains")  # of a step that is no run, the first few that it has
REPORT = "report.html"
STILL = f"{SANDBOXED}; default-src 'none'; style-src 'unsafe-inline'; img-src data:; font-src data:"
MOST = 200  # steps, and rows of a table


def holds(root: Path, name: str) -> bool:
    """Whether a pipeline is in the folder of this name."""
    try:
        return (place(root, name) / "pipeline.json").is_file()
    except NoRun:
        return False


def names(root: Path) -> list[str]:
    """The pipelines of a folder of runs that have begun with a run."""
    above = dict.fromkeys(name.rpartition("/")[0] for name in find(root))
    return [name for name in above if name and holds(root, name)]


def read(path: Path) -> dict:
    """A file of a pipeline; {} where it is not there yet."""
    return read_json(path) if path.is_file() else {}


def mapping(value: object) -> Mapping:
    return value if isinstance(value, Mapping) else {}


def steps(request: Request, name: str) -> Iterator[dict]:
    folder = place(request.app.state.runs, name)
    spent = mapping(read(folder / "state.json").get("seconds"))
    for step in listed(read(folder / "pipeline.json").get("steps"))[:MOST]:
        given = mapping(step)
        kind, own = text_of(given.get("kind")) or "", text_of(given.get("name")) or ""
        needs = listed(given.get("needs")) or [mapping(given.get("settings")).get("model") or ""]
        row = {"name": own, "kind": KINDS.get(kind, kind), "needs": [clean(x) for x in needs],
               "seconds": number(spent.get(f"{kind} {own}")), "address": None, "figures": "", "by": ""}
        yield row | (trained(request, f"{name}/{own}") if kind == "run" else written(folder, kind, own))


def trained(request: Request, name: str) -> dict:
    """How a run stands."""
    try:
        found = traces(request).get(name).summary(name)
    except NoRun:
        return {"state": "waiting"}
    except Exception as error:  # whatever is wrong with one run, the others are shown
        return {"state": "broken", "figures": clean(error)}
    latest = f"{found['series_name']} {num(found['series'][-1], 2)}" if found["series"] else ""
    passed = f"pass@1 {share(found['pass@1'])}" if found["pass@1"] is not None else ""
    return {"state": found["state"], "address": address(name), "by": found["method"] or found["recipe"] or "",
            "figures": ", ".join(filter(None, (latest, passed)))}


def written(folder: Path, kind: str, own: str) -> dict:
    """How a step stands that leaves a file: data, or a measurement."""
    try:
        parts_of(own)
        path = folder / own / "counts.json" if kind == "data" else folder / "measured" / f"{own}.json"
        found = read(path)
    except ValueError as error:
        return {"state": "broken", "figures": clean(error)}
    return {"state": "done" if found else "waiting", "figures": ", ".join(said(found))}


def said(found: Mapping, before: str = "") -> Iterator[str]:
    """The figures of a measurement in a few words; those inside a part of it with the part's name."""
    for key in FIGURES:
        if isinstance(found.get(key), int | float):
            yield f"{before}{key} {share(found[key]) if key == 'pass@1' else num(found[key], 2)}"
    if not before:
        for part, inner in found.items():
            yield from said(mapping(inner), f"{clean(part)} " if part != "figures" else " ")


def tables(summary: Mapping) -> list[dict]:
    """The tables of a summary as text: {"title", "columns", "rows"}."""
    found = []
    for title, given in mapping(summary.get("tables")).items():
        rows = [mapping(row) for row in listed(given)[:MOST]]
        columns = [key for key in (rows[0] if rows else {})
                   if not (key.endswith("_interval") and key.removesuffix("_interval") in rows[0])]
        found.append({"title": clean(title), "columns": [clean(column) for column in columns],
                      "rows": [[cell(row, column) for column in columns] for row in rows]})
    return found


def cell(row: Mapping, column: str) -> str:
    value, interval = row.get(column), listed(row.get(f"{column}_interval"))
    if isinstance(value, list):
        return " to ".join(num(number(x)) for x in value[:2])
    text = num(value) if isinstance(value, int | float) else "" if value is None else clean(value)
    low_to_high = " to ".join(num(number(x)) for x in interval)
    return f"{text} ({low_to_high})" if len(interval) == 2 else text


def shown(request: Request, name: str) -> dict:
    root = request.app.state.runs
    folder = place(root, name)
    begun, rows = read(folder / "pipeline.json"), list(steps(request, name))
    return {"name": name, "recipe": text_of(begun.get("name") or begun.get("recipe")),
            "command": text_of(begun.get("command")), "folder": folder, "rows": rows,
            "done": sum(row["state"] == "done" for row in rows),
            "tables": tables(read(folder / "summary.json")), "report": has_report(folder),
            "signature": live.signature(root)}


def one(request: Request, name: str) -> Response:
    return page(request, "runs/pipeline.html", **shown(request, name))


def has_report(folder: Path) -> bool:
    """Whether a pipeline wrote one; a link that leads elsewhere is none."""
    return (folder / REPORT).is_file() and not (folder / REPORT).is_symlink()


def report(request: Request) -> Response:
    """The report that a pipeline wrote: a file of the folder, shown as a page that can do nothing."""
    name, root = request.query_params.get("run", ""), request.app.state.runs
    if not holds(root, name) or not has_report(place(root, name)):
        raise HTTPException(404, f"{name} has no report.")
    return HTMLResponse(read_text(place(root, name) / REPORT), headers={"Content-Security-Policy": STILL})


def part_steps(request: Request) -> Response:
    name = request.query_params.get("run", "")
    if not holds(request.app.state.runs, name):
        raise HTTPException(404, f"there is no pipeline {name} here.")
    return fragment(request, "runs/steps.html", **shown(request, name))

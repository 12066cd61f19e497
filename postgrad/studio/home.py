"""The first page, with the newest runs (a few rows of each log are read), and /about: versions, licences."""

from __future__ import annotations

import json
import math
import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from postgrad import __version__
from postgrad.runs import Run, number
from postgrad.runs.rows import LONGEST, open_to_read, parse_row
from postgrad.studio.json_types import JsonDict
from postgrad.studio.pages import STATIC, full_page
from postgrad.studio.runs.traces import find_runs
from postgrad.studio.svg import spark

PACKAGES = ("torch", "numpy", "tokenizers", "safetensors", "starlette", "uvicorn", "jinja2", "markdown-it-py")
SHOWN = ("reward", "accuracy", "loss")


def sampled_rows(path: Path, count: int = 32) -> list[JsonDict]:
    """About `count` whole rows from all over a log, the last one always among them,
    each once and in order."""
    lines: dict[int, bytes] = {}
    with open_to_read(path) as file:
        size = os.fstat(file.fileno()).st_size
        for place in [size * k // count for k in range(count)]:
            file.seek(max(place - 1, 0))
            if place:
                file.readline(LONGEST)
            begin = file.tell()
            lines[begin] = file.readline(LONGEST)
        file.seek(max(size - 65536, 0))
        *_, last, torn = [b"", *file.read().split(b"\n")]
        lines[size - len(torn) - len(last) - 1] = last + b"\n"
    rows = [parse_row(line) for _, line in sorted(lines.items()) if line.endswith(b"\n")]
    return [row for row in rows if row is not None and row["step"] is not None]


def run_glance(folder: Path) -> JsonDict:
    """What the first page says of a run; of one that can't be read, why."""
    log = folder / "metrics.jsonl"
    try:
        run, rows = Run.open(folder), sampled_rows(log)
        shown = next((n for n in SHOWN if any(n in row for row in rows)), None)
        series = [number(row[shown]) for row in rows if shown in row]
        status = run.state()
        return {"state": status.get("state"), "error": status.get("error"),
                "step": rows[-1]["step"] if rows else 0, "steps": run.info.get("steps"),
                "series": [x for x in series if math.isfinite(x)], "series_name": shown}
    except Exception as error:  # whatever is wrong with one run, the page shows the others
        return {"state": "broken", "error": str(error), "step": 0, "steps": None, "series": [],
                "series_name": None}


def newest_runs(folder: Path, count: int = 6) -> list[JsonDict]:
    """The runs that were written last, those of a pipeline among them, by their path below the folder."""
    logs = [path for name in find_runs(folder) if (path := folder / name / "metrics.jsonl").is_file()]
    dated = sorted(((path.stat().st_mtime, path.parent) for path in logs), reverse=True)
    found = []
    for updated, path in dated[:count]:
        row, name = run_glance(path), path.relative_to(folder).as_posix()
        found.append(row | {"name": name, "address": f"/runs/{quote(name)}", "updated": updated,
                            "spark": spark(row["series"])})
    return found


def home_page(request: Request) -> Response:
    runs = request.app.state.runs
    return full_page(request, "home.html", runs=newest_runs(runs), folder=runs)


def installed_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def about_page(request: Request) -> Response:
    vendored = json.loads((STATIC / "vendor" / "VENDOR.json").read_text())
    size = sum(p.stat().st_size for p in STATIC.rglob("*") if p.is_file())
    versions = [("postgrad", __version__), ("Python", platform.python_version()),
                *((name, found) for name in PACKAGES if (found := installed_version(name)))]
    return full_page(request, "about.html", versions=versions, vendored=vendored, size=size,
                     state=request.app.state)


routes = [Route("/", home_page, name="home"), Route("/about", about_page, name="about")]

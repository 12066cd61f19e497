"""The first page: one sentence, three doors, the newest runs."""

from __future__ import annotations

from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from postgrad.run import Run
from postgrad.studio.pages import page
from postgrad.studio.svg import spark


def newest(folder: Path, count: int = 6) -> list[dict]:
    """Summaries of the runs that were written last, those of a pipeline among them, as `name` and a path below the folder."""
    found = [*folder.glob("*/metrics.jsonl"), *folder.glob("*/*/metrics.jsonl")]
    rows = []
    for path in sorted(found, key=lambda p: p.stat().st_mtime, reverse=True):
        try:
            row = Run.open(path.parent).summary()
        except (ValueError, OSError) as error:
            row = {"state": "broken", "error": str(error), "series": [], "series_name": None, "updated": path.stat().st_mtime}
        rows.append(row | {"name": path.parent.relative_to(folder).as_posix(), "spark": spark(row["series"])})
        if len(rows) == count:
            break
    return rows


def home(request: Request) -> Response:
    runs = request.app.state.runs
    return page(request, "home.html", runs=newest(runs), folder=runs)


routes = [Route("/", home, name="home")]

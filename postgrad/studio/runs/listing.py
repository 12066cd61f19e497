"""The list of runs: searched, sorted, with what was started and has no folder yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from postgrad.studio.json_types import JsonDict
from postgrad.studio.pages import fragment, full_page
from postgrad.studio.runs import live, pipelines, processes
from postgrad.studio.runs.shared import traces_of
from postgrad.studio.runs.traces import ROW, run_address
from postgrad.studio.svg import spark

SORTS = {"created": "created", "id": "run", "state": "state", "method": "method", "model": "model",
         "step": "step", "reward": "reward", "pass@1": "pass@1", "kl": "KL", "seconds": "time"}


def run_list(request: Request) -> JsonDict:
    root, given = request.app.state.runs, request.query_params
    rows = traces_of(request).summaries()
    taken = {row["id"] for row in rows}
    begun = [ROW
             | {"id": name, "state": "starting" if processes.process_alive(root, name) else "did not start"}
             for name in processes.without_run_folder(root, taken)]
    words = given.get("q", "").lower().split()
    found = [row for row in begun + rows if all(w in searchable_text(row) for w in words)]
    sort = given.get("sort", "created")
    if sort not in SORTS:
        raise ValueError(f"runs can't be sorted by {sort!r:.40}: choose one of {', '.join(SORTS)}.")
    down = given.get("order", "down" if sort not in ("id", "state", "method", "model") else "up") == "down"
    if "sort" in given:
        known = [row for row in found if row[sort] is not None]
        found = sorted(known, key=sort_key(sort), reverse=down) + [row for row in found if row[sort] is None]
    for row in found:
        row["spark"], row["address"] = spark(row["series"], width=96), run_address(row["id"])
        row["begins"] = "/".join((row["model"] or "").split("/")[-2:])  # the end of a path says most
    return {"rows": found, "all": len(taken) + len(begun), "sort": sort, "down": down, "sorts": SORTS,
            "q": given.get("q", ""), "signature": live.runs_signature(root), "folder": root,
            "pipelines": [(name, run_address(name)) for name in pipelines.pipeline_names(root)]}


def searchable_text(row: JsonDict) -> str:
    return " ".join(str(row[k] or "") for k in ("id", "state", "method", "recipe", "model", "task")).lower()


def sort_key(key: str) -> Callable[[JsonDict], Any]:
    return lambda row: str(row[key]) if key in ("id", "state", "method", "model") else row[key]


def runs_index(request: Request) -> Response:
    return full_page(request, "runs/index.html", **run_list(request))


def part_list(request: Request) -> Response:
    return fragment(request, "runs/list.html", **run_list(request))

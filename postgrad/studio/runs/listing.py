"""The list of runs: searched, sorted, seeds together, with what was started and has no folder yet."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import lru_cache
from statistics import fmean, stdev
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from postgrad.runs.report import extremes
from postgrad.studio.json_types import JsonDict
from postgrad.studio.pages import fragment, full_page
from postgrad.studio.runs import live, pipelines, processes
from postgrad.studio.runs.samples import safe_text
from postgrad.studio.runs.shared import clinic_of, is_export, query_number, traces_of
from postgrad.studio.runs.traces import EVERYTHING, ROW, run_address, run_stamps
from postgrad.studio.svg import sparks

SORTS = {"created": "created", "id": "run", "state": "state", "method": "method", "model": "model",
         "step": "step", "reward": "reward", "pass@1": "pass@1", "kl": "KL", "seconds": "time"}
WORDS = ("id", "state", "method", "recipe", "model", "task", "health")
PAGE = 50           # rows
AT_ONCE = 2 << 20   # bytes of logs that a request reads for a list; what is more, a thread reads


def run_list(request: Request) -> JsonDict:
    root, given, exported = request.app.state.runs, request.query_params, is_export(request)
    clinic, stamps = clinic_of(request), run_stamps(root)
    rows = traces_of(request).summaries(stamps, EVERYTHING if exported else AT_ONCE)
    clinic.ask((row["id"] for row in rows if row.get("unread")), look=False)
    taken = {row["id"] for row in rows}
    begun = [ROW
             | {"id": name, "state": "starting" if processes.process_alive(root, name) else "did not start"}
             for name in processes.without_run_folder(root, taken)]
    words, archived, seeds = given.get("q", "").lower().split(), "archived" in given, "seeds" in given
    put_away = sum(row["note"].archived for row in rows)
    found = [row for row in (with_health(clinic.known(row["id"]), row) for row in begun + rows)
             if row["note"].archived == archived and all(w in searchable_text(row) for w in words)]
    matching = len(found)
    found = seeds_together(found) if seeds else [row | {"ids": [row["id"]]} for row in found]
    sort = given.get("sort", "created")
    if sort not in SORTS:
        raise ValueError(f"runs can't be sorted by {sort!r:.40}: choose one of {', '.join(SORTS)}.")
    down = given.get("order", "down" if sort not in ("id", "state", "method", "model") else "up") == "down"
    if "sort" in given:
        known = [row for row in found if row[sort] is not None]
        found = sorted(known, key=sort_key(sort), reverse=down) + [row for row in found if row[sort] is None]
    pages = max(1, -(-len(found) // PAGE))
    page = min(query_number(request, "page", 1, least=1), pages)
    shown = found if exported else found[PAGE * (page - 1):PAGE * page]
    names = [name for row in shown for name in row["ids"] if name in taken and row["state"] != "broken"]
    if exported:
        shown = [with_health(clinic.look(row["id"]) if row["id"] in names else None, row) for row in shown]
    else:
        first = dict.fromkeys([*names, *(row["id"] for row in rows)])  # what is shown, then the others
        clinic.ask([name for name in first if (held := clinic.traces.rows.get(name))
                    and held[1]["state"] != "broken" and clinic.due(name, held[0])])
    ways = {name: "1" for name, on in (("archived", archived), ("seeds", seeds)) if on}
    return {"rows": [shown_row(row) for row in shown], "all": len(taken) + len(begun), "sort": sort,
            "down": down, "sorts": SORTS, "q": given.get("q", ""), "folder": root, "put_away": put_away,
            "archived": archived, "seeds": seeds, "matching": matching, "page": page, "pages": pages,
            "query": {"q": given.get("q", ""), **ways},
            "signature": live.runs_signature(root, clinic.version, stamps),
            "pipelines": [(name, run_address(name)) for name in pipelines.pipeline_names(root, stamps)]}


def with_health(health: Any, row: JsonDict) -> JsonDict:
    """The row with the doctor's verdict: a level and a word."""
    return row | {"level": health.level if health else "", "health": health.word if health else ""}


def shown_row(row: JsonDict) -> JsonDict:
    one = len(row["ids"]) == 1
    left = (row["steps"] - row["step"]) * row["pace"] if (
        row["state"] == "running" and row["steps"] and row["pace"]) else None
    return row | {
        "spark": row_sparks(row.get("curves") or (row["series"],)), "left": left,
        "address": run_address(row["id"]) if one else
        f"/runs/compare?{urlencode({'ids': ','.join(row['ids']), 'seeds': 1})}",
        "title": safe_text(row["note"].name), "tags": [safe_text(tag) for tag in row["note"].tags],
        "begins": "/".join((row["model"] or "").split("/")[-2:])}  # the end of a path says most


@lru_cache(1024)
def row_sparks(curves: tuple[tuple[float, ...], ...]) -> JsonDict:
    return sparks([[one[i] for i in extremes(one, 24)] for one in curves] if len(curves) > 1 else curves, 96)


def seeds_together(rows: list[JsonDict]) -> list[JsonDict]:
    """Runs that differ in their seed alone as one row: means, and the spread of the reward."""
    groups: dict[object, list[JsonDict]] = {}
    for row in rows:
        groups.setdefault(row["twin"] or row["id"], []).append(row)
    return [group_row(group) if len(group) > 1 else group[0] | {"ids": [group[0]["id"]]}
            for group in groups.values()]


def group_row(group: list[JsonDict]) -> JsonDict:
    states = list(dict.fromkeys(row["state"] for row in group))
    worst = max(group, key=lambda row: ("", "early", "well", "minor", "bad").index(row["level"]))

    def mean(key: str) -> float | None:
        known = [row[key] for row in group if row[key] is not None]
        return fmean(known) if known else None

    paid = [row["reward"] for row in group if row["reward"] is not None]
    seeds = sorted({str(row["seed"]) for row in group if row["seed"] is not None}, key=lambda s: (len(s), s))
    return group[0] | {key: mean(key) for key in ("reward", "pass@1", "kl", "seconds")} | {
        "id": os.path.commonprefix([row["id"] for row in group]).rstrip("-_./") or group[0]["id"],
        "ids": [row["id"] for row in group], "level": worst["level"], "health": worst["health"],
        "state": states[0] if len(states) == 1 else "running" if "running" in states else "mixed",
        "spread": stdev(paid) if len(paid) > 1 else None,
        "seed": ", ".join(seeds), "error": None, "step": min(row["step"] for row in group),
        "curves": tuple(row["series"] for row in group)}


def searchable_text(row: JsonDict) -> str:
    note = row["note"]
    return " ".join([*(str(row[k] or "") for k in WORDS), note.name, *note.tags, note.note]).lower()


def sort_key(key: str) -> Callable[[JsonDict], Any]:
    return lambda row: str(row[key]) if key in ("id", "state", "method", "model") else row[key]


def runs_index(request: Request) -> Response:
    return full_page(request, "runs/index.html", **run_list(request))


def part_list(request: Request) -> Response:
    return fragment(request, "runs/list.html", **run_list(request))

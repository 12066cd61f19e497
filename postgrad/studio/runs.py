"""The pages about runs: the list, one run with every step's samples, and runs side by side.

Only the run folder counts: these pages look, and hold nothing that a restart would lose.
Addresses below /runs/- are parts of pages; no run's name can begin with a dash.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from json import dumps
from pathlib import Path

from markupsafe import Markup
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from postgrad.studio import curves, live, pairing, processes, samples
from postgrad.studio.pages import fragment, page
from postgrad.studio.svg import spark
from postgrad.studio.traces import ROW, NoRun, Trace, Traces, address, locate, said

SORTS = {"created": "created", "id": "run", "state": "state", "method": "method", "model": "model", "step": "step",
         "reward": "reward", "pass@1": "pass@1", "kl": "KL", "seconds": "time"}
MOST = 6  # runs side by side


class RunId(Convertor[str]):
    """A run's id in an address: not `new` or `compare`, which are pages, and nothing that begins with a dash."""

    regex = r"(?!(?:new|compare)$)[^-/].*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("run", RunId())


def traces(request: Request) -> Traces:
    state = request.app.state
    if getattr(state, "traces", None) is None or state.traces.root != state.runs:
        state.traces = Traces(Path(state.runs))
    return state.traces


def trace_of(request: Request, name: str) -> Trace:
    try:
        return traces(request).get(name)
    except NoRun as error:
        raise HTTPException(404, str(error)) from None


def asked(request: Request, name: str, otherwise: int, least: int = 0) -> int:
    """A whole number in the query; what is none is refused with a sentence."""
    text = request.query_params.get(name, "")
    if not re.fullmatch(r"\d{0,15}", text, re.ASCII):
        raise ValueError(f"{name}={text!r:.40}: expected a whole number.")
    return max(least, int(text)) if text else otherwise


# the list

def listed(request: Request) -> dict:
    root, given = request.app.state.runs, request.query_params
    rows = traces(request).summaries()
    taken = {row["id"] for row in rows}
    begun = [ROW | {"id": name, "state": "starting" if processes.at_work(root, name) else "did not start"}
             for name in processes.waiting(root, taken)]
    words = given.get("q", "").lower().split()
    found = [row for row in begun + rows if all(w in sought(row) for w in words)]
    sort = given.get("sort", "created")
    if sort not in SORTS:
        raise ValueError(f"runs can't be sorted by {sort!r:.40}: choose one of {', '.join(SORTS)}.")
    down = given.get("order", "down" if sort not in ("id", "state", "method", "model") else "up") == "down"
    if "sort" in given:
        known = [row for row in found if row[sort] is not None]
        found = sorted(known, key=ordered(sort), reverse=down) + [row for row in found if row[sort] is None]
    for row in found:
        row["spark"], row["address"] = spark(row["series"], width=96), address(row["id"])
        row["begins"] = "/".join((row["model"] or "").split("/")[-2:])  # the end of a path says most
    return {"rows": found, "all": len(taken) + len(begun), "sort": sort, "down": down, "sorts": SORTS, "q": given.get("q", ""),
            "signature": live.signature(root), "folder": root}


def sought(row: dict) -> str:
    return " ".join(str(row[k] or "") for k in ("id", "state", "method", "recipe", "model", "task")).lower()


def ordered(key: str) -> Callable[[dict], object]:
    return lambda row: str(row[key]) if key in ("id", "state", "method", "model") else row[key]


def index(request: Request) -> Response:
    return page(request, "runs/index.html", **listed(request))


def part_list(request: Request) -> Response:
    return fragment(request, "runs/list.html", **listed(request))


# one run

def one(request: Request) -> Response:
    name, root = request.path_params["id"], request.app.state.runs
    try:
        locate(root, name)
    except NoRun as error:
        return starting(request, name, str(error))
    trace = trace_of(request, name)
    cursor = watch(trace)
    first, more = curves.chosen([trace])
    return page(request, "runs/run.html", run=trace.summary(name), address=address(name),
                command=said(trace.run.info.get("command")),
                first=[curves.described(n) for n in first], more=[curves.described(n) for n in more],
                data=data(request, {name: trace}, first, more, {name: cursor}), config=flat(trace.run.config),
                events=events(trace), checkpoints=list(trace.run.checkpoints()), said=output_of(request, name),
                again=again(trace), **panel(request, name, trace))


def part_head(request: Request) -> Response:
    name = request.query_params.get("run", "")
    trace = trace_of(request, name)
    return fragment(request, "runs/head.html", run=trace.summary(name), again=again(trace))


def starting(request: Request, name: str, otherwise: str) -> Response:
    """A run that was started from here and has no folder yet, or never will."""
    root = request.app.state.runs
    output = output_of(request, name)
    if output is None:
        raise HTTPException(404, otherwise)
    return page(request, "runs/starting.html", name=name, at_work=processes.at_work(root, name), said=output,
                signature=live.signature(root))


def watch(trace: Trace) -> list[int]:
    """The bytes that a page made now has: of metrics, evals and events."""
    return [*trace.cursor, trace.run.rows("events")[1]]


def events(trace: Trace) -> list[dict]:
    rows, _ = trace.run.rows("events")
    return [live.told(row) for row in rows[-200:]]


def data(request: Request, found: dict[str, Trace], first: list[str], more: list[str], cursors: dict[str, list[int]]) -> Markup:
    """What the page's script draws, as JSON for a data block: no character in it can end the block."""
    exported = request.headers.get("x-postgrad-export") == "1"  # then there is no server to ask later
    charts = curves.charts(found, [*first, *more]) if exported else curves.charts(found, first, more)
    text = dumps({"charts": charts, "runs": cursors}, allow_nan=False)
    return Markup(text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026"))


def flat(config: dict, prefix: str = "") -> dict[str, str]:
    """Dotted keys and values of a saved config, as text."""
    out: dict[str, str] = {}
    for key, value in config.items():
        out |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {
            samples.clean(prefix + key): "none" if value is None else samples.clean(value)}
    return out


def again(trace: Trace) -> dict[str, str]:
    """The query of the form that starts such a run again."""
    name = said(trace.run.info.get("method")) or said(trace.run.info.get("recipe")) or ""
    return {"recipe": name, **{f"set.{k}": v for k, v in flat(trace.run.config).items()
                                if k not in ("method", "method.name")}}


def part_curves(request: Request) -> Response:
    """Curves as JSON: the whole of them, or those between two steps in more detail."""
    name = request.query_params.get("run", "")
    trace = trace_of(request, name)
    if "from" in request.query_params:
        between = (asked(request, "from", 0), asked(request, "to", 2**53))
        wanted = request.query_params.get("name", "")
        return json({wanted: curves.series(wanted, trace, between=between)})
    return json(curves.charts({name: trace}, sum(curves.chosen([trace]), [])))


def json(value: object) -> Response:
    return Response(dumps(value, allow_nan=False), media_type="application/json")


# samples

def panel(request: Request, name: str, trace: Trace) -> dict:
    """One step's samples: the group that is looked at, and the strip of one of its completions."""
    rows, before, after = trace.run.at("samples", asked(request, "step", 2**53))
    if not rows:
        return {"name": name, "samples": None}
    found = samples.groups(rows)
    group = found[min(asked(request, "group", 0), len(found) - 1)]
    picked = min(asked(request, "sample", 0), len(group["rows"]) - 1)
    ways = samples.known(rows)
    colour = request.query_params.get("colour", "adv")
    if colour not in samples.COLOURS:
        raise ValueError(f"tokens can't be coloured by {colour!r:.40}: choose one of {', '.join(samples.COLOURS)}.")
    colour = colour if colour in ways or not ways else ways[0]
    largest = samples.scale(rows, colour)
    (opening, *_), *_ = trace.run.at("samples", 0)
    (latest, *_), *_ = trace.run.at("samples", 2**53)
    return {"name": name, "samples": {
        "step": rows[0]["step"], "before": before, "after": after, "first": opening["step"], "last": latest["step"],
        "groups": found, "group": group, "at": found.index(group), "picked": picked, "sample": group["rows"][picked],
        "colour": colour, "ways": [(key, samples.COLOURS[key][0]) for key in ways], "says": samples.COLOURS[colour][2],
        "kind": samples.COLOURS[colour][1], "largest": largest,
        "strip": samples.strip(group["rows"][picked]["raw"], colour, largest)}}


def part_samples(request: Request) -> Response:
    name = request.query_params.get("run", "")
    return fragment(request, "runs/samples.html", **panel(request, name, trace_of(request, name)))


def part_worked(request: Request) -> Response:
    """The group's advantages, worked out by the function that trained."""
    name = request.query_params.get("run", "")
    trace = trace_of(request, name)
    seen = panel(request, name, trace)["samples"]
    if seen is None:
        raise HTTPException(404, f"{name} has logged no samples.")
    method = str(trace.run.info.get("method") or "")
    return fragment(request, "runs/worked.html", seen=seen, group=seen["group"], tex=samples.WORKED,
                    worked=samples.worked(seen["group"], method, trace.run.config, trace.run.info.get("row")))


def output_of(request: Request, name: str) -> str | None:
    try:
        return said(processes.said(request.app.state.runs, name))
    except NoRun as error:
        raise HTTPException(404, str(error)) from None


def part_output(request: Request) -> Response:
    output = output_of(request, request.query_params.get("run", ""))
    if output is None:
        raise HTTPException(404, "This run was not started from here: its output is in the terminal that started it.")
    return fragment(request, "runs/output.html", said=output)


# side by side

def compare(request: Request) -> Response:
    names = list(dict.fromkeys(n for text in request.query_params.getlist("ids") for n in text.split(",") if n))
    if len(names) > MOST:
        raise ValueError(f"{len(names)} runs can't be shown side by side: choose at most {MOST}.")
    found = {name: trace_of(request, name) for name in names}
    if len(found) < 2:
        return page(request, "runs/choose.html", **listed(request), chosen=names)
    cursors = {name: watch(trace) for name, trace in found.items()}
    first, more = curves.chosen(list(found.values()))
    summaries = [trace.summary(name) | {"address": address(name), "line": i} for i, (name, trace) in enumerate(found.items())]
    return page(request, "runs/compare.html", runs=summaries, ids=",".join(names), differ=differing(found),
                first=[curves.described(n) for n in first], more=[curves.described(n) for n in more],
                data=data(request, found, first, more, cursors), **paired(request, found))


def differing(found: dict[str, Trace]) -> list[tuple[str, list[str]]]:
    """The config keys whose values are not the same in all runs, the recipe and method among them."""
    configs = [{"recipe": said(trace.run.info.get("recipe")), **flat(trace.run.config), **constants(trace)}
               for trace in found.values()]
    keys = list(dict.fromkeys(key for config in configs for key in config))
    rows = [(key, [config.get(key, "–") for config in configs]) for key in keys]
    return [(key, values) for key, values in rows if any(v != values[0] for v in values)]


def constants(trace: Trace) -> dict[str, str]:
    """The constants of the row that a run was made with: {"method.high": "0.3", ...}"""
    row = trace.run.info.get("row")
    kept = row.get("constants") if isinstance(row, dict) else None
    return flat(kept, "method.") if isinstance(kept, dict) else {}


def paired(request: Request, found: dict[str, Trace]) -> dict:
    """Samples of all runs on one prompt: the pair-th, from 1, of those prompts that every run has samples of."""
    shared = pairing.shared({name: trace.prompts.refresh() for name, trace in found.items()})
    cut = {name: trace.prompts.cut for name, trace in found.items()}
    if not shared:
        return {"pairs": None}
    at = min(asked(request, "pair", 1, least=1), len(shared)) - 1
    prompt, steps = shared[at]
    columns = []
    for (name, trace), step in zip(found.items(), steps, strict=True):
        rows, _, _ = trace.run.at("samples", step)
        group = next((g for g in samples.groups(rows) if g["prompt"] == prompt), None)
        columns.append({"id": name, "step": step, "group": group})
    return {"pairs": {"at": at, "count": len(shared), "prompt": prompt, "columns": columns, "ids": ",".join(found),
                      "cut": {name: step for name, step in cut.items() if step is not None}}}


def part_pairs(request: Request) -> Response:
    names = [n for n in request.query_params.get("ids", "").split(",") if n][:MOST]
    return fragment(request, "runs/pairs.html", **paired(request, {name: trace_of(request, name) for name in names}))


routes = [
    Route("/runs", index, name="runs"),
    Route("/runs/compare", compare, name="compare"),
    Route("/runs/-/list", part_list),
    Route("/runs/-/head", part_head),
    Route("/runs/-/curves", part_curves),
    Route("/runs/-/samples", part_samples),
    Route("/runs/-/worked", part_worked),
    Route("/runs/-/output", part_output),
    Route("/runs/-/pairs", part_pairs),
    Route("/runs/-/at/{id:path}", one, name="run-at"),
    Route("/runs/{id:run}", one, name="run"),
]

"""The page of one run with every step's samples, and the addresses of all pages about runs.

Only the run folder counts: these pages look, and hold nothing that a restart would lose.
Addresses below /runs/- are parts of pages; no run's name can begin with a dash.
"""

from __future__ import annotations

from json import dumps
from pathlib import Path
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from postgrad.runs import ledger
from postgrad.studio.pages import fragment, page
from postgrad.studio.runs import curves, live, pipelines, processes, samples
from postgrad.studio.runs import progress as pace
from postgrad.studio.runs.compare import compare, part_pairs
from postgrad.studio.runs.listing import index, part_list
from postgrad.studio.runs.shared import asked, block, data, flat, trace_of, watch
from postgrad.studio.runs.traces import NoRun, Trace, address, find, locate, text_of

MOST = 12  # models of one ledger that are shown


class RunId(Convertor[str]):
    """A run's id in an address: not `new` or `compare`, which are pages,
    and nothing that begins with a dash."""

    regex = r"(?!(?:new|compare)$)[^-/].*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("run", RunId())


def one(request: Request) -> Response:
    name, root = request.path_params["id"], request.app.state.runs
    if pipelines.holds(root, name):
        return pipelines.one(request, name)
    try:
        locate(root, name)
    except NoRun as error:
        return starting(request, name, str(error))
    trace = trace_of(request, name)
    cursor = watch(trace)
    first, more = curves.chosen([trace])
    above = name.rpartition("/")[0]
    return page(request, "runs/run.html", run=told(request, name, trace), address=address(name),
                pipeline=(above, address(above)) if above and pipelines.holds(root, above) else None,
                command=text_of(trace.run.info.get("command")),
                first=[curves.described(n) for n in first], more=[curves.described(n) for n in more],
                data=data(request, {name: trace}, first, more, {name: cursor}), config=flat(trace.run.config),
                events=events(trace), checkpoints=list(trace.run.checkpoints()),
                ledgers=ledgers(trace.run.folder, request.app.state.runs),
                output=output_of(request, name), again=again(trace), kept=kept(request, name, trace),
                **panel(request, name, trace))


def part_head(request: Request) -> Response:
    name = request.query_params.get("run", "")
    trace = trace_of(request, name)
    return fragment(request, "runs/head.html", run=told(request, name, trace), again=again(trace))


def told(request: Request, name: str, trace: Trace) -> dict:
    """What the head of a run's page says: the row of the list, how the run stands and how far it is."""
    state = pace.standing(request.app.state.runs, name, trace.run.state())
    return trace.summary(name) | {"state": text_of(state.get("state")), "error": text_of(state.get("error")),
                                  "progress": pace.progress(trace, state.get("state")),
                                  "speed": pace.speed(trace)}


def starting(request: Request, name: str, otherwise: str) -> Response:
    """A run that was started from here and has no folder yet, or never will; a folder of runs is a list."""
    root = request.app.state.runs
    output = output_of(request, name)
    if output is None:
        if any(run.startswith(f"{name}/") for run in find(root)):
            return RedirectResponse(f"/runs?{urlencode({'q': f'{name}/'})}", status_code=303)
        raise HTTPException(404, otherwise)
    said = [line for line in output.splitlines() if line.strip()]
    return page(request, "runs/starting.html", name=name, at_work=processes.at_work(root, name),
                output=output, last=said[-1] if len(said) > 1 else "", signature=live.signature(root))


def events(trace: Trace) -> list[dict]:
    rows, _ = trace.run.rows("events")
    return [live.told(row) for row in rows[-200:]]


def again(trace: Trace) -> dict[str, str]:
    """The query of the form that starts such a run again."""
    name = text_of(trace.run.info.get("method")) or text_of(trace.run.info.get("recipe")) or ""
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
    colour = request.query_params.get("colour", "adv")
    if colour not in samples.COLOURS:
        raise ValueError(f"tokens can't be coloured by {colour!r:.40}: choose one of "
                         f"{', '.join(samples.COLOURS)}.")
    (opening, *_), *_ = trace.run.at("samples", 0)
    (latest, *_), *_ = trace.run.at("samples", 2**53)
    return {"name": name, "samples": samples.panel(
        rows, (before, after), (opening["step"], latest["step"]), asked(request, "group", 0),
        asked(request, "sample", 0), colour)}


def kept(request: Request, name: str, trace: Trace) -> Markup | None:
    """Every step's samples as data, for a page that has no server to ask."""
    if request.headers.get("x-postgrad-export") != "1":
        return None
    steps: dict[int, list] = {}
    for row in trace.run.rows("samples")[0]:
        steps.setdefault(row["step"], []).append(samples.cleaned(row))
    return block({"run": name, "steps": list(steps), "rows": list(steps.values())})


def part_samples(request: Request) -> Response:
    name = request.query_params.get("run", "")
    return fragment(request, "runs/samples.html", **panel(request, name, trace_of(request, name)))


def part_worked(request: Request) -> Response:
    """The group's advantages, worked out by the function that trained."""
    name = request.query_params.get("run", "")
    trace = trace_of(request, name)
    shown = panel(request, name, trace)["samples"]
    if shown is None:
        raise HTTPException(404, f"{name} has logged no samples.")
    method = str(trace.run.info.get("method") or "")
    return fragment(request, "runs/worked.html", shown=shown, group=shown["group"], tex=samples.WORKED,
                    worked=samples.worked(shown["group"], method, trace.run.config,
                                          trace.run.info.get("row")))


def output_of(request: Request, name: str) -> str | None:
    try:
        return text_of(processes.last_output(request.app.state.runs, name))
    except NoRun as error:
        raise HTTPException(404, str(error)) from None


def part_output(request: Request) -> Response:
    output = output_of(request, request.query_params.get("run", ""))
    if output is None:
        raise HTTPException(404, "This run was not started from here: its output is in the terminal "
                            "that started it.")
    return fragment(request, "runs/output.html", output=output)


# what was gained and lost

def ledgers(folder: Path, root: Path) -> list[dict]:
    """The run's own, then its pipeline's, each with a table for every model against the first; one that
    cannot be read is a sentence."""
    above = [("the pipeline", folder.parent)] if folder.parent.resolve() != root.resolve() else []
    found = []
    for what, place in [("this run", folder), *above]:
        try:
            book = ledger.read(place)
            if book and len(book["entries"]) > 1:
                found.append({"of": what, "fault": "", "problems": book["problems"],
                              "samples": book["samples"], "tables": tables(book)})
        except (ValueError, OSError) as error:
            found.append({"of": what, "fault": samples.clean(str(error)), "tables": []})
    return found


def tables(book: dict) -> list[dict]:
    """Newest first."""
    first, *others = book["entries"]
    return [{"first": samples.clean(first["name"]), "name": samples.clean(entry["name"]),
             "says": [samples.clean(text) for text in ledger.sentences(lines)],
             "rows": [{key or "verdict": samples.clean(text) for key, text in ledger.shown(line).items()}
                      for line in lines]}
            for entry in others[::-1][:MOST] for lines in [ledger.lines(first, entry)]]


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
    Route("/runs/-/pipeline", pipelines.part_steps),
    Route("/runs/-/report", pipelines.report),
    Route("/runs/-/at/{id:path}", one, name="run-at"),
    Route("/runs/{id:run}", one, name="run"),
]

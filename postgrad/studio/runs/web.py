"""The page of one run with every step's samples, and the addresses of all pages about runs.

Only the run folder counts: these pages look, and hold nothing that a restart would lose.
Addresses below /runs/- are parts of pages; no run's name can begin with a dash.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.convertors import Convertor, register_url_convertor
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from postgrad.runs import ledger
from postgrad.runs.frame import csv_of, merge_steps
from postgrad.runs.notes import read_note
from postgrad.studio.json_types import JsonDict, JsonList
from postgrad.studio.pages import fragment, full_page
from postgrad.studio.runs import curves, live, notes, pipelines, processes, samples, search, talk
from postgrad.studio.runs import progress as pace
from postgrad.studio.runs.compare import MOST_SEEDS, compare_page, part_pairs, seed_groups
from postgrad.studio.runs.listing import part_list, runs_index
from postgrad.studio.runs.shared import (
    as_file,
    chart_data,
    clinic_of,
    flat_config,
    is_export,
    json_block,
    json_response,
    log_cursor,
    query_fraction,
    query_number,
    trace_of,
)
from postgrad.studio.runs.traces import (
    NoSuchRun,
    Trace,
    existing_run_folder,
    find_runs,
    optional_text,
    run_address,
)

MOST = 12  # models of one ledger that are shown


class RunIdConvertor(Convertor[str]):
    """A run's id in an address: not `new` or `compare`, which are pages,
    and nothing that begins with a dash."""

    regex = r"(?!(?:new|compare)$)[^-/].*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("run", RunIdConvertor())


def run_page(request: Request) -> Response:
    name, root = request.path_params["id"], request.app.state.runs
    if pipelines.holds_pipeline(root, name):
        return pipelines.pipeline_page(request, name)
    try:
        existing_run_folder(root, name)
    except NoSuchRun as error:
        return starting_page(request, name, str(error))
    trace = trace_of(request, name)
    cursor = log_cursor(trace)
    first, more = curves.chosen_metrics([trace])
    above = name.rpartition("/")[0]
    return full_page(request, "runs/run.html", run=run_header(request, name, trace),
                     address=run_address(name),
                     pipeline=(above, run_address(above)) if above and pipelines.holds_pipeline(root, above)
                     else None,
                     command=optional_text(trace.run.info.get("command")),
                     first=[curves.metric_description(n) for n in first],
                     more=[curves.metric_description(n) for n in more],
                     data=chart_data(request, {name: trace}, first, more, {name: cursor}), csv_runs=[name],
                     config=flat_config(trace.run.config),
                     events=run_events(trace), checkpoints=list(trace.run.checkpoints()),
                     ledgers=run_ledgers(trace.run.folder, request.app.state.runs),
                     output=output_text(request, name), again=restart_query(trace),
                     health=run_health(request, name),
                     kept=exported_samples(request, name, trace), note=note_view(trace),
                     asked={key: request.query_params.get(key, "") for key in search.FIELDS},
                     orders=search.ORDERS, finished=search.FINISHED,
                     talk=talk.talk_choices(trace.run), facts=machine_facts(trace),
                     **samples_panel(request, name, trace))


def part_head(request: Request) -> Response:
    name = request.query_params.get("run", "")
    trace = trace_of(request, name)
    return fragment(request, "runs/head.html", run=run_header(request, name, trace),
                    again=restart_query(trace))


def run_health(request: Request, name: str) -> JsonDict | None:
    """The doctor's verdict, where it is known and holds; else the page asks for it as soon as it is there."""
    clinic = clinic_of(request)
    if is_export(request) or not clinic.due(name):
        return clinic.look(name).view
    return None


def part_doctor(request: Request) -> Response:
    name = request.query_params.get("run", "")
    trace_of(request, name)
    return fragment(request, "runs/doctor.html", name=name, health=clinic_of(request).look(name).view)


def run_header(request: Request, name: str, trace: Trace) -> JsonDict:
    """What the head of a run's page says: the row of the list, how the run stands and how far it is."""
    state = pace.current_state(request.app.state.runs, name, trace.run.state())
    return trace.summary(name) | {"state": optional_text(state.get("state")),
                                  "error": optional_text(state.get("error")),
                                  "progress": pace.progress_text(trace, state.get("state")),
                                  "speed": pace.speed_text(trace)}


def starting_page(request: Request, name: str, otherwise: str) -> Response:
    """A run that was started from here and has no folder yet, or never will; a folder of runs is a list."""
    root = request.app.state.runs
    output = output_text(request, name)
    if output is None:
        if any(run.startswith(f"{name}/") for run in find_runs(root)):
            return RedirectResponse(f"/runs?{urlencode({'q': f'{name}/'})}", status_code=303)
        raise HTTPException(404, otherwise)
    said = [line for line in output.splitlines() if line.strip()]
    return full_page(request, "runs/starting.html", name=name, at_work=processes.process_alive(root, name),
                     output=output, last=said[-1] if len(said) > 1 else "",
                     signature=live.runs_signature(root))


def note_view(trace: Trace) -> JsonDict:
    """The name, tags and note that somebody gave the run, as text that cannot steer a page."""
    found = read_note(trace.run.folder)
    return {"name": samples.safe_text(found.name), "tags": [samples.safe_text(tag) for tag in found.tags],
            "note": samples.safe_text(found.note), "archived": found.archived}


def machine_facts(trace: Trace) -> list[tuple[str, str]]:
    """Where the run was trained, and from which code."""
    info = trace.run.info
    machine = info["machine"] if isinstance(info.get("machine"), dict) else {}
    found = [("commit", info.get("commit")), ("postgrad", info.get("version")),
             ("Python", info.get("python")), ("torch", info.get("torch")),
             *((key, machine[key]) for key in ("platform", "cpu", "cores", "gpus") if machine.get(key))]
    return [(name, samples.safe_text(", ".join(map(str, value)) if isinstance(value, list) else value))
            for name, value in found if value]


def run_events(trace: Trace) -> list[JsonDict]:
    rows, _ = trace.run.rows("events")
    return [live.event_view(row) for row in rows[-200:]]


def restart_query(trace: Trace) -> dict[str, str]:
    """The query of the form that starts such a run again."""
    name = optional_text(trace.run.info.get("method")) or optional_text(trace.run.info.get("recipe")) or ""
    return {"recipe": name, **{f"set.{k}": v for k, v in flat_config(trace.run.config).items()
                                if k not in ("method", "method.name")}}


def part_curves(request: Request) -> Response:
    """Curves as JSON: all of a run, or of runs with seeds together; or one between two steps in more
    detail."""
    if "seeds" in request.query_params:
        found = {name: trace_of(request, name) for name in request.query_params.getlist("run")[:MOST_SEEDS]}
        names = sum(curves.chosen_metrics([*found.values()]), [])
        return json_response(curves.seed_curves(seed_groups(found), names))
    name = request.query_params.get("run", "")
    trace = trace_of(request, name)
    if "from" in request.query_params:
        between = (query_number(request, "from", 0), query_number(request, "to", 2**53))
        wanted = request.query_params.get("name", "")
        smooth = query_fraction(request, "smooth")
        return json_response({wanted: curves.trace_curve(wanted, trace, between=between, smooth=smooth)})
    return json_response(curves.chart_curves({name: trace}, sum(curves.chosen_metrics([trace]), [])))


def csv_file(request: Request) -> Response:
    """All figures of a run as `postgrad runs RUN --csv` prints them; with name: one curve of several runs."""
    names, metric = request.query_params.getlist("run")[:MOST], request.query_params.get("name", "")
    found = {name: trace_of(request, name) for name in names}
    if metric:
        rows: dict[int, JsonDict] = {}
        for name, trace in found.items():
            for step, value in zip(*trace.column(metric), strict=True):
                rows.setdefault(step, {"step": step})[metric if len(found) == 1 else name] = value
        text = csv_of([rows[step] for step in sorted(rows)])
    else:
        if len(found) != 1:
            raise ValueError("all figures are of one run: name it, or a curve of several with name=reward.")
        (trace,) = found.values()
        steps = merge_steps(trace.run.rows("metrics")[0], trace.run.rows("evals")[0])
        text = csv_of([{"step": step, **figures} for step, figures in steps.items()])
    return as_file(text, "text/csv", f"{'-'.join([*names, *filter(None, [metric])])}.csv")


# samples

def samples_panel(request: Request, name: str, trace: Trace) -> JsonDict:
    """One step's samples: the group that is looked at, and the strip of one of its completions."""
    rows, before, after = trace.run.at("samples", query_number(request, "step", 2**53))
    if not rows:
        return {"name": name, "samples": None}
    colour = request.query_params.get("colour", "adv")
    if colour not in samples.COLOURS:
        raise ValueError(f"tokens can't be coloured by {colour!r:.40}: choose one of "
                         f"{', '.join(samples.COLOURS)}.")
    (opening, *_), *_ = trace.run.at("samples", 0)
    (latest, *_), *_ = trace.run.at("samples", 2**53)
    return {"name": name, "samples": samples.step_panel(
        rows, (before, after), (opening["step"], latest["step"]), query_number(request, "group", 0),
        query_number(request, "sample", 0), colour)}


def exported_samples(request: Request, name: str, trace: Trace) -> Markup | None:
    """Every step's samples as data, for a page that has no server to ask."""
    if not is_export(request):
        return None
    steps: dict[int, JsonList] = {}
    for row in trace.run.rows("samples")[0]:
        steps.setdefault(row["step"], []).append(samples.safe_row(row))
    return json_block({"run": name, "steps": list(steps), "rows": list(steps.values())})


def part_samples(request: Request) -> Response:
    name = request.query_params.get("run", "")
    return fragment(request, "runs/samples.html", **samples_panel(request, name, trace_of(request, name)))


def part_worked(request: Request) -> Response:
    """The group's advantages, worked out by the function that trained."""
    name = request.query_params.get("run", "")
    trace = trace_of(request, name)
    shown = samples_panel(request, name, trace)["samples"]
    if shown is None:
        raise HTTPException(404, f"{name} has logged no samples.")
    method = str(trace.run.info.get("method") or "")
    return fragment(request, "runs/worked.html", shown=shown, group=shown["group"], tex=samples.WORKED,
                    worked=samples.worked_advantages(shown["group"], method, trace.run.config,
                                                     trace.run.info.get("row")))


def output_text(request: Request, name: str) -> str | None:
    try:
        return optional_text(processes.last_output(request.app.state.runs, name))
    except NoSuchRun as error:
        raise HTTPException(404, str(error)) from None


def part_output(request: Request) -> Response:
    output = output_text(request, request.query_params.get("run", ""))
    if output is None:
        raise HTTPException(404, "This run was not started from here: its output is in the terminal "
                            "that started it.")
    return fragment(request, "runs/output.html", output=output)


# what was gained and lost

def run_ledgers(folder: Path, root: Path) -> list[JsonDict]:
    """The run's own, then its pipeline's, each with a table for every model against the first; one that
    cannot be read is a sentence."""
    above = [("the pipeline", folder.parent)] if folder.parent.resolve() != root.resolve() else []
    found = []
    for what, place in [("this run", folder), *above]:
        try:
            book = ledger.read_ledger(place)
            if book and len(book["entries"]) > 1:
                found.append({"of": what, "fault": "", "problems": book["problems"],
                              "samples": book["samples"], "tables": ledger_tables(book)})
        except (ValueError, OSError) as error:
            found.append({"of": what, "fault": samples.safe_text(str(error)), "tables": []})
    return found


def ledger_tables(book: JsonDict) -> list[JsonDict]:
    """Newest first."""
    first, *others = book["entries"]
    return [{"first": samples.safe_text(first["name"]), "name": samples.safe_text(entry["name"]),
             "says": [samples.safe_text(text) for text in ledger.sentences(lines)],
             "rows": [{key or "verdict": samples.safe_text(text) for key,
                       text in ledger.table_row(line).items()}
                      for line in lines]}
            for entry in others[::-1][:MOST] for lines in [ledger.compare_entries(first, entry)]]


routes = [
    *notes.routes, *search.routes, *talk.routes,
    Route("/runs", runs_index, name="runs"),
    Route("/runs/compare", compare_page, name="compare"),
    Route("/runs/-/list", part_list),
    Route("/runs/-/head", part_head),
    Route("/runs/-/doctor", part_doctor),
    Route("/runs/-/curves", part_curves),
    Route("/runs/-/csv", csv_file),
    Route("/runs/-/samples", part_samples),
    Route("/runs/-/worked", part_worked),
    Route("/runs/-/output", part_output),
    Route("/runs/-/pairs", part_pairs),
    Route("/runs/-/pipeline", pipelines.part_steps),
    Route("/runs/-/report", pipelines.report_page),
    Route("/runs/-/at/{id:path}", run_page, name="run-at"),
    Route("/runs/{id:run}", run_page, name="run"),
]

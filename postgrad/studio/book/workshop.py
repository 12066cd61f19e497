"""The workshop of the book: a reader predicts, starts a run in the page, and sees it beside recorded ones.

What was started is a run like any other (`launch`), called workshop-VARIANT-N: the runs folder keeps it,
and the page shows the newest of each variant. Its seed is N, so that it is never the recorded run (seed 0)
over again. Where there is none, the page shows what tools/recordings.py recorded; a run that has not been
evaluated yet has no curve.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from postgrad.runs import Run, number
from postgrad.studio.book.experiments import EXPERIMENTS, FIRST, VARIANTS, Experiment, Variant
from postgrad.studio.json_types import JsonDict
from postgrad.studio.pages import form_fields, format_share, fragment, require_own_machine, why_closed
from postgrad.studio.recordings import recording
from postgrad.studio.runs import launch, live, processes
from postgrad.studio.runs import progress as pace
from postgrad.studio.runs.samples import as_list, safe_text
from postgrad.studio.runs.shared import traces_of
from postgrad.studio.runs.traces import NoSuchRun, run_address

STEM = "workshop"
LAST = 5  # steps whose mean stands for the end of a noisy curve
WAYS = ("policy", "reward")  # the colours of an experiment's own runs


def followed_run(run: Run) -> JsonDict:
    """What the workshop shows of a run: its evaluations, its rewards, and its replies to a few problems."""
    evals, _ = run.rows("evals")
    rows, _ = run.rows("metrics")
    steps = [[e["step"], e["pass@1"], *e["pass@1_interval"], e["mean_length"]]
             for e in evals if len(as_list(e.get("pass@1_interval"))) == 2]
    problems = len(as_list(evals[0].get("answers"))) if evals else 0
    return {"evals": [[row[0], *(round(number(x), 4) for x in row[1:])] for row in steps],
            "rewards": [round(number(r.get("reward")), 4) for r in rows],
            "seconds": round(sum(number(r.get("time/step")) for r in rows), 1),
            "answers": [replies_through(evals, k) for k in range(problems)]}


def replies_through(evals: list[JsonDict], k: int) -> JsonDict:
    """The k-th held-out problem, and what was replied at each evaluation."""
    asked = [(e["step"], e["answers"][k]) for e in evals if len(as_list(e.get("answers"))) > k]
    first = asked[0][1]
    return {"prompt": safe_text(first["prompt"]), "gold": safe_text(first["gold"]),
            "replies": [{"step": step, "text": safe_text(one["replies"][0]["text"]),
                         "right": number(one["replies"][0]["score"]) >= 1} for step, one in asked]}


# what a page shows

def own_run(root: Path, variant: Variant) -> str | None:
    """The newest run of a variant that was started here, one that has no folder yet included."""
    names = [path.name for path in root.glob(f"{STEM}-{variant.name}-*") if (path / "run.json").is_file()]
    names += processes.without_run_folder(root, set(names))
    stem = f"{STEM}-{variant.name}-"
    found = {int(name.removeprefix(stem)): name for name in names
             if name.startswith(stem) and name.removeprefix(stem).isdecimal()}
    return found[max(found)] if found else None


def variant_line(request: Request, variant: Variant) -> JsonDict:
    """A run as it is drawn: the reader's own where there is one with an evaluation, else the recorded."""
    root, name = request.app.state.runs, own_run(request.app.state.runs, variant)
    shown: JsonDict = {"variant": variant, "name": name, "address": run_address(name) if name else "",
             "state": "recorded", "seed": 0,
             "progress": "", "error": "", "mine": False, "predicted": None}
    if name is None:
        return {**shown, **recording("workshop")["runs"][variant.name]}
    note = processes.process_note(root, name)
    shown |= {"predicted": number(note.get("predicted")), "mine": True, "seed": note.get("seed"),
              "evals": [], "rewards": [], "answers": []}
    try:
        trace = traces_of(request).get(name)
    except NoSuchRun:
        return shown | {"state": "starting" if processes.process_alive(root, name) else "did not start"}
    status = pace.current_state(root, name, trace.run.state())
    return shown | {"state": safe_text(status.get("state")), "error": safe_text(status.get("error") or ""),
                    "progress": pace.progress_text(trace, status.get("state")), **followed_run(trace.run)}


def line_facts(line: JsonDict) -> JsonDict:
    """The numbers of a line in a table: how many right before and after, what was paid, how long replies
    are."""
    evals, rewards = line["evals"], line["rewards"]
    first, last = (evals[0], evals[-1]) if evals else (None, None)
    return line | {
        "before": format_share(first[1]) if first else "", "after": format_share(last[1]) if last else "",
        "within": f"{format_share(last[2])} to {format_share(last[3])}" if last else "", "step": last[0]
        if last else 0,
        "paid": f"{sum(rewards[-LAST:]) / len(rewards[-LAST:]):.2f}" if rewards else "",
        "length": f"{last[4]:.0f}" if last else ""}


def prediction_text(line: JsonDict) -> str:
    """What is to be said of a prediction once its run is done."""
    said, evals = line["predicted"], line["evals"]
    if line["state"] != "done" or said is None or not evals or said != said:
        return ""
    _, found, low, high, _ = evals[-1]
    gap = abs(100 * found - said)
    near = 100 * low <= said <= 100 * high
    verdict = ("which so few problems cannot tell from it" if near else
               f"{gap:.0f} points too {'high' if said > 100 * found else 'low'}")
    return f"You said {said:.0f} %; it came to {format_share(found)}: {verdict}."


def experiment_panel(request: Request, experiment: Experiment, error: str = "") -> JsonDict:
    """All that the figure of an experiment needs."""
    lines = [line_facts(variant_line(request, variant)) for variant in experiment.variants]
    first = line_facts(variant_line(request, FIRST)) if FIRST not in experiment.variants else None
    drawn = [(first, "ghost"), *zip(lines, WAYS, strict=False)] if first else list(
        zip(lines, WAYS, strict=False))
    busy = [line for line in lines if line["state"] in ("starting", "running", "resuming")]
    steps = max(row[0] for line, _ in drawn for row in line["evals"] or [[1]])
    return {"experiment": experiment, "lines": lines, "first": first, "drawn": drawn, "busy": busy,
            "own": any(line["name"] for line in lines),
            "steps": max(steps, 30), "verdicts": list(filter(None, map(prediction_text, lines))),
            "error": error,
            "labels": spread_labels([line["evals"][-1][1] if line["evals"] else 0.0 for line, _ in drawn]),
            "signature": live.runs_signature(request.app.state.runs) if busy else "",
            "closed": why_closed(request, launch.RUNS_CODE),
            "figure": request.query_params.get("figure", "")[:8]}


def spread_labels(ends: list[float], least: float = 0.075) -> list[float]:
    """Where labels stand so that none covers another: as near their ends as can be, in the same order."""
    placed: dict[int, float] = {}
    below = -1.0
    for k in sorted(range(len(ends)), key=ends.__getitem__):
        below = placed[k] = max(ends[k], below + least)
    over = max(0.0, below - 1.0)
    return [placed[k] - over for k in range(len(ends))]


def experiment_of(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise HTTPException(404, f"The workshop has no experiment {name[:40]!r}; it has "
                            f"{', '.join(EXPERIMENTS)}.")
    return EXPERIMENTS[name]


def experiment_fragment(request: Request) -> Response:
    return fragment(request, "book/workshop.html",
                    **experiment_panel(request, experiment_of(request.path_params["experiment"])))


# starting

async def start_variant(request: Request) -> Response:
    require_own_machine(request, launch.RUNS_CODE)
    found, given = experiment_of(request.path_params["experiment"]), await form_fields(request)
    error = await run_in_threadpool(begin_variant, request.app.state.runs, found, given)
    return fragment(request, "book/workshop.html", **experiment_panel(request, found, error))


def begin_variant(root: Path, experiment: Experiment, given: Mapping[str, str]) -> str:
    """Starts the chosen run with what was predicted; -> what is wrong, or ""."""
    variant = VARIANTS.get(given.get("variant", ""))
    if variant not in experiment.variants:
        raise ValueError(f"{experiment.title} has no run {given.get('variant', '')!r:.40}.")
    predicted = number(given.get("predicted") or "nan")
    if not 0 <= predicted <= 100:
        return "Predict first: a share from 0 to 100 %."
    name = launch.free_name(root, f"{STEM}-{variant.name}")
    seed = name.rpartition("-")[2]
    settings = {**variant.settings, "seed": seed}
    asked = {"recipe": variant.recipe, "name": name, **{f"set.{k}": v for k, v in settings.items()}}
    return launch.start_planned(root, asked, predicted=predicted, seed=int(seed))["error"] or ""


routes = [
    Route("/book/-/workshop/{experiment}", experiment_fragment),
    Route("/book/-/workshop/{experiment}", start_variant, methods=["POST"]),
]

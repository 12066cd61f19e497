"""Starting, stopping and going on with runs from a page.

The page has the command that does the same in a terminal.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from postgrad.runs import Run
from postgrad.studio.json_types import JsonDict
from postgrad.studio.pages import form_fields, fragment, full_page, require_own_machine, why_closed
from postgrad.studio.runs import processes
from postgrad.studio.runs.shared import redirect_to
from postgrad.studio.runs.traces import existing_run_folder, find_runs, run_address, run_folder, run_id_parts
from postgrad.system.user_code import without_user_code

RUNS_CODE = "A run can be given a task of one's own, which is code"


def free_name(root: Path, spec: str) -> str:
    """grpo-words-1, or the next number that is free."""
    stem = spec.replace(":", "-")
    return next(name for n in range(1, 100_000) if not (root / (name := f"{stem}-{n}")).exists()
                and not processes.output_file(root, name).exists())


def shell_path(folder: Path) -> str:
    """A folder as it is typed in the terminal the studio was started from."""
    return os.path.relpath(folder) if folder.resolve().is_relative_to(Path.cwd()) else str(folder)


def settings_in(given: Mapping[str, str]) -> dict[str, str]:
    """The settings among the fields of a form: set.optim.lr=1e-4 -> {"optim.lr": "1e-4"}"""
    return {key.removeprefix("set."): value for key, value in given.items() if key.startswith("set.")}


def plan_run(root: Path, given: Mapping[str, str]) -> JsonDict:
    """What a form asks for; what is wrong with the name is told like what is wrong with a value."""
    from postgrad.studio.runs import forms
    spec = forms.chosen_spec(given)
    stem = Path(spec).name.replace(".py", "")  # of a pipeline in a file: overoptimise:quick
    name = given.get("name") or free_name(root,
                                          stem if stem.replace(":", "").replace("_", "").isalnum() else "run")
    try:
        folder = run_folder(root, name)
        error = (f"{name} is taken: give the run another name."
                 if folder.exists() or processes.process_alive(root, name) else None)
        if "/" in name:
            error = f"{name!r} cannot name a run that is started here: leave the '/' out."
    except ValueError as fault:
        folder, error = root / "NAME", str(fault)
    plan = forms.plan_command(spec, settings_in(given), shell_path(folder))
    typed = {"name": name} if given.get("name") else {}
    query = urlencode({"recipe": spec, **typed, **{f"set.{k}": v for k, v in plan["changes"].items()}})
    return plan | {"spec": spec, "name": name, "error": error or plan["error"], "query": query,
                   "faults": {"name": error} if error else
                   {f"set.{key}": text for key, text in plan["faults"].items()}}


def new_run_page(request: Request) -> Response:
    """The form. The address holds all that was typed."""
    from postgrad.data.tasks import SOURCED, TASKS
    from postgrad.resolve.models import EMBEDDED
    from postgrad.studio.runs import forms
    root, given = request.app.state.runs, dict(request.query_params)
    known = {row["name"] for row in forms.recipe_menu()}
    if any(row["own"] and row["name"] == forms.chosen_spec(given) for row in forms.recipe_menu()):
        given = {"set.task": forms.OWN} | given  # as the form has it
    with without_user_code(forms.LABS.glob("*.py")):
        plan = plan_run(root, given)
        spec = plan["spec"] if plan["spec"].partition(":")[0] in known else forms.FIRST
        try:
            sections = forms.form_sections(spec, settings_in(given))
        except ValueError:
            sections = forms.form_sections(spec := forms.FIRST, settings_in(given))
    models = [*EMBEDDED, *(shell_path(root / name) for name in find_runs(root))]
    tasks = [*TASKS, *(f"{name}:" for name in SOURCED)]  # of the second kind the source is still to be said
    method, _, setting = spec.partition(":")
    menu = forms.recipe_menu()
    families: dict[str, list[str]] = {}
    for row in menu:
        families.setdefault(row["family"], []).append(row["name"])
    main, folded = forms.split_sections(spec, sections)
    return full_page(request, "runs/new.html", families=families, method=method, setting=setting,
                     row=next(row for row in menu if row["name"] == method), labs=forms.lab_files(),
                     spec=spec, main=main, folded=folded, plan=plan, tasks=tasks, models=models[:200],
                     own=forms.OWN_TASK, closed=why_closed(request, RUNS_CODE))


def plan_fragment(request: Request) -> Response:
    """The command line of a form as it stands, or the sentence about what is wrong with it."""
    from postgrad.studio.runs import forms
    with without_user_code(forms.LABS.glob("*.py")):
        made = plan_run(request.app.state.runs, request.query_params)
    return fragment(request, "runs/plan.html", plan=made)


async def start_request(request: Request) -> Response:
    require_own_machine(request, RUNS_CODE)
    given, root = await form_fields(request), request.app.state.runs
    return await run_in_threadpool(start_response, request, root, given)


def start_response(request: Request, root: Path, given: Mapping[str, str]) -> Response:
    made = start_planned(root, given)
    if made["error"]:
        return fragment(request, "runs/plan.html", plan=made, status=400)
    return redirect_to(run_address(made["name"]))


def start_planned(root: Path, given: Mapping[str, str], **note: object) -> JsonDict:
    """The plan of a form, and its run started unless something is wrong with it. note: kept with the
    process."""
    made = plan_run(root, given)
    if not made["error"]:
        processes.start_process(root, made["name"], made["words"], fresh=True, note=note)
    return made


async def stop_request(request: Request) -> Response:
    """SIGTERM: the run saves and leaves within a step."""
    name, root = (await form_fields(request)).get("run", ""), request.app.state.runs
    folder = run_folder(root, name)
    if (folder / "run.json").is_file():
        pid = await run_in_threadpool(Run.open(folder).stop)
    else:
        pid = processes.end_process(root, name)
    return fragment(request, "runs/message.html",
                    sentence=f"Process {pid} was asked to save and leave; it does so within a step.")


async def resume_request(request: Request) -> Response:
    require_own_machine(request, RUNS_CODE)
    name, root = (await form_fields(request)).get("run", ""), request.app.state.runs
    await run_in_threadpool(resume_in_process, root, name)
    return redirect_to(run_address(name))


def resume_in_process(root: Path, name: str) -> None:
    """Goes on with a run; a stage of a pipeline goes on with its pipeline."""
    from postgrad.recipes.launch import saved_pipeline
    folder = existing_run_folder(root, name)
    run = Run.open(folder)
    if run.alive():
        raise ValueError(f"{name} is being trained: there is nothing to resume.")
    if run.state()["state"] == "done":
        raise ValueError(f"{name} is done: there is nothing left to do.")
    up = "/".join(run_id_parts(name)[:-1])
    target = up if up and saved_pipeline(folder.parent) else name
    # the last one may be leaving
    processes.start_process(root, target, ["resume", shell_path(root / target)], fresh=False, patience=20.0)


async def forget_request(request: Request) -> Response:
    """Clears away what a process said that left no run."""
    name, root = (await form_fields(request)).get("run", ""), request.app.state.runs
    if (run_folder(root, name) / "run.json").exists():
        raise ValueError(f"{name} is a run: it stays. Remove its folder where you want it gone.")
    processes.forget_process(root, name)
    return redirect_to("/runs")


routes = [
    Route("/runs/new", new_run_page, name="new"),
    Route("/runs/-/plan", plan_fragment),
    Route("/runs/-/start", start_request, methods=["POST"]),
    Route("/runs/-/stop", stop_request, methods=["POST"]),
    Route("/runs/-/resume", resume_request, methods=["POST"]),
    Route("/runs/-/forget", forget_request, methods=["POST"]),
]

"""Runs side by side: their curves, what differs in their configs, and their samples on one prompt."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from postgrad.studio.json_types import JsonDict
from postgrad.studio.pages import fragment, full_page
from postgrad.studio.runs import curves, samples
from postgrad.studio.runs.listing import run_list
from postgrad.studio.runs.shared import chart_data, flat_config, log_cursor, query_number, trace_of
from postgrad.studio.runs.traces import Trace, optional_text, run_address

MOST = 6  # runs side by side


def compare_page(request: Request) -> Response:
    names = list(dict.fromkeys(n for text in request.query_params.getlist("ids") for n in text.split(",")
                               if n))
    if len(names) > MOST:
        raise ValueError(f"{len(names)} runs can't be shown side by side: choose at most {MOST}.")
    found = {name: trace_of(request, name) for name in names}
    if len(found) < 2:
        return full_page(request, "runs/choose.html", **run_list(request), chosen=names)
    cursors = {name: log_cursor(trace) for name, trace in found.items()}
    first, more = curves.chosen_metrics(list(found.values()))
    summaries = [trace.summary(name) | {"address": run_address(name), "number": i}
                 for i, (name, trace) in enumerate(found.items())]
    return full_page(request, "runs/compare.html", runs=summaries, ids=",".join(names),
                     differ=differing_settings(found),
                     first=[curves.metric_description(n) for n in first],
                     more=[curves.metric_description(n) for n in more],
                     data=chart_data(request, found, first, more, cursors), **paired_samples(request, found))


def differing_settings(found: dict[str, Trace]) -> list[tuple[str, list[str]]]:
    """The config keys whose values are not the same in all runs, the recipe and method among them."""
    configs = [{"recipe": optional_text(trace.run.info.get("recipe")) or "", **flat_config(trace.run.config),
                **row_constants(trace)}
               for trace in found.values()]
    keys = list(dict.fromkeys(key for config in configs for key in config))
    rows = [(key, [config.get(key, "–") for config in configs]) for key in keys]
    return [(key, values) for key, values in rows if any(v != values[0] for v in values)]


def row_constants(trace: Trace) -> dict[str, str]:
    """The constants of the row that a run was made with: {"method.high": "0.3", ...}"""
    row = trace.run.info.get("row")
    kept = row.get("constants") if isinstance(row, dict) else None
    return flat_config(kept, "method.") if isinstance(kept, dict) else {}


def paired_samples(request: Request, found: dict[str, Trace]) -> JsonDict:
    """Samples of all runs on one prompt: the pair-th, from 1,
    of those prompts that every run has samples of."""
    shared = shared_prompts({name: trace.prompts.refresh() for name, trace in found.items()})
    cut = {name: trace.prompts.cut for name, trace in found.items()}
    if not shared:
        return {"pairs": None}
    at = min(query_number(request, "pair", 1, least=1), len(shared)) - 1
    prompt, steps = shared[at]
    columns = []
    for (name, trace), step in zip(found.items(), steps, strict=True):
        rows, _, _ = trace.run.at("samples", step)
        group = next((g for g in samples.prompt_groups(rows) if g["prompt"] == prompt), None)
        columns.append({"id": name, "step": step, "group": group})
    return {"pairs": {"at": at, "count": len(shared), "prompt": prompt, "columns": columns,
                      "ids": ",".join(found),
                      "cut": {name: step for name, step in cut.items() if step is not None}}}


def shared_prompts(prompts: dict[str, dict[str, list[int]]]) -> list[tuple[str, list[int]]]:
    """The prompts that every run has, by step; for each the steps of the runs that lie
    nearest to the first run's.

    shared_prompts({"a": {"2+2": [1, 9]}, "b": {"2+2": [8]}}) -> [("2+2", [1, 8]), ("2+2", [9, 8])]
    """
    first, *others = prompts.values()
    found = []
    for prompt, steps in first.items():
        if all(other.get(prompt) for other in others):
            found += [(prompt, [step, *(min(o[prompt], key=lambda s: (abs(s - step), s)) for o in others)])
                      for step in steps]
    return sorted(found, key=lambda row: (row[1][0], row[0]))


def part_pairs(request: Request) -> Response:
    names = [n for n in request.query_params.get("ids", "").split(",") if n][:MOST]
    return fragment(request, "runs/pairs.html",
                    **paired_samples(request, {name: trace_of(request, name) for name in names}))

"""Runs side by side: their curves, what differs in their configs, and their samples on one prompt."""

from __future__ import annotations

import os

from starlette.requests import Request
from starlette.responses import Response

from postgrad.studio.json_types import JsonDict
from postgrad.studio.pages import fragment, full_page
from postgrad.studio.runs import curves, samples
from postgrad.studio.runs.listing import run_list
from postgrad.studio.runs.shared import (
    chart_data,
    flat_config,
    is_export,
    json_block,
    log_cursor,
    query_number,
    trace_of,
)
from postgrad.studio.runs.traces import Trace, optional_text, run_address, run_facts

MOST = 6         # runs, or groups of seeds, side by side
MOST_SEEDS = 60  # runs in them


def compare_page(request: Request) -> Response:
    names = list(dict.fromkeys(n for text in request.query_params.getlist("ids") for n in text.split(",")
                               if n))
    together = "seeds" in request.query_params
    if len(names) > (MOST_SEEDS if together else MOST):
        raise ValueError(f"{len(names)} runs can't be shown side by side: choose at most "
                         f"{MOST_SEEDS if together else MOST}.")
    found = {name: trace_of(request, name) for name in names}
    if len(found) < 2:
        return full_page(request, "runs/choose.html", **run_list(request), chosen=names)
    groups = seed_groups(found) if together else {name: {name: trace} for name, trace in found.items()}
    if len(groups) > MOST:
        raise ValueError(f"these runs differ in more than their seeds: they are {len(groups)} groups, and at "
                         f"most {MOST} can be shown side by side.")
    firsts = {next(iter(group)): next(iter(group.values())) for group in groups.values()}
    first, more = curves.chosen_metrics([*found.values()])
    summaries = [trace.summary(name) | {"address": run_address(name), "number": i, "label": label,
                                        "seeds": [(run, run_address(run), one.run.config.get("seed"))
                                                  for run, one in group.items()]}
                 for i, ((label, group), (name, trace)) in enumerate(zip(groups.items(), firsts.items(),
                                                                         strict=True))]
    cursors = {name: log_cursor(trace) for name, trace in found.items()}
    drawn, later = ([*first, *more], []) if is_export(request) else (first, more)
    data = (json_block({"charts": curves.seed_curves(groups, drawn, later), "seeds": [*found], "runs": {},
                        "axes": {}}) if together else chart_data(request, found, first, more, cursors))
    return full_page(request, "runs/compare.html", runs=summaries, ids=",".join(firsts), together=together,
                     whole=",".join(names), twins=len(seed_groups(found)) < len(found),
                     differ=differing_settings(firsts), data=data, csv_runs=names,
                     first=[curves.metric_description(n) for n in first],
                     more=[curves.metric_description(n) for n in more], **paired_samples(request, firsts))


def seed_groups(found: dict[str, Trace]) -> dict[str, dict[str, Trace]]:
    """Runs that differ in their seed alone, by the beginning that their names share."""
    twins: dict[str, dict[str, Trace]] = {}
    for name, trace in found.items():
        twins.setdefault(run_facts(name, trace.run)["twin"], {})[name] = trace
    named: dict[str, dict[str, Trace]] = {}
    for group in twins.values():
        stem = os.path.commonprefix([*group]).rstrip("-_./")
        named[stem if stem and stem not in named else next(iter(group))] = group
    return named


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
    looked = {name: trace.samples.by_prompt() for name, trace in found.items()}
    shared = shared_prompts({name: steps for name, (steps, _) in looked.items()})
    if not shared:
        return {"pairs": None}
    at = min(query_number(request, "pair", 1, least=1), len(shared)) - 1
    first, prompt = shared[at]
    columns = []
    for name, trace in found.items():
        step = min(looked[name][0][prompt], key=lambda s: (abs(s - first), s))  # the nearest
        rows, _, _ = trace.run.at("samples", step)
        group = next((g for g in samples.prompt_groups(rows) if g["prompt"] == prompt), None)
        columns.append({"id": name, "step": step, "group": group})
    return {"pairs": {"at": at, "count": len(shared), "prompt": prompt, "columns": columns,
                      "ids": ",".join(found),
                      "cut": {name: step for name, (_, step) in looked.items() if step is not None}}}


def shared_prompts(prompts: dict[str, dict[str, list[int]]]) -> list[tuple[int, str]]:
    """The prompts that every run has, by the steps at which the first run has them.

    shared_prompts({"a": {"2+2": [1, 9]}, "b": {"2+2": [8]}}) -> [(1, "2+2"), (9, "2+2")]
    """
    first, *others = prompts.values()
    return sorted((step, prompt) for prompt, steps in first.items()
                  if all(other.get(prompt) for other in others) for step in steps)


def part_pairs(request: Request) -> Response:
    names = [n for n in request.query_params.get("ids", "").split(",") if n][:MOST]
    return fragment(request, "runs/pairs.html",
                    **paired_samples(request, {name: trace_of(request, name) for name in names}))

"""The lineage of a model, as models that can be opened: base -> SFT -> RL."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from postgrad.resolve.models import open_folder, run_named, runs_in_folder, start_model
from postgrad.runs import Run

SCORERS = ("reward", "process")  # recipes whose models score text and write none


class ModelStage(NamedTuple):
    """A model by the name that opens it, and what made it: the method of its run, or "base"."""

    made_by: str
    name: str


def lineage(name: str) -> list[ModelStage]:
    """From the base model to this one: lineage("runs/demo/rl") -> base, sft, grpo."""
    found = run_named(name)
    if not found:
        return [ModelStage("base", name)]
    place, step = found
    before = start_model(place)
    way = lineage(before) if before else []
    run = Run.open(place)
    return way if step == "0" else [*way, ModelStage(run.info.get("method") or run.started()[0], name)]


def why_silent(name: str) -> str:
    """Why a run cannot be talked to; "" where it can."""
    run = Run.open(name)
    if run.started()[0] in SCORERS:
        return "scores text and writes none"
    return "" if run.checkpoints() else "has no checkpoint yet"


def model_stages(name: str) -> tuple[list[ModelStage], list[str]]:
    """The lineage of a model, or of all runs in a folder, each model once; and which runs were skipped, and
    why."""
    inside = runs_in_folder(name)
    found: dict[Path, ModelStage] = {}
    passed = {place: why for place in inside if (why := why_silent(place))}
    for place in [p for p in inside if p not in passed] if inside else [name]:
        for stage in lineage(place):
            found.setdefault(open_folder(stage.name).resolve(), stage)
    said = [f"{place} {why}" for place, why in passed.items()]
    if not found:
        raise ValueError(f"{name} holds no run to talk to: {', '.join(said)}.")
    return list(found.values()), said

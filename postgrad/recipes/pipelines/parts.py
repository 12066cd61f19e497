"""A model on each part of a mixture by itself, so that every figure has an interval of its own: what it
solves, and what its replies do while they think."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from postgrad.evaluation.progress import Progress
from postgrad.recipes.pipelines.stages import evaluate_named_model
from postgrad.resolve.tasks import open_task

SHOWN = ("pass@1", "pass@1_interval", "format", "mean_length", "turn_back", "restart", "recheck", "worded",
         "wrong_language")


class MixtureEvaluation(Protocol):
    """What the config of a pipeline says of it."""

    task: str
    problems: int
    samples: int
    seed: int
    device: str


def mixture_parts(task: str) -> tuple[str, ...]:
    """words+countdown -> words, countdown; a task that is no mixture is its own only part."""
    return tuple(open_task(task).meta.get("parts", (task,)))


def figures_by_part(config: MixtureEvaluation, model: str, track: Progress) -> dict[str, dict]:
    """The figures of `evaluate_named_model` by part, as many problems of each."""
    return {part: evaluate_named_model(part, model, track, problems=config.problems, samples=config.samples,
                                       seed=config.seed, device=config.device)
            for part in mixture_parts(config.task)}


def part_rows(found: Mapping[str, dict], more: tuple[str, ...] = ()) -> list[dict]:
    """A row a part: whatever of SHOWN, and of more, was measured of it."""
    return [{"task": part, **{key: said[key] for key in (*SHOWN, *more) if key in said}}
            for part, said in found.items()]


def solved(found: Mapping[str, dict]) -> dict:
    """pass@1 of every part on one line, and the share of all replies that are in form."""
    line = {name: value for part, said in found.items()
            for name, value in ((part, said["pass@1"]), (f"{part}_interval", said["pass@1_interval"]))}
    formed = [said["format"] for said in found.values() if "format" in said]
    return line | ({"format": sum(formed) / len(formed)} if formed else {})

"""values() of each chapter: every number that its text may name, computed by the library.

A value is a number, a text, a truth, or a table {"caption", "columns", "rows"}. What a run has measured comes
from docs/results of the repository that the book is built in.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from postgrad.studio.book.computed import (
    agents,
    algorithms,
    by_hand,
    charts,
    frontiers,
    measuring,
    reasoning,
    rewards,
    systems,
    teacher,
    threads,
    why,
    workshop,
)
from postgrad.studio.json_types import JsonDict

CHAPTERS: dict[str, Callable[[Path], JsonDict]] = {
    "why": why.values,
    "rewards": rewards.values,
    "algorithms": algorithms.values,
    "reasoning": reasoning.values,
    "workshop": workshop.values,
    "frontiers": frontiers.values,
    "teacher": teacher.values,
    "systems": systems.values,
    "agents": agents.values,
    "measuring": measuring.values,
}


def ten_digits(value: object) -> object:
    """A float to ten digits: further ones depend on the processor."""
    return float(f"{value:.10g}") if isinstance(value, float) else value


def compute_values(repository: Path) -> dict[str, JsonDict]:
    """name of a chapter -> its values, those of the five threads among them; the first page may name those of
    every chapter."""
    shared = threads.values()
    made = {
        name: {key: ten_digits(value) for key, value in
               {**shared, **values(repository), **charts.values(name, repository),
                **by_hand.values(name)}.items()}
        for name, values in CHAPTERS.items()
    }
    return {
        "landing": {
            key: value
            for values in made.values()
            for key, value in values.items()
            if not isinstance(value, dict)
        },
        **made,
    }

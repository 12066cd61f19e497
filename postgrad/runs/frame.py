"""The figures of a run as a table, a row a step: what `Run.frame`, `postgrad runs --csv` and trackers have.

A row has the figures of metrics.jsonl by their names, and those of evals.jsonl as eval/NAME; an interval
eval/NAME_interval is two figures, eval/NAME_low and eval/NAME_high. Texts and lists are left out.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Mapping, Sequence

from postgrad.runs.rows import JsonDict, number

NON_FINITE = ("nan", "inf", "-inf")
INTERVAL = "_interval"


def row_figures(row: Mapping[str, object], prefix: str = "") -> dict[str, float]:
    """{"step": 2, "loss": "nan", "pass@1_interval": [0.1, 0.3], "answers": []} -> {"loss": nan,
    "pass@1_low": 0.1, "pass@1_high": 0.3}"""
    out = {}
    for name, value in row.items():
        if name.endswith(INTERVAL) and isinstance(value, list) and len(value) == 2:
            for end, bound in zip(("low", "high"), value, strict=True):
                out[f"{prefix}{name.removesuffix(INTERVAL)}_{end}"] = number(bound)
        elif name != "step" and (isinstance(value, int | float) or value in NON_FINITE):
            out[f"{prefix}{name}"] = number(value)
    return out


def merge_steps(metrics: Iterable[JsonDict], evals: Iterable[JsonDict]) -> dict[int, dict[str, float]]:
    """step -> its figures, in the order of the steps."""
    steps: dict[int, dict[str, float]] = {}
    for rows, prefix in ((metrics, ""), (evals, "eval/")):
        for row in rows:
            steps.setdefault(row["step"], {}).update(row_figures(row, prefix))
    return dict(sorted(steps.items()))


def as_columns(steps: Mapping[int, Mapping[str, float]]) -> dict[str, list[float]]:
    """{"step": [1, 2], "loss": [0.5, nan]}: a column a figure, nan where a step has none."""
    names = dict.fromkeys(name for figures in steps.values() for name in figures)
    return {"step": list(steps),
            **{name: [figures.get(name, math.nan) for figures in steps.values()] for name in names}}


def csv_of(rows: Sequence[Mapping[str, object]]) -> str:
    """Rows as CSV, with a column for every name; a cell is empty where a row has none."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()

"""What commands print: one JSON document for programs, tables for people."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TextIO


def print_json(value: object, file: TextIO | None = None) -> None:
    """One strict JSON document on one line; non-finite numbers as "nan", "inf", "-inf"."""
    from postgrad.runs import json_value
    print(json.dumps(json_value(value), allow_nan=False), file=file or sys.stdout, flush=True)


def print_table(rows: Sequence[Mapping[str, object]], title: str = "",
                columns: Sequence[str] | None = None, whole: Sequence[str] = ()) -> None:
    """The columns of the first row, or those named. whole: columns that a narrow terminal does not cut."""
    from postgrad.runs.display import print_rows
    print_rows(rows, list(rows[0]) if columns is None else columns, title=title, whole=whole)


def progress_tracker(label: str, quiet: bool) -> Callable[[Iterable[Any]], Iterable[Any]]:
    """What goes through items and shows how far it is; quiet: and shows nothing."""
    from postgrad.runs import display
    return iter if quiet else partial(display.progress, label=label)


def format_figure(value: object) -> str:
    """0.1234 -> "0.123", [0.1, 0.2] -> "0.100 to 0.200\""""
    if isinstance(value, list):
        return " to ".join(map(format_figure, value))
    return f"{value:.3f}" if isinstance(value, float) else str(value)


def format_percent(row: Mapping[str, Any], name: str) -> str:
    """0.234 with its interval -> 23.4% (20.1 to 27.0)"""
    low, high = row[f"{name}_interval"]
    return f"{row[name]:.1%} ({100 * low:.1f} to {100 * high:.1f})"

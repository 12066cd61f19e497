"""What commands print: one JSON document for programs, tables for people."""

from __future__ import annotations

import json
import sys

from postgrad.runs import display


def say_json(obj, file=None) -> None:
    """One strict JSON document on one line, for another program:
    not-finite numbers as "nan", "inf", "-inf"."""
    from postgrad.runs import plain as as_json

    print(json.dumps(as_json(obj), allow_nan=False), file=file or sys.stdout, flush=True)


def table(rows: list[dict], title: str = "") -> None:
    """All columns of the first row."""
    display.table(rows, list(rows[0]), title=title)


def shown(x) -> str:
    if isinstance(x, list):
        return " to ".join(shown(v) for v in x)
    return f"{x:.3f}" if isinstance(x, float) else str(x)

"""A job in the Python of a page: its answers as they would come from the server's process, and what it
printed."""

from __future__ import annotations

import io
import json
import time
from contextlib import redirect_stderr, redirect_stdout
from typing import Any

from postgrad.studio.cells.jobs import run_job

OUTPUT = 64 << 10  # characters that a cell may print


class Flood(Exception):
    """It printed too much."""


class Prints(io.StringIO):
    """What is printed, up to a limit."""

    def write(self, text: str) -> int:
        if self.tell() + len(text) > OUTPUT:
            raise Flood(f"stopped: it printed more than {OUTPUT >> 10} kB")
        return super().write(text)


def run_in_page(job: str) -> str:
    """JSON in, JSON out: {"rows": [...], "output": "...", "seconds": 0.1}."""
    rows: list[dict[str, Any]] = []
    prints, began = Prints(), time.perf_counter()
    with redirect_stdout(prints), redirect_stderr(prints):
        run_job(json.loads(job), rows.append)
    return json.dumps({"rows": rows, "output": prints.getvalue(), "seconds": time.perf_counter() - began})

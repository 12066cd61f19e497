"""A job in the Python of a page: its answers as they would come from the server's process, and what it
printed."""

from __future__ import annotations

import importlib
import io
import json
import random
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
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


def import_all(library: str) -> None:
    """Imports every module of the bundle, so that a page need not."""
    for path in sorted(Path(library).rglob("*.py")):
        name = ".".join(path.relative_to(library).with_suffix("").parts).removesuffix(".__init__")
        if name != "numpy":  # says that there is none
            importlib.import_module(name)


def wake() -> None:
    """In the page: what was random when the memory was saved is drawn again."""
    random.seed()

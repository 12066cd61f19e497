"""The workshop of the book: a reader predicts, starts a run in the page, and sees it beside recorded ones.

What was started is a run like any other (`launch`), called workshop-VARIANT-N: the runs folder keeps it, and
the page shows the newest of each variant. Where there is none, it shows what tools/workshop.py recorded.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from postgrad.run import Run, number
from postgrad.studio import launch, live, pace, processes
from postgrad.studio.book.experiments import EXPERIMENTS, FIRST, VARIANTS, Experiment, Variant
from postgrad.studio.pages import form, fragment, share
from postgrad.studio.recordings import recorded
from postgrad.studio.runs_shared import traces
from postgrad.studio.samples import clean, listed
from postgrad.studio.shared import require_own_machine, why_closed
from postgrad.studio.traces import NoRun, address, place

STEM = "workshop"
LAST = 5  # steps whose mean stands for the end of a noisy curve
COLOURS = ("policy", "reward", "critic")


def followed(run: Run) -> dict:
    """What the workshop shows of a run: its examinations, its rewards, and its replies to a few problems."""
    evals, _ = run.rows("evals")
    rows, _ = run.rows("metrics")
    steps = [[e["step"], e["pass@1"], *e["pass@1_interval"], e["mean_length"]]
             for e in evals if len(listed(e.get("pass@1_interval"))) == 2]
    return {"evals": [[row[0], *(round(number(x), 4) for x in row[1:])] for row in steps],
            "rewards": [round(number(r.get("reward")), 4) for r in rows],
            "seconds": round(sum(number(r.get("time/step")) for r in rows), 1),
            "answers": [through(evals, k) for k in range(len(listed(evals[0].get("answers"))) if evals else 0)]}


def through(evals: list[dict], k: int) -> dict:
    """The k-th held-out problem, and what was replied at each examination."""
    asked = [(e["step"], e["answers"][k]) for e in evals if len(listed(e.get("answers"))) > k]
    first = asked[0][1]
    return {"prompt": clean(first["prompt"]), "gold": clean(first["gold"]),
            "replies": [{"step": step, "text": clean(one["replies"][0]["text"]),
                         "right": number(one["replies"][0]["score"]) >= 1} for step, one in asked]}

"""Samples looked for over every logged step: by words, score, steps and prompt, best or worst first; one
prompt followed through the training; the results as a file."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import fmean
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from postgrad.runs import dumps
from postgrad.runs.frame import csv_of
from postgrad.studio.json_types import JsonDict
from postgrad.studio.pages import fragment
from postgrad.studio.runs.shared import as_file, query_number, trace_of
from postgrad.studio.runs.traces import EVERYTHING, Sample, run_address
from postgrad.studio.svg import Plot, spread

PAGE = 20
ORDERS: dict[str, tuple[str, Callable[[Sample], Any]]] = {
    "first": ("by step", lambda s: s.step),
    "last": ("newest first", lambda s: -s.step),
    "best": ("best first", lambda s: -s.score if s.score is not None else math.inf),
    "worst": ("worst first", lambda s: s.score if s.score is not None else math.inf),
}
FINISHED = {"": "finished or cut", "yes": "finished", "no": "cut off"}
FIELDS = ("q", "prompt", "low", "high", "from", "to", "finished", "order")  # of the form


@dataclass(frozen=True, kw_only=True)
class SampleQuery:
    """What is looked for. words: each in the prompt, the text or the reason; prompt: this one alone."""

    words: tuple[str, ...] = ()
    prompt: str = ""
    low: float = -math.inf
    high: float = math.inf
    first: int = 0
    last: int = EVERYTHING
    finished: str = ""

    def fits(self, one: Sample) -> bool:
        if self.prompt and one.prompt != self.prompt or not self.first <= one.step <= self.last:
            return False
        if self.finished and one.finished != (self.finished == "yes"):
            return False
        if (self.low, self.high) != (-math.inf, math.inf) and (
                one.score is None or not self.low <= one.score <= self.high):
            return False
        return not self.words or all(w in f"{one.prompt}\n{one.text}\n{one.reason}".lower()
                                     for w in self.words)


def read_query(request: Request) -> tuple[SampleQuery, str]:
    """The query of a form, and the order."""
    given = request.query_params
    order, finished = given.get("order") or "first", given.get("finished", "")
    if order not in ORDERS or finished not in FINISHED:
        raise ValueError(f"samples are ordered {', '.join(ORDERS)}, and finished is yes, no or empty; this "
                         f"is {order!r:.40} and {finished!r:.40}.")
    return SampleQuery(
        words=tuple(given.get("q", "").lower().split()), prompt=given.get("prompt", ""), finished=finished,
        low=score_bound(given.get("low", ""), -math.inf), high=score_bound(given.get("high", ""), math.inf),
        first=query_number(request, "from", 0), last=query_number(request, "to", EVERYTHING)), order


def score_bound(text: str, otherwise: float) -> float:
    if not text.strip():
        return otherwise
    if not re.fullmatch(r"\s*[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?\s*", text, re.ASCII | re.I):
        raise ValueError(f"{text!r:.40} is no score: expected a number, e.g. 0.5.")
    return float(text)


def found_samples(request: Request) -> list[Sample]:
    """In the order that is asked for; of equal ones the earlier first."""
    query, order = read_query(request)
    every = trace_of(request, request.query_params.get("run", "")).samples.refresh().found
    return sorted(filter(query.fits, every), key=ORDERS[order][1])


def part_search(request: Request) -> Response:
    name, prompt = request.query_params.get("run", ""), request.query_params.get("prompt", "")
    found = found_samples(request)
    pages = max(1, -(-len(found) // PAGE))
    page = min(query_number(request, "page", 1, least=1), pages)
    asked = {key: value for key in FIELDS if (value := request.query_params.get(key))}
    return fragment(request, "runs/found.html", name=name, count=len(found), page=page, pages=pages,
                    rows=[found_row(name, one) for one in found[PAGE * (page - 1):PAGE * page]],
                    query={"run": name, **asked}, address=run_address(name), prompt=prompt,
                    steps=len({one.step for one in found}),
                    course=prompt_course(found) if prompt else None)


def found_row(run: str, one: Sample) -> JsonDict:
    where = urlencode({"step": one.step, "group": one.group, "sample": one.place})
    follow = urlencode({"prompt": one.prompt})
    return one._asdict() | {"address": f"{run_address(run)}?{where}#samples",
                          "follow": f"{run_address(run)}?{follow}#search"}


def prompt_course(found: Iterable[Sample]) -> JsonDict | None:
    """How the mean score of a prompt's samples went over the steps at which it was sampled."""
    steps: dict[int, list[float]] = {}
    for one in found:
        if one.score is not None:
            steps.setdefault(one.step, []).append(one.score)
    points = [(float(step), fmean(scores)) for step, scores in sorted(steps.items())]
    if not points:
        return None
    ends = (points[0][0], max(points[-1][0], points[0][0] + 1))
    return {"points": points, "plot": Plot(ends, spread([y for _, y in points], zero=True), width=680,
                                           height=190, top=14, right=20)}


def search_file(request: Request) -> Response:
    """All that was found, as JSON lines or CSV."""
    name, kind = request.query_params.get("run", ""), request.query_params.get("format", "jsonl")
    if kind not in ("jsonl", "csv"):
        raise ValueError(f"samples are saved as jsonl or csv, not as {kind!r:.40}.")
    rows = [{key: value for key, value in one._asdict().items() if key not in ("group", "place")}
            for one in found_samples(request)]
    text = csv_of(rows) if kind == "csv" else "".join(f"{dumps(row)}\n" for row in rows)
    return as_file(text, "text/csv" if kind == "csv" else "application/jsonl", f"{name}-samples.{kind}")


routes = [Route("/runs/-/search", part_search), Route("/runs/-/found", search_file)]

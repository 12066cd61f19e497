"""What is new in the runs that a page shows, as Server-Sent Events: one stream a tab, whatever it shows.

    GET /runs/-/live?watch=demo/rl:512:88:0&list=1

A cursor is the bytes of metrics, evals and events that the page has already; every event's id holds the
cursors of all, so a browser that lost its connection goes on where it was. History is never sent again. Files
are looked at twice a second.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from postgrad.runs import dumps, number
from postgrad.runs.disk import is_held
from postgrad.studio.json_types import JsonDict
from postgrad.studio.runs import progress as pace
from postgrad.studio.runs.health import Clinic
from postgrad.studio.runs.progress import current_state
from postgrad.studio.runs.samples import safe_text
from postgrad.studio.runs.shared import clinic_of, traces_of
from postgrad.studio.runs.traces import (
    LogTail,
    Stamp,
    Trace,
    existing_run_folder,
    folder_stamp,
    run_stamps,
)

LOGS = ("metrics", "evals", "events")
PIPELINE = ("pipeline.json", "state.json", "summary.json")
EVERY = 0.5         # seconds between two looks
MOST = 2000         # rows in one message; a page that lacks more reads its curves anew
WATCHED = 12        # runs on one page


def row_numbers(row: JsonDict) -> JsonDict:
    """A row for the page: its step and numbers. What is not finite becomes null, a gap in the curve."""
    found = {k: number(v) for k, v in row.items() if k != "step" and not isinstance(v, list)}
    lists = {k: [number(x) for x in v] for k, v in row.items() if isinstance(v, list) and len(v) == 2}
    return {"step": row["step"], **{k: v if math.isfinite(v) else None for k, v in found.items()},
            **{k: v for k, v in lists.items() if all(map(math.isfinite, v))}}


def event_view(row: JsonDict) -> JsonDict:
    """An event for the page."""
    return {"step": row.get("step"), "kind": safe_text(row.get("kind", "")),
            "text": safe_text(row.get("text", ""))}


class WatchedRun:
    """One run of a stream: what is new since the last look."""

    def __init__(self, root: Path, name: str, cursor: list[int], trace: Trace | None = None):
        self.trace = trace or Trace(existing_run_folder(root, name))
        self.root, self.run, self.name = root, self.trace.run, name
        self.state: JsonDict | None = None
        self.tails = [LogTail(self.run, log, at) for log, at in zip(LOGS, cursor, strict=True)]

    @property
    def cursor(self) -> list[int]:
        return [tail.at for tail in self.tails]

    def news(self) -> JsonDict | None:
        new = {tail.log: tail.new()[0] for tail in self.tails}
        state = current_state(self.root, self.name, self.run.state())
        now = {"state": state.get("state"), "step": self.trace.refresh().step, "steps": state.get("steps"),
               "error": safe_text(state.get("error") or "")}
        if not any(new.values()) and now == self.state:
            return None
        self.state = now
        rows, before, _ = self.run.at("samples", 2**53)
        said = {"run": self.name, "state": now, "samples": rows[0]["step"] if rows else None}
        if len(new["metrics"]) > MOST:
            return said | {"reload": True}
        return said | {"metrics": [row_numbers(r) for r in new["metrics"] if r["step"] is not None],
                       "evals": [row_numbers(r) for r in new["evals"] if r["step"] is not None],
                       "events": [event_view(r) for r in new["events"]]}


    def progress(self) -> str | None:
        """How far it is and how fast, in words that change with time; None of a run that stands still."""
        running = self.state is not None and self.state["state"] == "running"
        return pace.progress_text(self.trace, "running") if running else None


def runs_signature(root: Path, version: int = 0, stamps: Mapping[str, Stamp] | None = None) -> str:
    """A hash that changes when a run or a pipeline comes, goes, or goes on. version: of the verdicts that a
    list shows beside them. stamps: of the runs, where they were just made."""
    digest, above = hashlib.sha256(b"%d" % version), ""
    for name, stamp in (run_stamps(root) if stamps is None else stamps).items():
        digest.update(f"{name} {stamp}".encode(errors="surrogateescape"))
        if "/" in name and name.rpartition("/")[0] != above:  # the first run of a pipeline
            above = name.rpartition("/")[0]
            digest.update(f"{folder_stamp(f'{root}/{above}', PIPELINE)}".encode())
    output = root / ".output"
    for log in sorted(output.rglob("*.log")):
        digest.update(log.name.encode(errors="surrogateescape") + (b"held" if is_held(log) else b"free"))
    return digest.hexdigest()[:16]


def parse_cursors(watch: list[str]) -> dict[str, list[int]]:
    """["demo/rl:512:88:0"] -> {"demo/rl": [512, 88, 0]}"""
    if len(watch) > WATCHED:
        raise ValueError(f"{len(watch)} runs cannot be watched at once: at most {WATCHED}.")
    found = {}
    for word in watch:
        name, *at = word.split(":")
        if len(at) != len(LOGS) or not all(x.isascii() and x.isdecimal() and len(x) < 16 for x in at):
            raise ValueError(f"{word!r:.80} is not a run and its cursor: write ID:METRICS:EVALS:EVENTS, e.g. "
                             "demo/rl:0:0:0.")
        found[name] = [int(x) for x in at]
    return found


def sse_message(kind: str, data: object, last: str = "") -> bytes:
    """last: where a browser that loses its connection goes on; none: where it was."""
    where = f"id: {last}\n" if last else ""
    return f"event: {kind}\n{where}data: {dumps(data)}\n\n".encode()


async def event_stream(clinic: Clinic, watched: dict[str, WatchedRun],
                       listing: str | None) -> AsyncIterator[bytes]:
    """Events without end; listing: the signature of the list that the page shows,
    or None where it shows none."""
    yield b": the studio's runs, by cursor\n\n"
    quiet, root = 0, clinic.traces.root
    said: dict[str, str | None] = {}
    seen = {name: clinic.known(name) for name in watched}
    while True:
        quiet += 1
        for one in watched.values():
            if (news := await run_in_threadpool(one.news)) is not None:
                last = " ".join(":".join([w.name, *map(str, w.cursor)]) for w in watched.values())
                yield sse_message("rows", news, last)
                quiet = 0
                if (health := await run_in_threadpool(clinic.look, one.name)) is not seen[one.name]:
                    seen[one.name] = health
                    yield sse_message("doctor", {"run": one.name})
            if (words := await run_in_threadpool(one.progress)) not in (None, said.get(one.name)):
                said[one.name] = words
                yield sse_message("progress", {"run": one.name, "words": words})
        if listing is not None and (
                now := await run_in_threadpool(runs_signature, root, clinic.version)) != listing:
            yield sse_message("list", {"signature": now}, "-")
            listing, quiet = now, 0
        if quiet >= 30:  # so that a connection whose other end has gone is noticed
            yield b": still here\n\n"
            quiet = 0
        await asyncio.sleep(EVERY)


def live_events(request: Request) -> Response:
    root, again = request.app.state.runs, request.headers.get("last-event-id", "")
    watch = parse_cursors(request.query_params.getlist("watch"))
    if again and again != "-":
        watch |= {name: at for name, at in parse_cursors(again.split(" ")).items() if name in watch}
    watched = {name: WatchedRun(root, name, at, traces_of(request).get(name)) for name, at in watch.items()}
    return StreamingResponse(event_stream(clinic_of(request), watched, request.query_params.get("list")),
                             media_type="text/event-stream",
                             headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})


routes = [Route("/runs/-/live", live_events, name="live")]

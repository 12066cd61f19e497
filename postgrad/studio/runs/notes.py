"""The name, tags and note of a run, and whether it is archived, from a form of its page."""

from __future__ import annotations

from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from postgrad.runs.notes import RunNote, split_tags, write_note
from postgrad.studio.pages import form_handler
from postgrad.studio.runs.shared import redirect_to
from postgrad.studio.runs.traces import existing_run_folder, run_address


def write_request(request: Request, fields: ImmutableMultiDict[str, str]) -> Response:
    name = fields.get("run", "")
    folder = existing_run_folder(request.app.state.runs, name)
    write_note(folder, RunNote(name=" ".join(fields.get("name", "").split()),
                               tags=split_tags(fields.get("tags", "")),
                               note=fields.get("note", "").replace("\r\n", "\n").strip(),
                               archived="archived" in fields))
    return redirect_to(run_address(name))


routes = [Route("/runs/-/note", form_handler(write_request), methods=["POST"])]

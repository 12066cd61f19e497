"""Talking to a checkpoint of a run, beside another or the model that it began with."""

from __future__ import annotations

import threading
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from postgrad.runs import Run
from postgrad.studio.json_types import JsonDict
from postgrad.studio.pages import form_handler, fragment
from postgrad.studio.runs.samples import safe_text
from postgrad.studio.runs.traces import existing_run_folder

if TYPE_CHECKING:
    from postgrad.resolve.models import Model

LONGEST = 4000  # characters of a question
TOKENS = 512    # of a reply, at most
_SAMPLING = threading.Lock()


def talk_choices(run: Run) -> JsonDict:
    """The steps that can be talked to, newest first, 0 for the model that the run began with; else why
    not."""
    from postgrad.resolve.stages import why_silent
    try:
        why = why_silent(str(run.folder))
        best = run.best()
    except ValueError as error:  # a damaged run can still be looked at
        return {"why": safe_text(error), "steps": []}
    steps = [*reversed([*run.checkpoints()]), *([0] if run.info.get("begins_with") else [])]
    words = {0: "before training"} | ({best[0]: f"step {best[0]}, the best"} if best else {})
    return {"why": f"This run {why}." if why else "",
            "steps": [(step, words.get(step, f"step {step}")) for step in steps]}


@lru_cache(maxsize=3)
def opened_checkpoint(name: str, changed: int) -> Model:
    from postgrad.resolve.models import open_named_model
    return open_named_model(name)


def checkpoint_reply(folder: Path, step: str, question: str, temperature: float, tokens: int) -> str:
    changed = (folder / "run.json").stat().st_mtime_ns
    with _SAMPLING:  # one at a time: the processor is one
        return opened_checkpoint(f"{folder}@{step}", changed).reply(
            question, max_new_tokens=tokens, temperature=temperature)


def talk_request(request: Request, fields: ImmutableMultiDict[str, str]) -> Response:
    name, question = fields.get("run", ""), fields.get("question", "").strip()
    folder = existing_run_folder(request.app.state.runs, name)
    if not question or len(question) > LONGEST:
        raise ValueError(f"A question has 1 to {LONGEST:,} characters; this has {len(question):,}.")
    try:
        temperature, tokens = float(fields.get("temperature") or 0), int(fields.get("tokens") or 128)
    except ValueError:
        raise ValueError("temperature and tokens are numbers, e.g. 0.7 and 128.") from None
    if not 0 <= temperature <= 10 or not 1 <= tokens <= TOKENS:
        raise ValueError(f"temperature is from 0 to 10, and a reply has 1 to {TOKENS} tokens.")
    known = {str(step): words for step, words in talk_choices(Run.open(folder))["steps"]}
    steps = [step for key in ("step", "beside") if (step := fields.get(key, ""))]
    if unknown := [step for step in steps if step not in known]:
        raise ValueError(f"{name} keeps no step {unknown[0]!r:.40}: it has {', '.join(known) or 'none yet'}.")
    replies = [(known[step], safe_text(checkpoint_reply(folder, step, question, temperature, tokens)))
               for step in dict.fromkeys(steps)]
    return fragment(request, "runs/replies.html", question=safe_text(question), replies=replies)


routes = [Route("/runs/-/talk", form_handler(talk_request), methods=["POST"])]

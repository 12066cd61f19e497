"""A problem of the reader's own, answered by the stages of the pipeline side by side, at once.

The pretrained and the SFT model are in the package. A model after RL is not: the newest run in the runs
folder that trained the SFT model on word problems stands in for it, and where there is none the page says so.
"""

from __future__ import annotations

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

if TYPE_CHECKING:
    from postgrad.resolve.models import Model

EMBEDDED = {"Pretrained": "tiny", "SFT": "tiny-chat"}
LONGEST = 300   # characters of a problem
TOKENS = 64     # of a reply


def trained_by_rl(runs: Path) -> Path | None:
    """The newest run of the runs folder that trained tiny-chat on word problems and has a checkpoint."""
    for path in sorted(runs.glob("*/run.json"), key=lambda p: -p.stat().st_mtime):
        try:
            run = Run.open(path.parent)
            fits = (run.info.get("task"), run.info.get("model")) == ("words", "tiny-chat") and run.latest()
        except (OSError, ValueError):  # a run that was damaged is no model
            continue
        if fits:
            return path.parent
    return None


@lru_cache(maxsize=4)
def opened_model(model: str, changed: int) -> Model:
    from postgrad.resolve.models import open_named_model
    return open_named_model(model)


def greedy_reply(model: str, question: str, changed: int = 0) -> JsonDict:
    """The model's greedy reply, and whether it is in the form that the verifier asks for."""
    from postgrad.data.tasks import load_task
    from postgrad.records import Prompt
    text = opened_model(model, changed).reply(question, max_new_tokens=TOKENS, temperature=0.0)
    verify = load_task("words").verify
    assert verify is not None
    return {"text": text, "formed": verify(Prompt.ask(question, answer="0"), text).parts["format"] == 1}


def replies_fragment(request: Request, fields: ImmutableMultiDict[str, str]) -> Response:
    question = " ".join(fields.get("question", "").split())
    if not question or len(question) > LONGEST:
        raise ValueError(f"A problem has 1 to {LONGEST} characters; this has {len(question)}.")
    replies = [(title, model, greedy_reply(model, question)) for title, model in EMBEDDED.items()]
    run = trained_by_rl(request.app.state.runs)
    if run:
        changed = (run / "run.json").stat().st_mtime_ns
        replies.append(("RL", f"run {run.name}", greedy_reply(str(run), question, changed)))
    return fragment(request, "instruments/pipeline_replies.html", question=question, replies=replies)


routes = [Route("/instruments/pipeline/ask", form_handler(replies_fragment), methods=["POST"])]

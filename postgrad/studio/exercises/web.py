"""/exercises: things to write, checked; questions to think about; what this reader has done.

An answer runs where cells run (`cells.runner`), and so only where the server listens to this machine alone.
"""

from __future__ import annotations

import json
from threading import Lock

from starlette.datastructures import ImmutableMultiDict
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from postgrad.studio.cells.runner import WALL
from postgrad.studio.cells.web import runner_of, source_text
from postgrad.studio.exercises import EXERCISES, QUESTIONS, Exercise, Question, exercise_number, progress
from postgrad.studio.json_types import JsonDict
from postgrad.studio.pages import form_handler, fragment, full_page, why_closed

RUNS_CODE = "Checking an answer runs it"
SHORTEST = 20  # characters of an answer of one's own
_WRITING = Lock()


def progress_of(request: Request) -> progress.Progress:
    """What this reader has done; exported pages are for everybody."""
    exported = request.headers.get("x-postgrad-export") == "1"
    return progress.Progress() if exported else progress.load_progress()


def exercise_of(request: Request) -> Exercise:
    name = request.path_params["name"]
    if name not in EXERCISES:
        raise HTTPException(404, f"There is no exercise {name!r}; there are {', '.join(EXERCISES)}.")
    return EXERCISES[name]


def asked_question(request: Request) -> Question:
    name = request.path_params["name"]
    if name not in QUESTIONS:
        raise HTTPException(404, f"There is no question {name!r}; there are {', '.join(QUESTIONS)}.")
    return QUESTIONS[name]


def statement_paragraphs(text: str) -> list[JsonDict]:
    """A statement as paragraphs: what is set in by four spaces as it stands, otherwise words and `code` in
    turn."""
    found: list[JsonDict] = []
    for part in text.strip("\n").split("\n\n"):
        if part.startswith("    "):
            found.append({"code": "\n".join(line.removeprefix("    ") for line in part.split("\n"))})
        else:
            found.append({"parts": part.replace("\n", " ").split("`")})
    return found


def exercises_page(request: Request) -> Response:
    return full_page(request, "exercises/index.html", exercises=EXERCISES.values(),
                     questions=QUESTIONS.values(),
                     kept=progress_of(request))


def exercise_page(request: Request) -> Response:
    exercise, why = exercise_of(request), why_closed(request, RUNS_CODE)
    if not why and request.headers.get("x-postgrad-export") != "1":
        runner_of(request).warm(for_exercises=True)
    names, place = list(EXERCISES), exercise_number(exercise) - 1
    return full_page(request, "exercises/exercise.html", exercise=exercise, number=place + 1, closed=why,
                     wall=WALL, statement=statement_paragraphs(exercise.statement),
                     hints=[statement_paragraphs(hint) for hint in exercise.hints], verdict=None,
                     solved=exercise.name in progress_of(request).solved,
                     before=EXERCISES[names[place - 1]] if place else None,
                     after=EXERCISES[names[place + 1]] if place + 1 < len(names) else None)


def check_answer(request: Request, fields: ImmutableMultiDict[str, str]) -> Response:
    exercise, answer = exercise_of(request), source_text(fields)
    verdict = runner_of(request).grade(exercise, answer)
    with _WRITING:
        kept = progress.load_progress()
        kept.tried(exercise.name, answer, verdict.passed)
        progress.save_progress(kept)
    return fragment(request, "exercises/verdict.html", exercise=exercise, verdict=verdict,
                    solved=exercise.name in kept.solved)


def questions_page(request: Request) -> Response:
    return full_page(request, "exercises/questions.html", questions=QUESTIONS.values(),
                     kept=progress_of(request),
                     refused="")


def write_answer(request: Request, fields: ImmutableMultiDict[str, str]) -> Response:
    """The reader's own answer is kept; then the model answer is shown."""
    question, text = asked_question(request), fields.get("answer", "").replace("\r\n", "\n").strip()
    refused = "" if len(text) >= SHORTEST else "Write an answer of your own first, in a sentence or two."
    with _WRITING:
        kept = progress.load_progress()
        if not refused:
            kept.written[question.name] = text
            progress.save_progress(kept)
    return fragment(request, "exercises/question.html", question=question, kept=kept, refused=refused)


def export_progress(request: Request) -> Response:
    return Response(json.dumps(progress.load_progress().record(), indent=1) + "\n",
                    media_type="application/json",
                    headers={"Content-Disposition": 'attachment; filename="exercises.json"'})


routes = [
    Route("/exercises", exercises_page, name="exercises"),
    Route("/exercises/questions", questions_page),
    Route("/exercises/export", export_progress),
    Route("/exercises/{name}", exercise_page, name="exercise"),
    Route("/exercises/{name}/check", form_handler(check_answer), methods=["POST"]),
    Route("/exercises/questions/{name}", form_handler(write_answer), methods=["POST"]),
]

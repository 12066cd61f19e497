"""/label: two answers side by side, one judgement at a time; each is on the disk before
the next pair is shown.

Which answer stands on which side depends on the item and the labeller (`data.store.shown_sides`), so it is
the same after a reload. A judgement is written only if what stands is what its author saw: a double click, a
second tab or a request that is sent again changes nothing. The live reward model (`trainer`) trains in a
process of its own; labelling never waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

import postgrad
from postgrad.data.store import Store, check_labeller, label_counts, labeller_agreement
from postgrad.studio.json_types import JsonDict
from postgrad.studio.label import table as label_data
from postgrad.studio.label.workers import FIRST, PairMaker, RewardTrainer
from postgrad.studio.pages import app_object, form_handler, fragment, full_page, open_store
from postgrad.system.plugins import declared_names

MODELS = ("tiny-chat", "tiny")
PROMPTS = (1, 1000)  # how many pairs may be asked for at once


def labeller_of(request: Request) -> str:
    """Who labels: named in the address, or else as last time; "" where nobody has said."""
    name = request.query_params.get("labeller", unquote(request.cookies.get("labeller", ""))).strip()
    if name:
        check_labeller(name)
    return name


# what the page shows

def next_pair(store: Store | None, labeller: str, item: str = "", message: str = "") -> JsonDict:
    """The pair that comes next for this labeller, or the item that was asked for, and how far they are."""
    asked, was = ((None, None) if store is None else store.asked(item, labeller) if item
                  else (store.next(labeller), None))
    total = store.size() if store else 0
    done = total - store.left(labeller) if store else 0
    return {"labeller": labeller, "asked": asked, "was": was, "total": total, "done": done,
            "message": message}


def reward_model_status(request: Request, store: Store | None) -> JsonDict:
    """The reward model as it stands, and how far labellers agree. Starts a training where one is due."""
    trainer = app_object(request, "reward_trainer", RewardTrainer)
    choices = [(None, by) for by in store.choices()] if store else []
    found = label_counts(choices)
    trainer.notice(found["judged"])
    points = [(n, r) for n, r in trainer.history if r["accuracy"] is not None]
    return {"trainer": trainer, "result": trainer.result, "points": points,
            "contradicted": found["contradicted"], "agreement": labeller_agreement(choices),
            "to_go": max(0, FIRST - found["judged"])}


def making_form(request: Request, store: Store | None) -> JsonDict:
    """What the form that makes pairs offers, and what has become of the last one."""
    return {"maker": app_object(request, "pair_maker", PairMaker),
            "models": sampling_models(request.app.state.runs), "tasks": task_names(),
            "seed": store.size() if store else 0}


def sampling_models(runs: Path) -> list[str]:
    """The embedded models, and the runs of the folder that have a checkpoint of a model that writes."""
    found = sorted(path.parent for path in [*runs.glob("*/checkpoints"), *runs.glob("*/*/checkpoints")]
                   if any(path.iterdir()))
    return [*MODELS, *(path.relative_to(runs).as_posix() for path in found)]


@cache
def task_names() -> tuple[str, ...]:
    """The names of the built-in tasks. `postgrad.data.tasks` is not imported: it imports torch."""
    declared = declared_names(Path(postgrad.__file__).parent / "data" / "tasks")
    return tuple(name for name in declared if ":" not in name)


# handlers

def label_page(request: Request) -> Response:
    labeller, item = labeller_of(request), request.query_params.get("item", "")
    with open_store(request) as store:
        what = (next_pair(store, labeller, item) if labeller
                else {"labeller": "", "total": store.size() if store else 0})
        answer = full_page(request, "label/page.html", **what, **reward_model_status(request, store),
                           **making_form(request, store))
    if labeller:
        answer.set_cookie("labeller", quote(labeller), max_age=31536000, samesite="strict")
    return answer


def record_choice(request: Request, fields: Mapping[str, str]) -> Response:
    """One judgement. What it meets on the disk decides, not what the page believes."""
    labeller, item, choice, was = (fields.get(name, "") for name in ("labeller", "item", "choice", "was"))
    with open_store(request) as store:
        if store is None:
            raise ValueError(f"there is no store at {request.app.state.store} any more: make pairs "
                             "or import some.")
        try:
            asked, _ = store.asked(item, labeller)
        except ValueError:
            return pair_fragment(request, store, labeller,
                                 "That pair has been removed meanwhile; here is another.")
        stands = store.revise(item, labeller, choice, was or None)
        words = {asked.sides[0]: "A", asked.sides[1]: "B", "tie": "tie", "skip": "skipped",
                 None: "taken back"}
        message = (f"You had judged that pair already ({words[stands]}), in another tab perhaps: "
                   "nothing was changed." if stands != choice
                   else f"{words[choice]}{guess_text(request, item, asked.sides, choice)}")
        return pair_fragment(request, store, labeller, message, changed=stands == choice)


def pair_fragment(request: Request, store: Store | None, labeller: str, message: str, item: str = "",
                  changed: bool = False) -> Response:
    """The pair that comes next; and word to the rest of the page, which asks for itself,
    that something was said."""
    app_object(request, "reward_trainer", RewardTrainer).changed(int(changed))
    answer = fragment(request, "label/pair.html", **next_pair(store, labeller, item, message))
    answer.headers["HX-Trigger"] = "judged"
    return answer


def guess_text(request: Request, item: str, sides: tuple[str, str], choice: str) -> str:
    """What the reward model had expected of a pair it was not trained on."""
    result = app_object(request, "reward_trainer", RewardTrainer).result
    chance: float | None = result["chance"].get(item) if result else None
    if chance is None or choice not in sides:
        return ""
    chance = chance if sides[0] == "a" else 1 - chance
    side, sure = ("A", chance) if chance >= 0.5 else ("B", 1 - chance)
    return f". The reward model had guessed {side}, at {100 * sure:.0f} %"


def undo_choice(request: Request, fields: Mapping[str, str]) -> Response:
    labeller = fields.get("labeller", "")
    with open_store(request) as store:
        back = store.undo(labeller) if store else None
        message = ("The last judgement is taken back: here is its pair." if back
                   else "There is nothing to undo.")
        return pair_fragment(request, store, labeller, message, back.item.uid if back else "",
                             changed=back is not None)


def status_fragment(request: Request) -> Response:
    """The reward model and the agreement alone: what a page asks for while the model trains."""
    with open_store(request) as store:
        return fragment(request, "label/live.html", **reward_model_status(request, store))


def make_pairs(request: Request, fields: Mapping[str, str]) -> Response:
    """Starts `postgrad label make` in a process of its own."""
    with open_store(request) as store:
        known = making_form(request, store)
    model, task, count = fields.get("model", ""), fields.get("task", ""), fields.get("prompts", "")
    if model not in known["models"] or task not in known["tasks"]:
        raise ValueError(f"no pairs can be made by {model[:60]!r} on {task[:60]!r}: choose a model and a "
                         "task of the lists.")
    if not (count.isdecimal() and PROMPTS[0] <= int(count) <= PROMPTS[1]):
        raise ValueError(f"{count[:20]!r} pairs cannot be made: ask for {PROMPTS[0]} to {PROMPTS[1]}.")
    if not fields.get("seed", "").isdecimal():
        raise ValueError(f"the seed is {fields.get('seed', '')[:20]!r}: it is a whole number.")
    where = model if model in MODELS else str(request.app.state.runs / model)
    known["maker"].start(("--model", where, "--task", task, "--prompts", count, "--seed", fields["seed"]),
                         f"{model} answers {count} prompts of {task}, twice each")
    return fragment(request, "label/making.html", **known)


def making_fragment(request: Request) -> Response:
    with open_store(request) as store:
        return fragment(request, "label/making.html", **making_form(request, store))


routes = [
    Route("/label", label_page, name="label"),
    Route("/label/choose", form_handler(record_choice), methods=["POST"]),
    Route("/label/undo", form_handler(undo_choice), methods=["POST"]),
    Route("/label/live", status_fragment),
    Route("/label/make", form_handler(make_pairs), methods=["POST"]),
    Route("/label/made", making_fragment),
    *label_data.routes,
]

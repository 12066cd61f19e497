"""/label/data: every pair and its labels: filter, edit, take out and bring back,
files in and out."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from postgrad.data.store import CHOICES, Item, Store, check_labeller
from postgrad.studio.json_types import JsonDict
from postgrad.studio.label.workers import RewardTrainer
from postgrad.studio.pages import app_object, form_handler, fragment, full_page, open_store

ROWS = 25
LARGEST = 20_000_000  # bytes of a file that is imported
SHOWN = {"": "all", "unjudged": "not judged", "a": "a is better", "b": "b is better", "tie": "ties",
         "skip": "skipped", "contradicted": "judged both ways", "surprising": "the reward model disagrees",
         "removed": "removed"}
FORMATS = {"pairs": "for reward and dpo", "singles": "for kto"}


@dataclass(frozen=True)
class LabelRow:
    """A line of the table.

    chance: the reward model's P(a > b), by a model that has not seen the pair; None if unknown.
    """

    item: Item
    choices: Mapping[str, str]
    chance: float | None
    removed: bool = False

    @property
    def surprising(self) -> bool:
        choices = set(self.choices.values()) & {"a", "b"}
        return self.chance is not None and choices == {"b" if self.chance > 0.5 else "a"}

    def fits(self, shown: str, text: str, labeller: str) -> bool:
        choices = {choice for who, choice in self.choices.items() if labeller in ("", who)}
        words = "\n".join([self.item.a, self.item.b, self.item.origin,
                           *(m["content"] for m in self.item.messages)]).lower()
        kinds = {"": True, "removed": True, "unjudged": not choices - {"skip"},
                 "contradicted": {"a", "b"} <= choices, "surprising": self.surprising}
        return (text.lower() in words and (not labeller or bool(choices))
                and kinds.get(shown, shown in choices))


def label_rows(request: Request, store: Store | None, removed: bool = False) -> list[LabelRow]:
    result = app_object(request, "reward_trainer", RewardTrainer).result
    chance = result["chance"] if result else {}
    items = store.items(removed=removed) if store else []
    return [LabelRow(item, choices, chance.get(item.uid), removed) for item, choices in items]


def table_page(request: Request) -> Response:
    query = request.query_params
    shown, text, labeller, start = (query.get(name, "") for name in ("shown", "text", "labeller", "start"))
    if shown not in SHOWN or not (start or "0").isdecimal():
        raise ValueError(f"nothing can be shown by {shown[:40]!r} from {start[:20]!r} on: choose one of "
                         f"{', '.join(SHOWN)}.")
    with open_store(request) as store:
        rows = label_rows(request, store, shown == "removed")
        labellers = sorted({who for row in rows for who in row.choices})
        total, begin = len(rows), int(start or 0)
    rows = [row for row in rows if row.fits(shown, text, labeller)]
    at = {"shown": shown, "text": text, "labeller": labeller}
    turns = ([("Earlier", max(0, begin - ROWS))] * (begin > 0)
             + [("Later", begin + ROWS)] * (begin + ROWS < len(rows)))
    turn = {word: f"/label/data?{urlencode(at | {'start': place})}" for word, place in turns}
    return full_page(request, "label/data.html", rows=rows[begin: begin + ROWS], matching=len(rows),
                     begin=begin,
                     total=total, at=at, turn=turn, kinds=SHOWN, labellers=labellers, choices=CHOICES,
                     formats=FORMATS)


def row_fragment(request: Request, item: str, message: str = "", back: JsonDict | None = None) -> Response:
    """One line of the table as it stands now; `back`: the fields of a form that undoes what was just done."""
    with open_store(request) as store:
        both = [*label_rows(request, store), *label_rows(request, store, removed=True)]
        found = next((row for row in both if row.item.uid == item), None)
        if found is None:
            raise ValueError(f"the store has no item {item[:40]!r}.")
        app_object(request, "reward_trainer", RewardTrainer).changed()
    return fragment(request, "label/row.html", row=found, message=message, back=back, choices=CHOICES)


def edit_choice(request: Request, fields: Mapping[str, str]) -> Response:
    """One labeller's judgement of one item, changed, given or (choice "") taken back,
    if it is still what the page showed."""
    item, labeller, choice, was = (fields.get(name, "") for name in ("item", "labeller", "choice", "was"))
    check_labeller(labeller)
    with open_store(request) as store:
        if store is None:
            raise ValueError("there is no store any more.")
        store.asked(item, labeller)  # it exists
        stands = store.revise(item, labeller, choice or None, was or None)
    if stands != (choice or None):
        return row_fragment(request, item,
                            f"Not changed: meanwhile {labeller} has said {stands or 'nothing'}.")
    words = f"{labeller}: {was or 'nothing'} → {choice or 'nothing'}."
    return row_fragment(request, item, words,
                        {"act": "edit", "item": item, "labeller": labeller, "choice": was, "was": choice})


def remove_item(request: Request, fields: Mapping[str, str]) -> Response:
    item, gone = fields.get("item", ""), fields.get("removed", "1") == "1"
    with open_store(request) as store:
        if store is None:
            raise ValueError("there is no store any more.")
        store.remove(item, gone)
    return row_fragment(request, item, "Removed." if gone else "Brought back.",
                        {"act": "remove", "item": item, "removed": "0"} if gone else None)


def import_pairs(request: Request, fields: Mapping[str, str]) -> Response:
    """A JSONL text into the store, all or nothing; the sentence that the command says."""
    from postgrad.data.exchange import read_items
    name = Path(fields.get("name", "")).name.replace("\x00", "")[:80] or "pasted.jsonl"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_text(fields.get("rows", ""), encoding="utf-8")
        try:
            items, labels, seen = read_items(path, fields.get("labeller", "").strip() or None)
        except ValueError as error:
            raise ValueError(str(error).replace(f"{path}", name).replace("with --labeller NAME",
                                                                         "beside the file")) from None
    with Store.open(request.app.state.store) as store:
        found = store.add(items, labels)
        app_object(request, "reward_trainer", RewardTrainer).changed(found["labels"])
    return fragment(request, "label/imported.html", stored=found, file=seen, name=name)


def export_labels(request: Request) -> Response:
    """The judgements as a JSONL file that `postgrad train` reads."""
    from postgrad.data.exchange import export_store
    query = request.query_params
    form = query.get("format", "pairs")
    how = query.get("how", "majority")
    labeller = query.get("labeller") or None
    with open_store(request) as store, tempfile.TemporaryDirectory() as folder:
        if store is None:
            raise ValueError("there is nothing to export yet: make pairs, or import some.")
        path = Path(folder) / f"{'labels' if form == 'singles' else 'pairs'}.jsonl"
        export_store(store, path, form=form, labeller=labeller, how=how)
        return Response(path.read_bytes(), media_type="application/x-ndjson",
                        headers={"Content-Disposition": f'attachment; filename="{path.name}"'})


routes = [
    Route("/label/data", table_page, name="label-data"),
    Route("/label/data/edit", form_handler(edit_choice), methods=["POST"]),
    Route("/label/data/remove", form_handler(remove_item), methods=["POST"]),
    Route("/label/data/import", form_handler(import_pairs, limit=LARGEST), methods=["POST"]),
    Route("/label/data/export", export_labels),
]

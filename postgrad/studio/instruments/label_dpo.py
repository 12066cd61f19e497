"""DPO on the labels of the preference labeller: the package's model before and after, on questions that
nobody labelled.

    python -m postgrad.studio.instruments.label_dpo abbtab...     trains, and prints one line of JSON

The server starts that as a process of its own and asks again until it is done. No torch here until then.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from starlette.datastructures import ImmutableMultiDict
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from postgrad.studio.instruments.preference_labeller import ENOUGH, State, settle
from postgrad.studio.json_types import JsonDict
from postgrad.studio.label.workers import python_process
from postgrad.studio.pages import app_object, form_handler, fragment
from postgrad.studio.recordings import recording

MODEL, STEPS, PER_STEP, RATE = "tiny-chat", 16, 16, 1e-4
SAMPLES, SHOWN = 4, 4    # of each question; questions whose answers are shown


def labelled_pairs(labels: str) -> list[JsonDict]:
    """The labels as DPO reads them; a tie or a skipped pair prefers nothing."""
    out = []
    for item, label in zip(recording("pairs")["to_label"], labels, strict=False):
        if label in "ab":
            better, worse = item["answers"] if label == "a" else item["answers"][::-1]
            out.append({"prompt": item["question"], "chosen": better, "rejected": worse})
    return out


def measure_replies(model: str) -> JsonDict:
    """The model on the questions of the unseen pairs: its mean true quality, its plain answers to a few."""
    from postgrad.data.tasks import load_task
    from postgrad.resolve.models import open_named_model
    asked = {item["question"] for item in recording("pairs")["unseen"]}
    task, opened = load_task("questions"), open_named_model(model)
    verify = task.verify
    assert verify is not None
    prompts = [p for split in ("validation", "test") for p in task.prompts(split, 100, 0)
               if p.question in asked]
    groups = opened.sample(prompts, SAMPLES, max_new_tokens=64)
    scores = [verify(p, r.text).score for p, group in zip(prompts, groups, strict=True) for r in group]
    plain = opened.sample(prompts[:SHOWN], 1, max_new_tokens=64, temperature=0.0)
    return {"quality": sum(scores) / len(scores), "samples": len(scores), "questions": len(prompts),
            "answers": [(p.question, r.text, verify(p, r.text).score)
                        for p, (r,) in zip(prompts, plain, strict=False)]}


def train_on_labels(labels: str) -> JsonDict:
    from postgrad.recipes.fit import fit
    pairs = labelled_pairs(labels)
    with tempfile.TemporaryDirectory() as folder:
        run = fit(MODEL, "dpo", data=pairs, run=Path(folder) / "dpo", display=False, steps=STEPS, lr=RATE,
                  pairs={"per_step": PER_STEP}, seed=0, evaluation={"every": 0})
        return {"pairs": len(pairs), "steps": STEPS, "before": measure_replies(MODEL),
                "after": measure_replies(str(run.folder))}


class LabelTrainings:
    """One training at a time; `found` keeps what came of each text of labels."""

    def __init__(self) -> None:
        self.found: dict[str, JsonDict] = {}
        self.busy = ""
        self._lock = threading.Lock()
        self.thread: threading.Thread | None = None

    def start(self, labels: str) -> None:
        with self._lock:
            if labels in self.found or self.busy == labels:
                return
            if self.busy:
                raise ValueError("A model is being trained on other labels: wait until it is done.")
            self.busy = labels
            self.thread = threading.Thread(target=self._train, args=(labels,), daemon=True)
            self.thread.start()

    def _train(self, labels: str) -> None:
        process = python_process("postgrad.studio.instruments.label_dpo", labels, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                                 preexec_fn=lambda: os.nice(10))
        out, wrong = process.communicate()
        last = (wrong.strip().splitlines() or ["it ended without a word"])[-1]
        result = json.loads(out) if process.returncode == 0 else {"error": last[-300:]}
        with self._lock:
            self.found[labels], self.busy = result, ""


def trainings_fragment(request: Request, labels: str) -> Response:
    trainings = app_object(request, "label_dpo", lambda _: LabelTrainings())
    return fragment(request, "instruments/label_dpo_found.html", labels=labels,
                    found=trainings.found.get(labels), busy=bool(labels) and trainings.busy == labels)


def start_dpo(request: Request, fields: ImmutableMultiDict[str, str]) -> Response:
    labels = settle(State(labels=fields.get("labels", ""))).labels
    if len(labelled_pairs(labels)) < ENOUGH:
        raise ValueError(f"DPO is trained on {ENOUGH} labels that prefer one answer; these are "
                         f"{len(labelled_pairs(labels))}.")
    app_object(request, "label_dpo", lambda _: LabelTrainings()).start(labels)
    return trainings_fragment(request, labels)


def training_status(request: Request) -> Response:
    return trainings_fragment(request, settle(State(labels=request.query_params.get("labels", ""))).labels)


routes = [
    Route("/instruments/preference-labeller/dpo", form_handler(start_dpo), methods=["POST"]),
    Route("/instruments/preference-labeller/dpo", training_status),
]

if __name__ == "__main__":
    print(json.dumps(train_on_labels(sys.argv[1])))

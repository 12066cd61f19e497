"""What a run examines: rows and tasks of the user's own, for every recipe that takes them."""

import json
import math

import pytest
import torch
from doors import LABELLED, PAIRS, QUESTIONS, TALKS, fit, letters
from transformers import AutoModelForCausalLM

import postgrad as pg
from postgrad.cli import main
from postgrad.resolve.models import fingerprint
from postgrad.runs import Run

APART = {"sft": [{"prompt": f"Tell {n}.", "completion": f"I tell {n}."} for n in range(5)],
         "dpo": [{"prompt": f"Tell {n}.", "chosen": f"{n}, yes.", "rejected": f"No {n}."} for n in range(5)],
         "kto": [{"prompt": f"Tell {n}.", "completion": f"{n}", "label": n < 2} for n in range(5)]}
APART["reward"] = APART["dpo"]
DATA = {"sft": TALKS, "dpo": PAIRS, "reward": PAIRS, "kto": LABELLED}
EVERY = {"evaluation": {"every": 1, "problems": 4, "samples": 2, "max_new_tokens": 4}}
SUMS = [{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(6)]


@pytest.mark.parametrize("method", DATA)
def test_rows_to_examine(tmp_path, method, monkeypatch):
    """From Python and the command line the same figures, all rows of data are trained, and the file is one of
    those that must not change."""
    monkeypatch.chdir(tmp_path)
    run = fit(tmp_path, method, data=DATA[method], eval_data=APART[method], **EVERY)
    evals = run.evaluations()
    assert [row["step"] for row in evals] == [0, 1, 2] and all(math.isfinite(row["loss"]) for row in evals)
    counts = run.info["data"]
    assert (counts["rows"], counts["evaluated"], counts["leaked"]) == (len(DATA[method]), 5, 0)
    if method != "sft":
        assert {"accuracy", "margin"} <= evals[0].keys()
    else:
        assert evals[0]["rows"] == 5
    files = {name: rows[method] for name, rows in (("data", DATA), ("apart", APART))}
    for name, rows in files.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = [f"evaluation.{key}={value}" for key, value in EVERY["evaluation"].items()]
    assert main(["train", method, "data=data.jsonl", "eval_data=apart.jsonl", "model=tiny-chat", "steps=2",
                 *words, "save_every=2", "--run", "line", "--json"]) == 0
    assert Run.open("line").rows("evals")[0] == evals and "eval_data" in Run.open("line").info["files"]
    (tmp_path / "apart.jsonl").write_text(json.dumps(files["apart"][0]) + "\n")
    with pytest.raises(ValueError, match=r"eval_data apart.jsonl has changed since this run began"):
        pg.resume("line", steps=3)


def test_the_loss_of_the_rows_is_that_of_transformers(tmp_path):
    """The mean negative log-likelihood of the assistant's tokens, counted over the rows one by one."""
    run = fit(tmp_path, "sft", data=TALKS, eval_data=APART["sft"], **EVERY)
    chat, folder = run.model().chat, run.checkpoints()[2]
    theirs, losses = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32), []
    for talk in APART["sft"]:
        tokens, mask = chat.conversation([{"role": "user", "content": talk["prompt"]},
                                          {"role": "assistant", "content": talk["completion"]}])[:2]
        with torch.no_grad():
            logp = torch.log_softmax(theirs(torch.tensor([tokens])).logits[0], -1)
        losses += [-float(logp[at - 1, tokens[at]]) for at in range(1, len(tokens)) if mask[at]]
    assert run.evaluations()[-1]["loss"] == pytest.approx(sum(losses) / len(losses), abs=1e-5)


@pytest.mark.parametrize("method", ["sft", "dpo", "grpo"])
def test_a_task_to_examine(tmp_path, method):
    """All prompts of the user's rows, none of data's is held out, and pass@1 decides the best."""
    given = ({"task": QUESTIONS, "reward": letters} if method == "grpo" else {"data": DATA[method]})
    task = {"eval_task": QUESTIONS[:3] if method == "grpo" else SUMS}
    run = fit(tmp_path, method, **given, **task, **EVERY)
    evals = run.evaluations()
    assert [row["step"] for row in evals] == [0, 1, 2] and all("pass@1" in row for row in evals)
    assert evals[0]["problems"] == (3 if method == "grpo" else 4) and run.best()[1] == "pass@1"
    assert run.info["data"]["prompts"] == (12 if method == "grpo" else
                                           round(0.9 * len(PAIRS)) if method == "dpo" else len(TALKS))


def test_what_cannot_be_examined_is_said(tmp_path):
    for method, given, words in (
            ("dpo", {"eval_data": APART["dpo"], "pairs": {"holdout": 0.2}}, "holdout=0.2 and eval_data are"),
            ("dpo", {"eval_data": APART["dpo"]}, "eval_data needs evaluations, and this run has none"),
            ("reward", {"eval_task": SUMS}, "reward takes no eval_task: it learns from pairs"),
            ("sft", {"eval_data": [{"question": "?"}]}, "Mend what is bad in eval_data"),
            ("sft", {"eval_data": 3}, "eval_data is 3: expected rows, a table, a file")):
        with pytest.raises(ValueError, match=words):
            fit(tmp_path, method, data=DATA[method], **given)
    with pytest.raises(ValueError, match="grpo takes no eval_data: it learns from rollouts"):
        fit(tmp_path, "grpo", task=QUESTIONS, reward=letters, eval_data=APART["sft"])


FURTHER = {"sft": ({"data": TALKS}, {"data": APART["sft"]}), "dpo": ({"data": PAIRS}, {"data": APART["dpo"]}),
           "kto": ({"data": LABELLED}, {"data": APART["kto"]}),
           "reward": ({"data": PAIRS}, {"data": APART["dpo"]}),
           "grpo": ({"task": QUESTIONS, "reward": letters}, {"task": SUMS}),
           "ppo": ({"task": SUMS}, {"task": QUESTIONS, "reward": letters}),
           "process": ({"task": "words"}, {"task": "words-hard", "generator": "tiny-chat"})}


@pytest.mark.parametrize("method", FURTHER)
def test_going_on_with_other_data_or_another_reward_as_a_new_run(tmp_path, method):
    """Of every recipe: it begins with the weights that the first run ended with."""
    small = ({"replies": {"problems": 4, "samples": 2, "per_step": 2, "max_new_tokens": 16}}
             if method == "process" else {})
    before, after = FURTHER[method]
    run = fit(tmp_path, method, "first", **before, **small)
    further = fit(tmp_path, method, "further", model=run, **after, **small)
    folder = run.checkpoints()[2]
    assert further.info["begins_with"] == fingerprint(folder) and len(further.metrics()) == 2
    best = pg.fit(config=further, model=f"{further.folder}@2", run=tmp_path / "third", display=False,
                  **after)
    assert best.info["begins_with"] == fingerprint(further.checkpoints()[2])

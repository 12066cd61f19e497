"""The length of a training on rows: steps, or passes over the data; one of them is named."""

import json
import re

import pytest

from postgrad import fit
from postgrad.recipes import sft
from postgrad.recipes.base import Length
from postgrad.recipes.preference import PreferenceConfig
from postgrad.recipes.registry import config_for
from postgrad.recipes.reward import RewardConfig
from postgrad.recipes.sft import SFTConfig, evaluation_interval
from postgrad.resolve.models import open_folder

ROWS = [{"messages": [{"role": "user", "content": f"What is {i} + 1?"},
                      {"role": "assistant", "content": str(i + 1)}]} for i in range(10)]
PAIRS = [{"prompt": f"What is {i} + 1?", "chosen": str(i + 1), "rejected": "no"} for i in range(8)]


@pytest.mark.parametrize(("named", "rows", "per_step", "expected"), [
    ({}, 50_000, 64, (2344, 64)),  # 3 passes: 150,000 / 64 = 2343.75
    ({}, 10, 64, (20, 10)),  # few rows: 20 steps, no row twice in one
    ({"epochs": 1}, 640, 64, (10, 64)),
    ({"epochs": 0.5}, 10, 64, (1, 10)),
    ({"epochs": 2}, 10, 4, (5, 4)),
    ({"steps": 7}, 10, 64, (7, 64)),  # as named
])
def test_length_by_the_size_of_the_data(named, rows, per_step, expected):
    length = SFTConfig(data="rows.jsonl", **named).length(rows, per_step)
    assert (length.steps, length.per_step) == expected


@pytest.mark.parametrize("config", [PreferenceConfig, RewardConfig])
def test_preferences_are_passed_over_once(config):
    assert config(data="pairs.jsonl").length(3200, 32) == Length(100, 32, 3200)
    assert config(task="questions").length(2000, 32) == Length(120, 32, 2000)


def test_a_named_setting_keeps_its_steps_and_takes_epochs_instead():
    assert config_for("sft:words")[1].steps == 60
    assert config_for("dpo:questions")[1].steps == config_for("reward:questions")[1].steps == 120
    changed = config_for("sft:words", {"epochs": 2.0})[1]
    assert (changed.steps, changed.length(4000, 64).steps) == (None, 125)


def test_two_lengths_are_refused():
    with pytest.raises(ValueError, match="steps=3 and epochs=1 are two lengths of one run: name one"):
        config_for("sft", {"data": "rows.jsonl", "steps": 3, "epochs": 1.0})


@pytest.mark.parametrize(("method", "data", "per_step", "sentence"), [
    ("sft", ROWS, "rows_per_step", "10 rows with 21 trained tokens; 2 steps of 10, 2 passes over them"),
    ("dpo", PAIRS, "pairs", "8 pairs with 40 trained tokens; 2 steps of 8, 2 passes over them"),
])
def test_a_run_says_and_saves_its_length(tmp_path, capsys, method, data, per_step, sentence):
    run = fit("tiny-chat", method, data=data, epochs=2, run=tmp_path / "run")
    assert [row["step"] for row in run.metrics()] == [1, 2]
    (event,) = (row for row in run.rows("events")[0] if row["kind"] == "length")
    assert event["text"].endswith(sentence)
    assert event["text"] in capsys.readouterr().err
    saved = json.loads((tmp_path / "run" / "config.json").read_text())
    size = saved[per_step]["per_step"] if method == "dpo" else saved[per_step]
    assert (saved["steps"], saved["epochs"], size) == (2, None, len(data))
    assert run.info["data"]["passes"] == 2.0 and run.info["steps"] == 2


@pytest.mark.parametrize(("method", "rows", "unit"), [("sft", ROWS, "rows"), ("dpo", PAIRS, "pairs")])
def test_a_run_says_what_of_its_data_is_held_out(tmp_path, capsys, method, rows, unit):
    many = [json.loads(json.dumps(row).replace("What", f"{i}) What")) for i in range(4) for row in rows]
    fit("tiny-chat", method, data=many, steps=1, run=tmp_path / "run")
    (line,) = (line for line in capsys.readouterr().err.splitlines() if "passes over them" in line)
    trained, held_out = map(int, re.findall(rf"(\d+) (?:{unit} with|more are held out)", line))
    assert trained + held_out == len(many) and held_out
    fit("tiny-chat", method, data=many, steps=1, holdout=0, run=tmp_path / "all")
    assert f"{len(many)} {unit} with" in (said := capsys.readouterr().err) and "held out" not in said


def test_a_run_that_samples_says_its_length(tmp_path, capsys):
    rows = [{"prompt": f"What is {n}+1?", "answer": str(n + 1)} for n in range(8)]
    settings = {"steps": 2, "prompts_per_step": 2, "group_size": 2, "rollouts": {"max_new_tokens": 4}}
    for method, how in (("grpo", "2 steps, each of 2 prompts with 2 replies of at most 4 tokens; 0.5 passes"),
                        ("ppo", "2 steps, 2 on each collection, which is 2 prompts with 2 replies of at most "
                                "4 tokens; 0.25 passes")):
        more = {"method.epochs": 2, "method.minibatches": 1} if method == "ppo" else {}
        run = fit("tiny-chat", method, task=rows, reward="number", run=tmp_path / method,
                  evaluation={"every": 0}, **settings, **more)
        (event,) = (row for row in run.rows("events")[0] if row["kind"] == "length")
        assert "8 prompts; " in event["text"] and how in event["text"]
        assert event["text"] in capsys.readouterr().err


@pytest.mark.parametrize(("steps", "save_every", "every"), [
    (60, 20, 5), (7, 20, 1), (200, 20, 20), (2344, 20, 220), (100, 25, 5), (9, 1, 1)])
def test_evaluations_meet_checkpoints(steps, save_every, every):
    assert evaluation_interval(steps, save_every) == every
    assert save_every % every == 0 or every % save_every == 0


@pytest.mark.parametrize(("keep", "steps"), [(2, {2, 3, 4}), ("all", {1, 2, 3, 4}), ("best", {2, 4})])
def test_checkpoints_that_stay(tmp_path, monkeypatch, keep, steps):
    """The held-out loss is lowest after step 2."""
    losses = iter([9.0, 5.0, 1.0, 3.0, 2.0])
    monkeypatch.setattr(sft, "held_out_loss", lambda *_: {"loss": next(losses)})
    rows = [{"prompt": f"Say {i}.", "completion": str(i)} for i in range(20)]
    run = fit("tiny-chat", "sft", data=rows, steps=4, rows_per_step=2, evaluation={"every": 1}, keep=keep,
              save_every=4 if keep == "best" else 1, run=tmp_path / "run", display=False)
    assert set(run.checkpoints()) == steps and run.best() == (2, "loss", 1.0)
    assert open_folder(f"{run.folder}@best") == run.checkpoints()[2]


def test_the_best_of_none_and_a_wrong_keep_are_sentences(tmp_path):
    run = fit("tiny-chat", "sft", data=ROWS, steps=1, rows_per_step=2, run=tmp_path / "run", display=False)
    with pytest.raises(ValueError, match="has no checkpoint that was evaluated, so none is the best: name"):
        open_folder(f"{run.folder}@best")
    with pytest.raises(ValueError, match="keep=newest: expected a number of checkpoints of 1 or more"):
        SFTConfig(task="words", keep="newest")

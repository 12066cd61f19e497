"""A run started from a config: another run's, or a file of one's own; words after it come first."""

import json

import pytest
from doors import QUESTIONS, SMALL, TALKS, fit, letters

import postgrad as pg
from postgrad.cli import main
from postgrad.runs import Run
from postgrad.system.throughput import repeatable

QUICK = ["steps=2", "rows_per_step=2", "examples=24", "save_every=2"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lines(run):
    return [repeatable(row) for row in run.rows("metrics")[0]]


@pytest.mark.parametrize("named", ["runs/a", "runs/a/config.json"])
def test_a_run_again_from_its_config(here, named):
    """The same bits; with a change, that change alone."""
    assert main(["train", "sft:words", *QUICK, "--run", "runs/a", "--json"]) == 0
    assert main(["train", "--config", named, "--run", "runs/b", "--json"]) == 0
    assert main(["train", "lr=1e-4", "--config", named, "seed=5", "--run", "runs/c", "--json"]) == 0
    first, again, changed = (Run.open(f"runs/{name}") for name in "abc")
    assert lines(again) == lines(first) and again.config == first.config
    assert changed.config == {**first.config, "seed": 5, "optim": {**first.config["optim"], "lr": 1e-4}}
    here_too = pg.fit(config=first if named == "runs/a" else named, run="runs/d", display=False)
    assert lines(here_too) == lines(first)
    assert "--config" in Run.open("runs/b").info["command"]


def test_a_file_of_ones_own(here, capsys):
    (here / "mine.json").write_text(json.dumps(
        {"recipe": "sft:words", "optim": {"lr": 2e-4}, "optim.warmup": 1, "steps": 2, "rows_per_step": 2}))
    assert main(["train", "--config", "mine.json", "--run", "a", "--json", "optim.lr=3e-4"]) == 0
    config = Run.open("a").config
    assert (config["task"], config["optim"]["lr"], config["optim"]["warmup"]) == ("words", 3e-4, 1)
    capsys.readouterr()
    assert main(["train", "--config", "mine.json", "--show", "--json"]) == 0
    shown = {row["setting"]: row["value"] for row in json.loads(capsys.readouterr().out)}
    assert (shown["optim.lr"], shown["steps"]) == (2e-4, 2)
    given = {"method": {"name": "grpo", "low": 0.1}, "task": "words", "model": "tiny-chat", **{
        key: value for key, value in SMALL.items() if key not in ("display",)}}
    run = pg.fit(config=given, display=False, rollouts={"temperature": 0.9}, run="b")
    assert run.config["method"] == {"name": "grpo", "low": 0.1}
    assert (run.config["rollouts"]["max_new_tokens"], run.config["rollouts"]["temperature"]) == (8, 0.9)
    dapo = pg.fit(config=run, method="nano", task="arithmetic", run="c", display=False)
    assert (dapo.config["method"], dapo.config["task"], len(dapo.metrics())) == ("nano", "arithmetic", 2)


def test_other_data_and_another_length_take_the_place_of_the_configs(here):
    run = fit(here, "sft", task="words", rows_per_step=4)
    other = pg.fit(config=run, data=TALKS, epochs=1, run="other", display=False)
    assert (other.config["task"], other.config["steps"]) == (None, 3)


def test_what_is_no_config_is_said(here):
    run = fit(here, "nano", task=QUESTIONS, reward=letters)
    (here / "list.json").write_text("[1]")
    (here / "broken.json").write_text("{")
    (here / "nothing.json").write_text('{"steps": 3}')
    (here / "typo.json").write_text('{"recipe": "sft:words", "model": "tiny", "optim": {"lerning_rate": 1}}')
    for config, words in (
            (run, r"task of this config was handed in as an object \(rows 12 rows\), which a file"),
            ("gone.json", "gone.json is no config .*: give config.json of a run, or a JSON file"),
            ("broken.json", "broken.json is no config"), ("list.json", r"list.json holds \[1\]: a config is"),
            ("nothing.json", 'nothing.json does not say what is trained: add "recipe"'),
            ("typo.json", "there is no setting 'optim.lerning_rate'")):
        with pytest.raises(ValueError, match=words):
            pg.fit(config=config, run="none", display=False)
    assert pg.fit(config=run, task=QUESTIONS, reward=letters, run="again", display=False).metrics()
    with pytest.raises(ValueError, match="model is None: expected a name, a folder, a Run"):
        pg.fit(method="grpo", task="words", run="none")

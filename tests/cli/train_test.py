"""`postgrad train` prints what is particular about a run, and names the task where a setting is none."""

import json
import re
from pathlib import Path

import pytest

from postgrad.cli import main
from postgrad.cli.settings import config_from_text
from postgrad.cli.train import changed_settings, describe_run
from postgrad.recipes.defaults import fill_defaults
from postgrad.system.settings import describe_settings


def test_the_settings_that_are_not_the_defaults(tmp_path):
    texts = ["method.high=0.3", "steps=2", "optim.schedule=linear", "group_size=8"]
    _, config = config_from_text("dapo:words", texts)
    assert {name: str(value) for name, value in changed_settings(config)} == {
        "task": "words", "method": "dapo", "method.high": "0.3", "steps": "2"}
    config, chosen = fill_defaults(config)
    reasons = {choice.setting: choice.why for choice in chosen.choices}
    lines = describe_run("dapo:words", tmp_path, config, reasons, "tiny-chat has 2M parameters",
                         "config.json").splitlines()
    assert lines[0] == f"dapo:words -> {tmp_path}   tiny-chat has 2M parameters"
    assert len(lines) < 15 and max(map(len, lines[1:-1])) < 80
    assert any(line.split()[0] == "optim.lr" and "by the size" in line for line in lines)
    assert lines[-1].strip().startswith("all ") and str(tmp_path / "config.json") in lines[-1]


def test_the_file_it_names_holds_every_setting(tmp_path, capsys):
    """Of a run; the settings that are not typed have their defaults there."""
    folder = tmp_path / "run"
    assert main(["train", "sft:words", "steps=1", "rows_per_step=2", "examples=4", "evaluation.every=0",
                 "optim.schedule=linear", "--run", str(folder)]) == 0
    count, file = re.search(r"all (\d+) settings: (\S+),", capsys.readouterr().out).groups()
    saved = json.loads(Path(file).read_text())
    config = config_from_text("sft:words", ["steps=1"])[1]
    names = [row.name for row in describe_settings(config)]
    assert len(names) == int(count) and saved["optim"]["schedule"] == "linear"
    assert all(name.split(".")[0] in saved for name in names)


@pytest.mark.parametrize(("spec", "words"), [
    ("grpo:arithmetic-hard", "It is a task: write --task arithmetic-hard"),
    ("dapo:words-es", "It is a task: write --task words-es"),
    ("grpo:wrods", "Did you mean 'words'?"),
])
def test_a_task_that_is_no_setting_of_the_recipe(spec, words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", spec]) == 2
    assert words in capsys.readouterr().err

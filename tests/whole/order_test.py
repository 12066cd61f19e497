"""What a command says first: that the run is there, before anything is read; an error before the settings."""

import subprocess
import sys

import pytest
from paths import ROOT

import postgrad as pg
from postgrad.cli import main
from postgrad.recipes import defaults, running, sft
from postgrad.resolve import models
from postgrad.runs import Run

SMALL = ["steps=1", "rows_per_step=2", "examples=4"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_run_that_is_there_is_refused_before_anything_is_read(here, capsys, monkeypatch):
    Run.create("run", recipe="sft", config={}, steps=1).status("done")

    def touched(*_, **__):
        raise AssertionError("read before the folder was looked at")

    for home, name in ((models, "open_folder"), (running, "open_folder"), (defaults, "model_size"),
                       (sft, "read_conversations"), (running, "seed_everything")):
        monkeypatch.setattr(home, name, touched)
    assert main(["train", "sft", "data=missing.jsonl", "model=nowhere", "--run", "run"]) == 2
    said = capsys.readouterr()
    assert "run already holds a run: resume it" in said.err and said.out == ""
    with pytest.raises(ValueError, match="already holds a run"):
        pg.fit("nowhere", "sft", data="missing.jsonl", run="run")


@pytest.mark.parametrize("words", [["sft", "data=missing.jsonl"], ["sft:words", "model=nowhere"],
                                   ["sft:words", "--run", "file/run"], ["align", "--run", "full"],
                                   ["sft:words", "--run", "no name"]])
def test_an_error_comes_alone(here, capsys, words):
    (here / "file").write_text("in the way")
    (here / "full").mkdir()
    (here / "full/file").write_text("in the way")
    assert main(["train", *words]) == 2
    said = capsys.readouterr()
    assert said.out == "" and len(said.err.splitlines()) == 1


def test_settings_are_said_once_all_is_checked(here, capsys):
    assert main(["train", "sft:words", *SMALL, "--run", "run"]) == 0
    head, mark, rest = capsys.readouterr().out.partition("sft:words: step")
    first, *settings = head.splitlines()
    assert first == "sft:words -> run   tiny has 2M parameters"
    assert any(line.lstrip().startswith("all ") for line in settings)
    assert any(line.split()[:1] == ["optim.lr"] for line in settings)
    assert not any("beta1" in line for line in settings)  # a default is left out
    assert mark and rest.startswith(" 1/1")


@pytest.mark.parametrize(("recipe", "named", "not_named"), [
    ("sft", "data=FILE.jsonl", "zzz"), ("dpo", "data=FILE.jsonl", "zzz"), ("grpo", "--task FILE", "data="),
    ("process", "--task FILE", "data="), ("pretrain", "pretrain:tiny", "--task"),
])
def test_of_what_names_the_ways_there_are(here, capsys, recipe, named, not_named):
    assert main(["train", recipe]) == 2
    said = capsys.readouterr().err
    assert f"{recipe} of what? Name " in said and named in said and not_named not in said


def test_the_entry_point_is_the_one_that_hears_ctrl_c():
    """`postgrad` and `python -m postgrad` are one."""
    text = (ROOT / "pyproject.toml").read_text()
    assert 'postgrad = "postgrad.__main__:main"' in text
    done = subprocess.run([sys.executable, "-m", "postgrad", "--version"], capture_output=True, text=True)
    assert done.stdout.startswith("postgrad ") and done.returncode == 0

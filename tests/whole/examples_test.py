"""Every file in examples/ runs as it stands, in a folder of its own; those for TRL have their own test."""

import ast
import runpy
from pathlib import Path

import pytest
from paths import ROOT

import postgrad as pg

FOLDER = ROOT / "examples"
FILES = sorted(FOLDER.glob("*.py"))


def header(path):
    return ast.get_docstring(ast.parse(path.read_text())) or ""


RUN = [path for path in FILES if "needs a GPU" not in header(path)]


@pytest.mark.parametrize("path", RUN, ids=lambda p: p.stem)
def test_an_example_runs(path, tmp_path, monkeypatch, capsys):
    """It says something, and every run that it leaves is at its end, or was ended by the example itself."""
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out.strip()
    runs = [pg.Run.open(found.parent) for found in Path("runs").glob("**/run.json")]
    assert runs and all(run.metrics() for run in runs)
    states = {run.folder.name: run.state() for run in runs}
    states.pop("until", None)  # the example on callbacks ends that one
    assert all(state["state"] == "done" for state in states.values())
    check = globals().get(f"check_{path.stem}")
    if check:
        check({run.folder.name: run for run in runs})


def check_own_reward(runs):
    """It learns: the mean of the last steps is above that of the first."""
    rewards = [row["reward"] for row in runs["brief"].metrics()]
    assert sum(rewards[-5:]) > sum(rewards[:5]) + 0.5


def check_own_method(runs):
    """By name and by object it is the same row; its constant changes what it does."""
    losses = {name: [row["loss"] for row in run.metrics()] for name, run in runs.items()}
    assert losses["soft-by-name"] == losses["soft-by-object"] != losses["sharp"]
    assert runs["sharp"].info["row"]["constants"]["sharpness"] == 8.0


def check_own_preference_loss(runs):
    first, *_, last = runs["hinge"].evaluations()
    assert first["margin"] == pytest.approx(0, abs=1e-5) and last["margin"] > 1


def check_sft_then_grpo(runs):
    assert runs["grpo"].config["model"] == str(runs["sft"].folder)


def check_callback(runs):
    assert runs["until"].state()["error"].startswith("GoodEnough: reward")


def check_reward_then_ppo(runs):
    assert runs["ppo"].config["reward"] == str(runs["reward"].folder) and runs["ppo"].info["judged_by"]


def check_lora(runs):
    names = {path.name for path in Path("models/lora-adapter").iterdir()}
    assert names == {"README.md", "adapter_config.json", "adapter_model.safetensors"}


def test_every_example_says_what_it_shows_and_how_it_is_run():
    assert len(FILES) >= 8
    for path in FILES:
        assert f"examples/{path.name}" in header(path) and len(header(path).splitlines()[0]) > 20, path.name

"""The command as a newcomer meets it: bad input gets one sentence and code 2, and leaves nothing behind."""

import json
import subprocess
import sys
from dataclasses import fields, replace

import pytest
from hostile import mistakes

from postgrad import cli
from postgrad.cli import main
from postgrad.cli.train import DemoOptions
from postgrad.methods import METHODS


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where mistakes are made: each leaves it as it was."""
    folder = tmp_path_factory.mktemp("mistakes")
    mistakes.lay(folder)
    return folder


@pytest.mark.parametrize("mistake", mistakes.MISTAKES, ids=lambda mistake: mistake.line)
def test_a_mistake_gets_a_sentence_and_leaves_nothing(folder, mistake):
    answer, faults = mistakes.try_one(mistake, folder)
    assert not faults, answer
    assert answer.seconds < mistakes.BUDGET and answer.said.startswith("postgrad")


def test_unknown_options_are_refused(capsys):
    with pytest.raises(SystemExit) as end:
        main(["train", "grpo:words", "--stepz", "3"])
    assert end.value.code == 2 and "--stepz" in capsys.readouterr().err


@pytest.mark.parametrize("line, code", [
    ("eval --json", "usage"), ("train nothing --json", "input"),
    ("train grpo:words --stepz 3 --json", "usage"),
    ("train grpo:words --learning-rate 3 --json", "input"), ("runs nowhere --json", "input")])
def test_with_json_a_mistake_is_an_object_with_its_code(here, line, code, capsys):
    try:
        status = main(line.split())
    except SystemExit as end:
        status = end.code
    captured = capsys.readouterr()
    error = json.loads(captured.out)["error"]
    assert status == 2 and error["code"] == code and error["message"] in captured.err


def test_with_json_a_file_that_cannot_be_read_is_an_object_too(here, monkeypatch, capsys):
    def refuse(options):
        raise PermissionError(13, "Permission denied", "runs/a")
    command = next(c for c in cli.COMMANDS if c.name == "runs")
    monkeypatch.setattr(cli, "COMMANDS", (command._replace(run=refuse),))
    assert main(["runs", "--json"]) == 2
    assert json.loads(capsys.readouterr().out) == {
        "error": {"code": "file", "message": "runs/a: Permission denied."}}


def test_light_commands_import_no_torch():
    code = ("import sys, postgrad; from postgrad.cli import main; main([]); main(['explain', 'kl']); "
            "assert 'torch' not in sys.modules and 'rich' not in sys.modules")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).returncode == 0


def test_methods_lists_every_row(capsys):
    assert main(["methods", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [r["name"] for r in rows] == list(METHODS) and all(r["paper"] for r in rows)
    assert main(["methods", "dapo"]) == 0
    assert "clipped_ratio(low=0.2, high=0.28)" in capsys.readouterr().out


def test_every_metric_of_a_run_is_explained(here, capsys):
    change = ("steps=2 rollouts.prompts=8 rollouts.prompts_per_step=2 rollouts.group_size=2 "
              "rollouts.max_new_tokens=12 evaluation.every=0")
    assert main(["train", "grpo:words", *change.split(), "--run", "runs/a", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "done"
    row = json.loads((here / "runs/a/metrics.jsonl").read_text().splitlines()[0])
    for name in row.keys() - {"step"}:
        assert main(["explain", name]) == 0, name
    capsys.readouterr()
    assert main(["runs", "--json"]) == 0
    assert [r["name"] for r in json.loads(capsys.readouterr().out)] == ["a"]
    assert main(["eval", "runs/a", "--task", "arithmetic", "--problems", "3", "--samples", "2",
                 "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert 0 <= row["pass@1"] <= row["pass@2"] <= 1
    assert main(["chat", "runs/a", "--prompt", "What is 2+3?", "--json"]) == 0
    assert isinstance(json.loads(capsys.readouterr().out)["replies"][0]["reply"], str)


def test_a_run_started_again_from_its_saved_config_is_the_same(here, capsys):
    change = "steps=2 examples=16 rows_per_step=4 seed=5"
    assert main(["train", "sft:words", *change.split(), "--run", "a", "--json"]) == 0
    assert main(["train", "sft:words", *change.split(), "--run", "b", "--json"]) == 0
    weights = [(here / name / "checkpoints/000002/model.safetensors").read_bytes() for name in "ab"]
    assert weights[0] == weights[1]
    assert (json.loads((here / "a/config.json").read_text())
            == json.loads((here / "b/config.json").read_text()))


def test_the_quick_demo_is_a_quarter_of_the_work():
    """As `demo --help` says: a promise of seconds would hold on one machine alone."""
    from postgrad.recipes.pipelines import demo
    whole, quick = demo.DemoConfig(seed=0), demo.quick_demo(0)
    shares = [getattr(quick, name) / getattr(whole, name)
              for name in ("sft_steps", "sft_examples", "rl_steps", "problems")]
    assert all(0.15 <= share <= 0.3 for share in shares)
    (said,) = (f.metadata["about"] for f in fields(DemoOptions) if f.name == "quick")
    assert "a quarter of the work" in said and "second" not in said


def test_the_demo_writes_its_figures_and_keeps_an_older_one(here, capsys, monkeypatch):
    from postgrad.recipes import rollouts, sft
    from postgrad.recipes.pipelines import demo
    texts, words = sft.sft_on_words(), rollouts.rollouts_on_words()
    few = replace(words.rollouts, prompts=4, prompts_per_step=2, group_size=2, max_new_tokens=12)
    monkeypatch.setattr(sft, "sft_on_words", lambda: replace(texts, rows_per_step=2))
    monkeypatch.setattr(rollouts, "rollouts_on_words", lambda: replace(words, rollouts=few))
    short = replace(demo.quick_demo(0), sft_steps=2, sft_examples=50, rl_steps=2, problems=3, samples=2)
    monkeypatch.setattr(demo, "quick_demo", lambda seed: replace(short, seed=seed))
    (here / "runs/demo").mkdir(parents=True)
    (here / "runs/demo/summary.json").write_text("the one before")
    assert main(["demo", "--quick"]) == 0
    out = capsys.readouterr().out
    assert all(word in out for word in ("base", "sft", "rl", "pass@1", "Next:", "report.html"))
    summary = json.loads((here / "runs/demo/summary.json").read_text())
    assert [s["name"] for s in summary["stages"]] == ["base", "sft", "rl"]
    for stage in summary["stages"]:
        low, high = stage["pass@1_interval"]
        assert 0 <= low <= stage["pass@1"] <= high <= 1
        assert stage.keys() >= {"pass@2", "greedy", "mean_length", "seconds", "format"}
    assert (summary["seconds_total"] > 0
            and (here / "runs/demo-1/summary.json").read_text() == "the one before")
    assert "<svg" in (here / "runs/demo/report.html").read_text()

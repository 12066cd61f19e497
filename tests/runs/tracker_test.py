"""Trackers: the example of the docs by object, by file and by name; a tracker that raises."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from doors import QUESTIONS, fit, letters

import postgrad as pg
from postgrad.cli import main
from postgrad.cli.train import split_trackers
from postgrad.runs.tracker import HOOKS, TRACKERS, open_tracker

HOME = Path(__file__).resolve().parents[2]
EXAMPLE = HOME / "examples/own_tracker.py"
SMALL = ("steps=2 save_every=2 rollouts.prompts_per_step=2 rollouts.group_size=2 rollouts.max_new_tokens=8 "
         "evaluation.every=2 evaluation.problems=2 evaluation.samples=2").split()


def test_the_page_has_the_example_as_it_is():
    """And it is one file of at most 30 lines."""
    (code,) = re.findall(r"```python\n(.*?)```", (HOME / "docs/trackers.md").read_text(), flags=re.DOTALL)
    example = EXAMPLE.read_text()
    assert len(example.splitlines()) <= 30 and len(code.splitlines()) <= 30
    assert code.rpartition("tracker =")[0].strip() in example
    for hook in HOOKS:
        assert f"`{hook}(" in (HOME / "docs/trackers.md").read_text()


def test_from_the_command_line_and_from_python(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "grpo:arithmetic", *SMALL, "--run", "runs/a", "--track", str(EXAMPLE)]) == 0
    best = json.loads(Path("best.json").read_text())
    rows = pg.Run.open("runs/a").rows("evals")[0]
    assert [row["step"] for row in rows] == [0, 2] and best["pass@1"] == max(row["pass@1"] for row in rows)
    assert f"done: best at step {best['step']}" in capsys.readouterr().out
    mine = sys.modules["postgrad_tracker_own_tracker"].BestSoFar
    monkeypatch.setattr(TRACKERS, "entries", {})
    pg.register_tracker("best", mine)
    for given in ("best", str(EXAMPLE), f"{EXAMPLE}:BestSoFar", mine, mine()):
        assert type(open_tracker(given)).__name__ == "BestSoFar"
    fit(tmp_path, "nano", task="arithmetic", trackers=["best"], display=False,
        evaluation={"every": 2, "problems": 2, "samples": 2})
    assert capsys.readouterr().out.startswith("done: best at step ")


def test_one_that_raises_is_named(tmp_path, monkeypatch, capsys):
    file = tmp_path / "broken.py"
    file.write_text("import postgrad\n\n\nclass Broken(postgrad.Tracker):\n"
                    "    def on_step(self, step, metrics):\n"
                    "        metrics['no such metric']\n\n\ntracker = Broken()\n")
    monkeypatch.chdir(tmp_path)
    assert main(["train", "grpo:arithmetic", *SMALL, "--run", "runs/a", "--track", str(file)]) == 2
    assert ("postgrad: KeyError: 'no such metric' (raised by on_step of tracker Broken: mend it, and resume "
            "the run)." in capsys.readouterr().err)
    assert pg.Run.open("runs/a").state()["state"] == "failed"
    assert main(["resume", "runs/a", "--json"]) == 0


@pytest.mark.parametrize(("does", "words"), [
    ("while True: pass", "TimeoutError: it took over 0.2 s; its attribute `seconds` allows more"),
    ("raise SystemExit(3)", "RuntimeError: it ended the process with 3"),
    ("return 5 if step == 0 else 'nonsense'", "ValueError: it returned 'nonsense', where a hook")])
def test_one_that_hangs_exits_or_returns_nonsense_is_named(does, words, tmp_path, monkeypatch, capsys):
    file = tmp_path / "broken.py"
    file.write_text("import postgrad\n\n\nclass Broken(postgrad.Tracker):\n    seconds = 0.2\n\n"
                    f"    def on_step(self, step, metrics):\n        {does}\n\n\ntracker = Broken()\n")
    monkeypatch.chdir(tmp_path)
    assert main(["train", "grpo:arithmetic", *SMALL, "--run", "runs/a", "--track", str(file)]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert words in said and "raised by on_step of tracker Broken: mend it, and resume the run" in said
    assert pg.Run.open("runs/a").state()["state"] == "failed"


def test_all_are_told_of_the_end_also_where_one_raises(tmp_path):
    ends = []

    class Loud(pg.Tracker):
        def on_end(self, state, error):
            ends.append((state, error))
            raise LookupError("at the end")

    with pytest.raises(LookupError, match="at the end"):
        fit(tmp_path, "nano", task=QUESTIONS, reward=letters, trackers=[Loud(), Loud()])
    assert ends == [("done", None)] * 2 and pg.Run.open(tmp_path / "run").state()["state"] == "done"


@pytest.mark.parametrize(("given", "words"), [
    (5, "tracker 5 has no on_start, on_step, on_eval"), ("nobody", "there is no tracker 'nobody'"),
    ("nowhere.py", "there is no file 'nowhere.py'"), (object(), "subclass postgrad.Tracker")])
def test_what_is_no_tracker(given, words):
    with pytest.raises(ValueError, match=words):
        open_tracker(given)


def test_a_tracker_of_another_package_is_a_process_of_its_own(tmp_path, monkeypatch, capsys):
    """It follows the run to its end; one that dies is named, and the training is done."""
    program = tmp_path / "program.py"
    program.write_text("import sys; open(sys.argv[3] + '/seen', 'a').write(' '.join(sys.argv[1:]) + '\\n'); "
                       "sys.exit(len(sys.argv) < 2)")
    real, started = subprocess.Popen, []

    def popen(words, **how):
        if words[0] == "git":
            return real(words, **how)
        started.append(words[1:])
        return real([sys.executable, str(program), *words[2:]], **how)

    monkeypatch.setattr("postgrad.runs.backends.find_spec", lambda name: name)
    monkeypatch.setattr("postgrad.runs.tracker.subprocess.Popen", popen)
    monkeypatch.chdir(tmp_path)
    assert main(["train", "grpo:arithmetic", *SMALL, "--run", "a", "track=wandb,mlflow", "--json"]) == 0
    folder = str(tmp_path / "a")
    assert started == [["-m", "postgrad", "track", folder, "--to", name] for name in ("wandb", "mlflow")]
    assert len(Path("a/seen").read_text().splitlines()) == 2 and capsys.readouterr().err == ""
    program.write_text("print('no network'); raise SystemExit(3)")
    run = fit(tmp_path, "nano", "b", task=QUESTIONS, reward=letters, trackers=["wandb"])
    assert run.state()["state"] == "done" and run.config.get("track") is None
    said = capsys.readouterr().err
    assert "wandb ended with code 3" in said and "`postgrad track" in said
    assert (run.folder / "trackers/wandb.log").read_text() == "no network\n"


@pytest.mark.parametrize(("flags", "words", "trackers"), [
    ([], ["lr=1"], []), (["a.py"], ["track=wandb,mlflow", "lr=1"], ["a.py", "wandb", "mlflow"]),
    (["wandb,b.py:MINE"], ["lr=1"], ["wandb", "b.py:MINE"])])
def test_trackers_on_the_command_line(flags, words, trackers):
    assert split_trackers(flags, words) == (trackers, ["lr=1"])

"""Resuming: a run changes only once resuming has begun, a finished one says so, and more steps extend it."""

import json

import pytest

import postgrad as pg
from postgrad.cli import main
from postgrad.runs import Run
from postgrad.system.throughput import repeatable

SMALL = ["rows_per_step=2", "examples=24", "save_every=2"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def train(name, *changes):
    assert main(["train", "sft:words", *SMALL, *changes, "--run", name, "--json"]) == 0
    return Run.open(name)


def files(run):
    """Every file of the run but the lock, as bytes."""
    return {p.relative_to(run.folder): p.read_bytes() for p in run.folder.rglob("*")
            if p.is_file() and p.name != "lock"}


def lines(run):
    """The log without the clock."""
    return [repeatable(row) for row in run.rows("metrics")[0]]


def test_a_finished_run_says_so_and_stays_as_it_is(here, capsys):
    run = train("run", "steps=4")
    before = files(run)
    capsys.readouterr()
    assert main(["resume", "run"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("run is finished: 4 of 4 steps") and "postgrad resume run steps=8" in said
    assert main(["resume", "run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["step"] == 4
    assert pg.resume("run").state()["state"] == "done"
    assert capsys.readouterr().out == said
    assert files(run) == before


@pytest.mark.parametrize(("words", "sentence"), [
    (["steps=3"], "has made 4 steps already: steps=3 leaves nothing to do"),
    (["steps=0"], "at least 1"), (["steps=many"], "steps='many': expected a whole number"),
    (["lr=1e-4"], "'lr=1e-4': a run is resumed with the settings it began with"),
    (["steps"], "'steps': a run is resumed"),
])
def test_a_resume_that_cannot_be_leaves_the_run_as_it_is(here, capsys, words, sentence):
    run = train("run", "steps=4")
    before = files(run)
    capsys.readouterr()
    assert main(["resume", "run", *words]) == 2
    said = capsys.readouterr().err.strip().splitlines()
    assert len(said) == 1 and sentence in said[0]
    assert files(run) == before


@pytest.mark.parametrize("state", ["done", "stopped"])
def test_a_resume_that_fails_while_building_leaves_the_run_as_it_is(here, capsys, monkeypatch, state):
    run = train("run", "steps=4")
    run.status(state)
    before = files(run)

    def fails(*_, **__):
        raise ValueError("no memory left")

    monkeypatch.setattr("postgrad.recipes.running.restore_state", fails)
    assert main(["resume", "run", "steps=8"]) == 2
    assert "no memory left" in capsys.readouterr().err
    assert files(run) == before and run.state()["state"] == state and not run.alive()


def test_more_steps_extend_a_finished_run(here, capsys):
    """Under a constant rate to the very run that had so many from the beginning; the rows there were stay."""
    whole = train("whole", "steps=16", "save_every=8", "optim.schedule=constant", "optim.warmup=0")
    run = train("run", "steps=4", "save_every=8", "optim.schedule=constant", "optim.warmup=0")
    first = (run.folder / "metrics.jsonl").read_bytes()
    capsys.readouterr()
    assert main(["resume", "run", "steps=16"]) == 0
    said = capsys.readouterr()
    assert "16 steps instead of 4: the rate goes on as in a run of 16 (optim.schedule=constant)" in said.err
    assert "step 16/16 (100 %)" in said.out
    run = Run.open("run")
    assert (run.folder / "metrics.jsonl").read_bytes().startswith(first)
    assert lines(run) == lines(whole) and len(lines(run)) == 16
    assert (run.info["steps"], run.config["steps"], run.state()["steps"]) == (16, 16, 16)
    ends = [r.folder / "checkpoints/000016/model.safetensors" for r in (run, whole)]
    assert ends[0].read_bytes() == ends[1].read_bytes()


def test_a_falling_rate_is_that_of_the_longer_run_and_said_to_be(here, capsys):
    train("run", "steps=4", "optim.lr=1e-3", "optim.warmup=0")
    first = (here / "run/metrics.jsonl").read_bytes()
    run = pg.resume("run", steps=8)
    assert "(optim.schedule=linear), 0.0005 at step 5, after 0.00025 at step 4" in capsys.readouterr().err
    assert (here / "run/metrics.jsonl").read_bytes().startswith(first)
    assert [round(row["lr"], 7) for row in run.metrics()[4:]] == [5e-4, 3.75e-4, 2.5e-4, 1.25e-4]
    assert [row["kind"] for row in run.rows("events")[0]][-1] == "steps"


def test_a_damaged_checkpoint_that_is_passed_over_is_said(here, capsys):
    run = train("run", "steps=4")
    (run.folder / "checkpoints/000004/model.safetensors").write_bytes(b"damage")
    assert main(["chat", "run", "--prompt", "What is 2+3?", "--json"]) == 0
    assert capsys.readouterr().err.count("run is opened at step 2; passed over: checkpoint of step 4") == 1
    assert main(["resume", "run"]) == 0
    said = capsys.readouterr().err
    assert "passed over: checkpoint of step 4 is damaged" in said and "model.safetensors" in said
    assert Run.open("run").state()["state"] == "done" and list(Run.open("run").checkpoints())[-1] == 4


def test_a_checkpoint_that_is_named_by_its_path_is_held_against_its_manifest(here, capsys):
    run = train("run", "steps=4")
    path = run.folder / "checkpoints/000004"
    assert main(["chat", str(path), "--prompt", "What is 2+3?", "--json"]) == 0
    flipped = bytearray((path / "model.safetensors").read_bytes())
    flipped[-7] ^= 4
    (path / "model.safetensors").write_bytes(flipped)
    capsys.readouterr()
    assert main(["chat", str(path), "--prompt", "What is 2+3?", "--json"]) == 2
    assert "model.safetensors has other contents than were saved" in capsys.readouterr().err


@pytest.mark.parametrize("adapter", [[], ["lora=4"]])
def test_weights_alone_are_saved(here, capsys, adapter):
    """About a third of the bytes; a model like any other; a resume says what to do instead."""
    whole = train("whole", "steps=4", *adapter)
    run = train("run", "steps=4", "save_optimizer=false", *adapter)

    def size(run):
        return sum(file.stat().st_size for file in run.checkpoints()[4].rglob("*") if file.is_file())

    assert not [*run.folder.rglob("state.*")] and lines(run) == lines(whole)
    assert size(run) < (0.4 if not adapter else 0.95) * size(whole)
    assert pg.load_model("run").reply("2 + 2?", seed=1) == pg.load_model("whole").reply("2 + 2?", seed=1)
    assert main(["resume", "run"]) == 0 and "run is finished" in capsys.readouterr().out
    with pytest.raises(ValueError, match=r"saved its weights alone \(save_optimizer=false\), so it cannot go "
                                         r"on: start a new run from them with model=run\."):
        pg.resume("run", steps=8)
    assert len(lines(train("further", "steps=2", "model=run", *adapter))) == 2


def test_a_run_of_weights_alone_that_is_stopped_says_how_it_goes_on(here, capsys):
    (here / "stop.py").write_text("import postgrad as pg\n\nclass tracker(pg.Tracker):\n"
                                  "    def on_step(self, step, metrics):\n        return 'stop'\n")
    for words, said in (([], "Go on with: postgrad resume run0"),
                        (["save_optimizer=false"], "Go on with: a new run from its weights, model=run1")):
        name = f"run{len(words)}"
        assert main(["train", "sft:words", *SMALL, *words, "--run", name, "--track", "stop.py"]) == 0
        assert said in capsys.readouterr().out and [*Run.open(name).checkpoints()] == [1]

"""A run whose folder is removed, moved or replaced while a process is at work in it."""

import shutil
from threading import Event

import pytest
from run_small import logged, make, put

from postgrad.recipes import running
from postgrad.recipes.base import TrainingSetup
from postgrad.recipes.rollouts import RolloutConfig
from postgrad.runs import Run, RunGone, Saves

WRITES = {
    "log": lambda run: run.log(2, {"loss": 0.5}), "eval": lambda run: run.log_eval(1, {"pass@1": 0.5}),
    "samples": lambda run: run.log_samples(1, [{"text": "x"}]), "event": lambda run: run.event("a", "b"),
    "status": lambda run: run.status("failed", error="x"), "save": lambda run: run.save(1, put("one")),
    "steps": lambda run: run.set_steps(9), "resume": lambda run: run.resume(),
}


def left_in(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*"))
            if path.is_file()}


@pytest.mark.parametrize("closed", [False, True], ids=["held", "closed"])
@pytest.mark.parametrize("write", WRITES)
def test_nothing_is_written_into_another_run_of_the_same_name(write, closed, tmp_path):
    first = logged(make(tmp_path / "run"), 1)
    if closed:
        first.close()
    shutil.rmtree(tmp_path / "run")
    make(tmp_path / "run").close()
    before = left_in(tmp_path / "run")
    with pytest.raises(RunGone, match="run is no longer the folder of this run: it was removed or replaced"):
        WRITES[write](first)
    assert left_in(tmp_path / "run") == before
    logged(Run.open(tmp_path / "run"), 1).save(1, put("its own"))  # the new run is whole, and free


@pytest.mark.parametrize("write", WRITES)
def test_a_folder_that_is_gone_is_not_made_again(write, tmp_path):
    first = logged(make(tmp_path / "run"), 1)
    (tmp_path / "run").rename(tmp_path / "moved")
    with pytest.raises(RunGone, match="Nothing more is written there"):
        WRITES[write](first)
    assert [place.name for place in tmp_path.iterdir()] == ["moved"]


def test_a_checkpoint_that_was_begun_does_not_land_in_another_run(tmp_path):
    first, writing, replaced = logged(make(tmp_path / "run"), 1), Event(), Event()

    def write(folder):
        put("one")(folder)
        writing.set()
        assert replaced.wait(10)

    with pytest.raises(RunGone), Saves(first) as saves:
        saves.start(1, write, 10)
        assert writing.wait(10)
        shutil.rmtree(tmp_path / "run")
        second = make(tmp_path / "run")
        (tmp_path / "run/checkpoints").mkdir(exist_ok=True)
        before = left_in(tmp_path / "run")
        replaced.set()
    assert left_in(tmp_path / "run") == before and not second.checkpoints()


def test_a_training_run_stops_with_the_sentence(tmp_path, monkeypatch):
    first = logged(make(tmp_path / "run"), 1)

    def train(models, batches, objective, optim, run, hooks, meanwhile):
        shutil.rmtree(tmp_path / "run")
        make(tmp_path / "run").close()
        run.log(2, {"loss": 0.5})

    monkeypatch.setattr(running, "train", train)
    monkeypatch.setattr(running, "step_hooks", lambda *args: [])
    monkeypatch.setattr(running, "metric_limits", lambda config: [])
    parts = TrainingSetup(models=None, chat=None, batches=None, objective=None, optim=None)
    with pytest.raises(RunGone):
        running.train_to_end(first, parts, RolloutConfig(task="words", method="grpo"))
    assert Run.open(tmp_path / "run").next_step == 1
    assert Run.open(tmp_path / "run").state()["state"] != "failed"

"""Sending a run out of its folder: what is complete, a rewind, a tracker that ends, one process at a time."""

import math

import pytest
from tracker_small import advance, make_run

from postgrad.cli import main
from postgrad.runs import Run, disk
from postgrad.runs.backends import BACKENDS, Backend
from postgrad.runs.follow import RunTail, follow_run, tracked_run


class Listed(Backend):
    """A tracker that keeps what it is sent for as long as the class lives."""

    steps, samples, ends = [], [], []

    def __init__(self, run):
        self.last_step = max((step for step, _ in self.steps), default=-1)
        self.last_rollouts = max((step for step, _ in self.samples), default=-1)

    def log(self, step, figures):
        self.steps.append((step, figures))

    def log_rollouts(self, step, rows):
        self.samples.append((step, len(rows)))

    def end(self, state):
        self.ends.append(state)


@pytest.fixture
def listed(monkeypatch):
    for name in ("steps", "samples", "ends"):
        monkeypatch.setattr(Listed, name, [])
    monkeypatch.setitem(BACKENDS, "wandb", Listed)
    return Listed


def test_a_step_is_sent_when_nothing_more_comes_for_it(tmp_path, listed):
    run, looks = advance(make_run(tmp_path / "a", 6), 3), []

    def wait():
        looks.append(([step for step, _ in listed.steps], [step for step, _ in listed.samples]))
        advance(run, min(run.next_step, 6))
        if len(looks) == 3:
            advance(run, 6)
            run.status("done")

    assert follow_run(Run.open(run.folder), "wandb", wait) == (7, "done")
    assert looks == [([0, 1, 2], [1, 2]), ([0, 1, 2, 3], [1, 2, 3]), ([0, 1, 2, 3, 4], [1, 2, 3, 4])]
    assert [step for step, _ in listed.steps] == [0, 1, 2, 3, 4, 5, 6] and listed.ends == ["done"]
    figures = dict(listed.steps)[3]
    assert (figures["eval/pass@1"], figures["eval/pass@1_high"], figures["odd"]) == (0.03, 0.06, math.inf)
    assert dict(listed.steps)[0] == {"eval/pass@1": 0.125, "eval/pass@1_low": 0.0, "eval/pass@1_high": 0.5}


def test_a_run_that_died_holds_its_last_step_back(tmp_path, listed):
    """A resume does it again."""
    run = advance(make_run(tmp_path / "a", 8), 4)
    run.save(4, lambda folder: (folder / "weights").write_bytes(b"w"))
    advance(run, 7)
    run.close()
    assert follow_run(Run.open(run.folder), "wandb", lambda: 1 / 0) == (7, "interrupted")
    again = Run.open(run.folder)
    again.resume()
    advance(again, 8)
    again.status("done")
    assert follow_run(Run.open(run.folder), "wandb", lambda: 1 / 0) == (2, "done")
    assert [step for step, _ in listed.steps] == [*range(9)]
    assert listed.samples == [(step, 2) for step in range(1, 9)]


@pytest.mark.parametrize("between", [0, 1, 9])
def test_a_rewind_between_two_looks(tmp_path, between):
    """However far the run has come again: every step comes again, and none is left out."""
    run = advance(make_run(tmp_path / "a", 20), 4)
    run.save(4, lambda folder: (folder / "weights").write_bytes(b"w"))
    tail = RunTail(run=Run.open(advance(run, 9).folder))
    assert [*tail.read().figures] == [*range(9)]
    run.resume()
    advance(run, 4 + between)
    seen = tail.read()
    assert seen.rewound and [*seen.figures] == [*range(4 + between)]
    advance(run, 20)
    run.status("done")
    assert [*tail.read().figures] == [*range(4 + between, 21)]


def test_the_id_stays_when_a_run_is_renamed_or_longer(tmp_path):
    run = make_run(tmp_path / "a", 5)
    before = tracked_run(run)
    run.set_steps(9)
    run.close()
    run.folder.rename(tmp_path / "b")
    after = tracked_run(Run.open(tmp_path / "b"))
    assert (after.id, after.name) == (before.id, "b") and after.config["optim.lr"] == 1e-3
    assert tracked_run(make_run(tmp_path / "c", 5)).id != before.id


def test_one_process_at_a_time(tmp_path, listed):
    run = advance(make_run(tmp_path / "a", 2), 2)
    run.status("done")
    (run.folder / "trackers").mkdir()
    lock = disk.take_lock(run.folder / "trackers/wandb.lock")
    with pytest.raises(ValueError, match="another process sends .* to wandb now"):
        follow_run(run, "wandb", lambda: None)
    disk.os.close(lock)
    assert follow_run(run, "wandb", lambda: None) == (3, "done")


def test_a_tracker_that_fails_is_a_sentence(tmp_path, listed, monkeypatch, capsys):
    def log(self, step, figures):
        raise RuntimeError("no room left")

    monkeypatch.setattr(Listed, "log", log)
    monkeypatch.setattr("postgrad.runs.backends.find_spec", lambda package: package)
    advance(make_run(tmp_path / "a", 2), 2).status("done")
    assert main(["track", str(tmp_path / "a"), "--to", "wandb"]) == 2
    assert "wandb took no more of" in (said := capsys.readouterr().err) and "no room left" in said

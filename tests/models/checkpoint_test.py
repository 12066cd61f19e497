"""Checkpoints written while the run goes on: what they hold, who waits for whom, how a failed one is told."""

from __future__ import annotations

from threading import Event

import pytest
import torch
from run_small import logged, make, put
from small import CHAT, small_model

from postgrad.models import checkpoint, load_model
from postgrad.models.checkpoint import copy_state, read_state
from postgrad.runs import Saves


@pytest.mark.parametrize("stays", [False, True])
def test_a_copy_is_of_its_moment_whatever_the_next_steps_do(stays, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "gpu_has_room", lambda size, devices: stays)
    policy, moment = small_model(), torch.ones(3)
    before = {name: x.clone() for name, x in policy.state_dict().items()}
    write = copy_state({"optim": {"moment": moment}}, policy=policy, chat=CHAT)
    with torch.no_grad():
        moment += 1
        for x in policy.parameters():
            x.add_(1)
    write(tmp_path)
    assert read_state(tmp_path)["optim"]["moment"].tolist() == [1, 1, 1]
    saved = load_model(tmp_path).state_dict()
    assert all(torch.equal(saved[name], x) for name, x in before.items())


def test_the_run_goes_on_and_the_next_checkpoint_waits_for_the_last(tmp_path):
    run, may = logged(make(tmp_path / "run"), 1), Event()

    def slow(folder):
        assert may.wait(30)
        put("one")(folder)

    with Saves(run) as saves:
        saves.start(1, slow, 0)
        logged(run, 2)
        saves.check()
        assert not run.checkpoints()
        may.set()
        saves.start(2, put("two"), 0)
        assert 1 in run.checkpoints()
    assert sorted(run.checkpoints()) == [1, 2] and run.latest().name == "000002"


def test_a_checkpoint_that_fails_is_raised_where_the_run_looks_next(tmp_path):
    run = logged(make(tmp_path / "run"), 1)

    def broken(folder):
        raise RuntimeError("out of ideas")

    with pytest.raises(RuntimeError, match="out of ideas"), Saves(run) as saves:
        saves.start(1, broken, 0)
    with pytest.raises(RuntimeError, match="out of ideas"), Saves(run) as saves:
        saves.start(1, broken, 0)
        saves.wait()
        saves.check()
    with pytest.raises(ValueError, match="of its own") as found, Saves(run) as saves:
        saves.start(1, broken, 0)
        raise ValueError("an error of its own")
    assert found.value.__notes__ == ["a checkpoint could not be written either: out of ideas"]
    assert not run.checkpoints()


def test_an_interrupted_run_leaves_no_checkpoint_half_written(tmp_path):
    run, seen = logged(make(tmp_path / "run"), 1), Event()

    def slow(folder):
        assert seen.wait(30)
        put("one")(folder)

    with pytest.raises(KeyboardInterrupt), Saves(run) as saves:
        saves.start(1, slow, 0)
        seen.set()
        raise KeyboardInterrupt
    assert list(run.checkpoints()) == [1]


@pytest.mark.parametrize(("free", "stays"), [(1000, True), (799, False)])
def test_copies_stay_on_a_gpu_that_has_twice_their_room(free, stays, monkeypatch):
    known = {"mem_get_info": (free - 300, 10_000), "memory_reserved": 500, "memory_allocated": 200}
    for name, value in known.items():
        monkeypatch.setattr(torch.cuda, name, lambda device, value=value: value)
    assert checkpoint.gpu_has_room(400, {torch.device("cpu"), torch.device("cuda", 0)}) is stays
    assert not checkpoint.gpu_has_room(400, {torch.device("cpu")})

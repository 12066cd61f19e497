"""A slice of proofs/faults.py: numbers that are none, flipped bits, clocks that jump, folders that move."""

import random
import shutil

import faults_small
import forks
import kills
import pytest
from faults_small import PLACES

from postgrad.cli import main
from postgrad.runs import Run


@pytest.mark.parametrize("place", PLACES)
def test_a_number_that_is_none_is_named_at_its_step_and_changes_nothing(place, tmp_path):
    value = PLACES[place][-1]
    row = faults_small.numeric_fault(place, value, random.Random(place), tmp_path)
    assert faults_small.is_caught(row), row


@pytest.mark.parametrize(("recipe", "words"), [("sft", "holds 1 weights that are no finite numbers"),
                                               ("grpo", "no distribution")])
def test_a_model_with_a_damaged_weight_is_refused_at_the_first_step(recipe, words, tmp_path, capsys):
    model = faults_small.damaged_model(tmp_path / "model", "nan", random.Random(recipe))
    changes = [word for word in kills.SMALL[recipe] if not word.startswith("model=")]
    assert main(["train", *changes, f"model={model}", "--run", str(tmp_path / "run")]) == 2
    said = capsys.readouterr().err
    assert words in said and "Traceback" not in said


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    run = tmp_path_factory.mktemp("faults") / "run"
    assert main([*kills.train_args("sft", run)]) == 0
    return run


def test_flipped_bits_of_a_checkpoint_are_found_and_the_one_before_is_offered(whole):
    assert faults_small.flip_bits(whole, 12, random.Random(0)) == []


def test_a_run_that_was_copied_or_moved_goes_on_to_the_same_bits(whole, tmp_path, capsys):
    shutil.copytree(whole, tmp_path / "copy")
    run = Run.open(tmp_path / "copy")
    run.go_back(next(iter(run.checkpoints().values())))
    run.close()
    shutil.move(tmp_path / "copy", tmp_path / "elsewhere")
    assert main(["resume", str(tmp_path / "elsewhere")]) == 0
    assert kills.differences(kills.facts(whole), tmp_path / "elsewhere") == []
    capsys.readouterr()


def test_a_clock_that_jumps_changes_no_bit(whole, tmp_path, monkeypatch, capsys):
    with monkeypatch.context() as patch:
        patch.setattr(faults_small.time, "time", faults_small.time.time)
        faults_small.jump(3e8)
        assert main([*kills.train_args("sft", tmp_path / "run")]) == 0
        assert Run.open(tmp_path / "run").summary()["state"] == "done"
    assert kills.differences(kills.facts(whole), tmp_path / "run") == []
    capsys.readouterr()


def test_a_kill_before_an_evaluation_is_written_and_one_in_the_save_after(tmp_path, monkeypatch):
    monkeypatch.setattr(kills, "spawn",
                        lambda args, *, at=0, number=9: forks.run("kills:child", at, number, args))
    kills.left_alone("grpo", tmp_path / "alone")
    alone = kills.facts(tmp_path / "alone")
    run = tmp_path / "killed"
    assert kills.spawn(kills.train_args("grpo", run), at="eval:2")[0] == -9
    assert kills.spawn(["resume", str(run), "--json"], at="save:3")[0] == -9
    assert list((run / "checkpoints").glob(".tmp*"))
    kills.finish("grpo", run)
    assert kills.differences(alone, run) == []

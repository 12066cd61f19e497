"""Trackers of other packages, each with its real package where it is installed, read back by its own reader.

All four have an environment in runs/proof-ecosystem/venv-trackers once `python proofs/ecosystem.py` ran.
"""

import json
import sys
from importlib.util import find_spec

import pytest
from tracker_small import PACKAGES, advance, compare, environment_of, make_run

from postgrad.cli import main
from postgrad.runs import Run
from postgrad.runs.backends import BACKENDS, check_installed
from postgrad.runs.follow import follow_run

ALL = {"missing": 0, "twice": 0, "unknown": 0, "different": 0, "timed_again": 0, "rollouts_equal": True}


@pytest.fixture
def place(tmp_path, tmp_path_factory, monkeypatch):
    """Where trackers write. trackio reads its folder once in a process, wandb until its teardown."""
    variables = environment_of(tmp_path) | {"TRACKIO_DIR": str(tmp_path_factory.getbasetemp() / "trackio")}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    if "wandb" in sys.modules:
        sys.modules["wandb"].teardown()


@pytest.fixture(params=PACKAGES)
def name(request):
    if find_spec(PACKAGES[request.param]) is None:
        pytest.skip(f"the extra postgrad[{request.param}] is not installed")
    return request.param


class Killed(Exception):
    pass


def test_interrupted_and_gone_on_beside_a_training(name, place):
    """A tracker that ends in the middle, and another that goes on: nothing twice, nothing missing."""
    run = advance(make_run(place / "runs/a", 12), 5)

    def dies():
        if run.next_step > 8:
            raise Killed
        advance(run, run.next_step + 1)

    with pytest.raises(Killed):
        follow_run(Run.open(run.folder), name, dies)
    run.save(9, lambda folder: (folder / "weights").write_bytes(b"w"))
    advance(run, 11)

    def ends():
        advance(run, 12)
        run.status("done")

    steps, state = follow_run(Run.open(run.folder), name, ends)
    assert state == "done" and (steps == 13 if name == "tensorboard" else 0 < steps < 13)
    found = compare(name, run, place)
    assert found.items() >= ALL.items() and found["read"] == found["points"] > 60 and found["rollouts"] == 24


def test_a_run_that_went_back_to_a_checkpoint(name, place):
    run = advance(make_run(place / "runs/a", 6), 3)
    run.save(3, lambda folder: (folder / "weights").write_bytes(b"w"))
    advance(run, 5)
    looks = iter(range(9))

    def wait():
        if next(looks) == 0:
            run.resume()
            advance(run, 6)
            run.status("done")

    assert follow_run(Run.open(run.folder), name, wait)[1] == "done"
    assert compare(name, run, place).items() >= ALL.items()


def test_by_the_command_and_again(name, place, capsys):
    run = advance(make_run(place / "runs/a", 4), 4)
    run.status("done")
    again = {"tensorboard": 5, "mlflow": 1}.get(name, 0)  # the newest step may have come in part
    for steps in (5, again):
        assert main(["track", "runs/a", "--to", name, "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {"run": "runs/a", "to": name, "steps": steps,
                                                       "state": "done"}
    assert compare(name, run, place).items() >= ALL.items()


@pytest.mark.parametrize("name", BACKENDS)
def test_a_package_that_is_missing(name, monkeypatch):
    monkeypatch.setattr("postgrad.runs.backends.find_spec", lambda package: None)
    with pytest.raises(ValueError, match=rf"needs the package {name}: pip install 'postgrad\[{name}\]'"):
        check_installed(name)

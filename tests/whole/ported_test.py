"""Ten scripts of TRL and their ports: on the same rows and completions the same loss, and the same gradient
of every weight (examples/from_trl; TRL's side is recorded by tests/support/ported.py)."""

import json

import pytest
import torch
from ported import (
    GRADIENT,
    LOSS,
    NAMES,
    RECORDED,
    SCRIPTS,
    distance,
    make_place,
    ported_lines,
    run_port,
    sketch,
)

THEIRS = json.loads(RECORDED.read_text())


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return make_place(tmp_path_factory.mktemp("ported"))


@pytest.mark.parametrize("name", NAMES)
def test_a_port_computes_what_the_script_of_trl_did(name, place):
    theirs = THEIRS[name]
    mine = run_port(name, place, theirs["completions"])
    assert len(mine.steps) == len(theirs["steps"]) >= 2
    for step, recorded in zip(mine.steps, theirs["steps"], strict=True):
        assert [[list(tokens), list(mask)] for tokens, mask in step.rows] == recorded["rows"]
        assert step.loss == pytest.approx(recorded["loss"], abs=LOSS)
        assert step.norm == pytest.approx(recorded["norm"], rel=GRADIENT)
        assert step.gradients.keys() == recorded["gradients"].keys()
        for weight, gradient in step.gradients.items():
            sketched = recorded["gradients"][weight]
            assert distance(sketch(gradient), sketched, gradient.numel()) < GRADIENT, weight
    assert mine.losses == pytest.approx(theirs["losses"], abs=LOSS)
    assert mine.best == theirs["best"]


def test_sketches_estimate_the_distance_of_gradients():
    draw = torch.Generator().manual_seed(0)
    gradient, other = (torch.randn(64, 48, generator=draw) for _ in range(2))
    moved = gradient + 2e-4 * other
    moved *= gradient.norm() / moved.norm()
    true = float((gradient - moved).norm() / gradient.norm())
    assert 0.5 * true < distance(sketch(moved), sketch(gradient), gradient.numel()) < 2 * true


@pytest.mark.parametrize("name", NAMES)
def test_a_port_is_no_longer_than_its_script(name):
    theirs, mine, _ = ported_lines(name)
    assert mine < theirs


def test_every_script_is_run():
    there = {path.stem for path in SCRIPTS.glob("*.py")}
    assert there == {f"{name}{end}" for name in NAMES for end in ("", "_trl")}

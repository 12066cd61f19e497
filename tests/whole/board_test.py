"""The board: a line by default settings over three seeds, here with the embedded model on the CPU."""

import inspect
import io
import json
import subprocess
from contextlib import redirect_stdout
from types import SimpleNamespace

import harness
import board
import pytest

from postgrad.cli import main


def run_here(command, **how):
    """`python -m postgrad ...` in this process."""
    with redirect_stdout(io.StringIO()) as out:
        return subprocess.CompletedProcess(command, main(list(map(str, command[3:]))), out.getvalue())


@pytest.fixture(scope="module")
def line(tmp_path_factory):
    """A pipeline of a few steps, one seed of it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(board, "subprocess", SimpleNamespace(run=run_here))
        patch.setattr(harness, "python", lambda *words, **how: run_here(["python", *words]).stdout)
        return board.measure_line(tmp_path_factory.mktemp("board"), model="tiny", task="words", device="cpu",
                                  recipe="expert-iteration:quick", problems=4, seeds=[1])


def test_a_line_has_its_seeds_their_minutes_and_the_command(line):
    assert line["kind"] == "a pipeline" and list(line["after"]) == ["1"] and len(line["minutes"]) == 1
    assert line["command"] == "postgrad train expert-iteration:quick model=tiny task=words device=cpu seed=N"
    assert all(0 <= x[key] <= 1 for x in (line["before"], line["after"]["1"]) for key in ("pass@1", "greedy"))
    assert inspect.signature(board.measure_line).parameters["seeds"].default == (0, 1, 2)
    assert 0 < min(line["minutes"]) and "gpu" not in line["machine"]


def test_the_page_shows_all_seeds_and_replaces_a_line_of_the_same_work(line, tmp_path):
    path, clean = tmp_path / "board.json", line | {"commit": "0123456"}
    board.add_line(clean, path)
    better = {seed: {"pass@1": x, "pass@1_interval": [0, 1], "greedy": 0.5} for seed, x in
              zip("012", (0.1, 0.2, 0.6), strict=True)}
    board.add_line(clean | {"model": "other"}, path)
    page = board.add_line(clean | {"after": better, "minutes": [1.0, 2.0, 3.0]}, path).read_text()
    assert len(json.loads(path.read_text())) == 2
    assert "| 2.0 (1.0 to 3.0) |" in page and "| 30.0% (10.0%, 20.0%, 60.0%) |" in page
    assert "a pipeline, seeds 0, 1, 2, one after another" in page and "43.6 -> 50.2 %" in page
    with pytest.raises(SystemExit, match="uncommitted"):
        board.add_line(clean | {"commit": "0123456" + harness.UNCOMMITTED}, path)


def test_a_run_of_one_row_is_its_own_model(tmp_path):
    (tmp_path / "a").mkdir()
    assert board.trained_model(tmp_path / "a") == tmp_path / "a"
    (tmp_path / "a" / "pipeline.json").write_text(json.dumps({"steps": [
        {"kind": "run", "name": "sft"}, {"kind": "data", "name": "kept"}, {"kind": "run", "name": "last"},
        {"kind": "measurement", "name": "test"}]}))
    assert board.trained_model(tmp_path / "a") == tmp_path / "a" / "last"

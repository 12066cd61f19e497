"""The loops of examples/tinker run as they stand, by the real SDK, and each leaves a run of ours."""

import ast
import re
import runpy
import sys

import pytest
from paths import ROOT
from tinker_small import tinker_server

import postgrad as pg

FILES = sorted((ROOT / "examples" / "tinker").glob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_loop_runs_and_leaves_a_run(path, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TINKER_API_KEY", "tml-test")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with tinker_server(tmp_path) as (address, _):
        monkeypatch.setattr(sys, "argv", [str(path), address, "small", "2"])
        runpy.run_path(str(path), run_name="__main__")
    steps = re.findall(r"step (\d): \w+ (-?\d+\.\d+)", capsys.readouterr().out)
    assert [number for number, _ in steps] == ["0", "1"]
    (made,) = tmp_path.glob("tinker-*")
    run = pg.Run.open(made)
    assert [row["step"] for row in run.metrics()] == [1, 2]
    assert all(row["grad_norm"] > 0 for row in run.metrics()) and run.state()["state"] == "done"


def test_every_loop_says_what_it_shows_and_how_it_is_run():
    assert len(FILES) == 2
    for path in FILES:
        header = ast.get_docstring(ast.parse(path.read_text()))
        assert f"examples/tinker/{path.name}" in header and "postgrad serve" in header

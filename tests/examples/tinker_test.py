"""The loops of examples/tinker run as they stand, by the real SDK, and each leaves a run of ours."""

import ast
import re
import runpy
import sys
import threading
from contextlib import contextmanager

import pytest
from paths import ROOT

import postgrad as pg
from postgrad.recipes.serve import open_served
from postgrad.serving.app import create_app
from postgrad.system.sockets import bind, http_server

pytest.importorskip("tinker")
pytest.importorskip("google.protobuf")
FILES = sorted((ROOT / "examples" / "tinker").glob("*.py"))


@contextmanager
def training_server(runs):
    """The address of a server of `tiny-chat` that trains. runs: the folder of its runs."""
    from postgrad.serving.tinker.routes import add_tinker
    opened = open_served("tiny-chat", name=None, rows=16, context=256, queue=64, record=None, every=2.0,
                         device="cpu", tinker_runs=str(runs))
    app, sock = create_app(opened.served), bind("127.0.0.1", 0)
    add_tinker(app, opened.tinker)
    server = http_server(app)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_loop_runs_and_leaves_a_run(path, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("TINKER_API_KEY", "tml-test")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    with training_server(tmp_path) as address:
        monkeypatch.setattr(sys, "argv", [str(path), address, "2"])
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

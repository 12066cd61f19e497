"""Every notebook in examples/notebooks runs from its first cell to its last, in a folder of its own."""

import json

import pytest
from paths import ROOT

NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def cells(path, kind):
    return ["".join(cell["source"]) for cell in json.loads(path.read_text())["cells"]
            if cell["cell_type"] == kind]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    space = {"__name__": path.stem}
    for number, code in enumerate(cells(path, "code")):
        exec(compile(code, f"{path.name}, cell {number}", "exec"), space)
    run = space["run"]
    assert run.state()["state"] == "done" and run.metrics()


def test_a_notebook_is_kept_without_outputs():
    assert len(NOTEBOOKS) == 3
    for path in NOTEBOOKS:
        book = json.loads(path.read_text())
        assert (book["nbformat"], book["nbformat_minor"]) == (4, 5)
        assert len({cell["id"] for cell in book["cells"]}) == len(book["cells"])
        assert all(cell["outputs"] == [] and cell["execution_count"] is None
                   for cell in book["cells"] if cell["cell_type"] == "code")
        assert cells(path, "markdown")[0].startswith("# ")

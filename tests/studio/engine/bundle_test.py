"""The files that a page's Python is given, on the small torch in a process of their own: cells and exercises
come to what they come to on torch."""

import json
import subprocess
import sys
from math import isclose

import pytest

from postgrad.studio.cells.catalogue import CELLS
from postgrad.studio.cells.jobs import run_job
from postgrad.studio.cells.runner import cell_job
from postgrad.studio.engine.bundle import bundle, bundled_files
from postgrad.studio.exercises import EXERCISES

SLOW = ("recover", "sharpen", "simplified")  # seconds each on the small torch
PROGRAM = """
import json, sys
sys.path.insert(0, sys.argv[1])
from postgrad.studio.engine.run import import_all, run_in_page, wake
import_all(sys.argv[1])
wake()
print(json.dumps([json.loads(run_in_page(json.dumps(job))) for job in json.load(sys.stdin)]))
"""


def on_the_small_torch(folder, jobs):
    for name, text in bundled_files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    done = subprocess.run([sys.executable, "-I", "-c", PROGRAM, str(folder)], input=json.dumps(jobs),
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def same(ours, theirs):
    if isinstance(theirs, float):
        return isclose(ours, theirs, rel_tol=1e-6, abs_tol=1e-6)
    if isinstance(theirs, dict):
        return ours.keys() == theirs.keys() and all(same(ours[k], theirs[k]) for k in theirs)
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    return ours == theirs


def held_against_torch(folder, jobs, capsys):
    for job, found in zip(jobs, on_the_small_torch(folder, jobs), strict=True):
        rows = []
        run_job(job, rows.append)
        theirs = json.loads(json.dumps(rows))
        assert same(found["rows"], theirs), (job, found["rows"], theirs)
        assert found["output"] == capsys.readouterr().out


def broken(source):
    """The cell with every minus of its code turned into a plus."""
    return source.replace(" - ", " + ")


def jobs_of(cells):
    return [cell_job(cell, text) for cell in cells for text in (cell.source, broken(cell.source))]


def test_cells_as_they_are_and_broken(tmp_path, capsys):
    held_against_torch(tmp_path, jobs_of([c for c in CELLS.values() if c.name not in SLOW]), capsys)


@pytest.mark.long
def test_cells_that_take_seconds(tmp_path, capsys):
    held_against_torch(tmp_path, jobs_of([CELLS[name] for name in SLOW]), capsys)


def test_answers_right_and_wrong(tmp_path, capsys):
    """Of every exercise the solution, its first and last mistake, and the starter."""
    texts = [(name, text) for name, e in EXERCISES.items()
             for text in (e.solution, e.mistakes[0].applied(e.solution), e.mistakes[-1].applied(e.solution))]
    held_against_torch(tmp_path, [{"exercise": name, "source": text} for name, text in texts], capsys)


@pytest.mark.parametrize(("source", "says"), [
    ("def f(:", "SyntaxError"), ("import numpy", "this page has no numpy"), ("x = 1", "bradley_terry"),
    ("print('a' * 70000)", "printed more than 64 kB"),
    ("import torch\ntorch.fft", "small torch has no torch.fft"),
    ("raise SystemExit(3)", "sys.exit")])
def test_what_goes_wrong_is_said(tmp_path, source, says):
    (found,) = on_the_small_torch(tmp_path, [cell_job(CELLS["bradley-terry"], source)])
    assert says in found["rows"][-1]["fault"]


def test_it_is_small_and_the_same_each_time():
    assert bundle() == bundle() and len(bundle()) < 300_000
    assert not [name for name in bundled_files() if name.endswith("_test.py")]

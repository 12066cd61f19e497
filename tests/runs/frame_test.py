"""The figures of a run as a table: by hand, from Python and as CSV."""

import csv
import io
import math

import numpy as np
from tracker_small import advance, make_run

import postgrad as pg
from postgrad.cli import main
from postgrad.runs.frame import as_columns, csv_of, merge_steps, row_figures


def test_by_hand():
    row = {"step": 2, "loss": "nan", "n": 3, "pass@1_interval": [0.1, 0.3], "answers": [], "note": "12"}
    figures = row_figures(row, "eval/")
    assert math.isnan(figures.pop("eval/loss"))
    assert figures == {"eval/n": 3.0, "eval/pass@1_low": 0.1, "eval/pass@1_high": 0.3}
    steps = merge_steps([{"step": 1, "a": 1}, {"step": 2, "a": 2}],
                        [{"step": 0, "b": 5}, {"step": 2, "b": 6}])
    assert steps == {0: {"eval/b": 5.0}, 1: {"a": 1.0}, 2: {"a": 2.0, "eval/b": 6.0}}
    columns = as_columns(steps)
    assert columns["step"] == [0, 1, 2] and columns["a"][1:] == [1.0, 2.0] and math.isnan(columns["a"][0])
    assert csv_of([{"a": 1, "b": "x,y"}, {"c": 2}]) == 'a,b,c\n1,"x,y",\n,,2\n'


def test_a_run_as_columns_and_as_csv(tmp_path, capsys):
    run = advance(make_run(tmp_path / "a", 4), 4)
    run.status("done")
    columns = pg.Run.open(run.folder).frame()
    assert {len(column) for column in columns.values()} == {5}
    assert columns["loss"][1:] == run.curve("loss")[1] and columns["eval/pass@1"][3] == 0.03
    assert np.array(columns["reward"]).shape == (5,)
    assert main(["runs", str(run.folder), "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["step"] for row in rows] == ["0", "1", "2", "3", "4"]
    assert [float(row["loss"]) for row in rows[1:]] == columns["loss"][1:] and rows[0]["loss"] == ""
    assert rows[3]["odd"] == "inf"
    assert main(["runs", str(tmp_path), "--csv"]) == 0
    (listed,) = csv.DictReader(io.StringIO(capsys.readouterr().out))
    assert (listed["name"], listed["state"], listed["step"]) == ("a", "done", "4")
    assert main(["runs", str(tmp_path), "--csv", "--json"]) == 2
    assert "two forms of the same" in capsys.readouterr().err

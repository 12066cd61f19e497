"""The proof of the rows is put together from parts: what is absent is said, and does not hold."""

import json

import bakeoff
import pytest
import results
import rows
from against import found

from postgrad.methods import METHODS

CASES = """<testsuites><testsuite>
<testcase classname="tests.a_test" name="test_one[x]"/><testcase classname="tests.a_test" name="test_one[y]"/>
<testcase classname="tests.a_test" name="test_two"><failure/></testcase>
<testcase classname="tests.b_test" name="test_three"><skipped/></testcase></testsuite></testsuites>"""


def test_tests_are_counted_by_file_and_function(tmp_path):
    path = tmp_path / "tests.xml"
    path.write_text(CASES)
    assert results.tested(path, ()) == {
        "tests/a_test.py": (3, 1), "tests/a_test.py::test_one": (2, 0), "tests/a_test.py::test_two": (1, 1),
        "tests/b_test.py": (0, 0), "tests/b_test.py::test_three": (0, 0)}


def test_the_tests_that_hold_bars_are_there():
    for name in rows.names():
        file, _, test = name.partition("::")
        assert f"\ndef {test}" in (rows.HERE / file).read_text(), name


def test_what_is_absent_does_not_hold(tmp_path):
    bars, left = rows.elsewhere(tmp_path)
    assert len(bars) == 3 and not any(b["holds"] for b in bars + rows.by_hand(tmp_path))
    assert {b["measured"] for b in bars + rows.by_hand(tmp_path)} == {"not measured"}
    assert all(not b["holds"] for b in rows.by_row({}) + rows.by_test({}, rows.TESTED) + rows.by_library({}))
    skipped = dict.fromkeys([h.file for h in found()] + [f"{h.file}::{h.test}" for h in found()], (0, 0))
    assert not any(b["holds"] for b in rows.by_library(skipped))


def test_what_is_there_is_taken(tmp_path):
    good = results.bar("a", "b", "c", True, "d")
    (tmp_path / "distil.json").write_text(json.dumps({"bars": [good], "rows": [{"row": "opd"}]}))
    (tmp_path / "by_hand.json").write_text(json.dumps({"make test, minutes": 13.5}))
    bars, left = rows.elsewhere(tmp_path)
    assert good in bars and left["distil"]["rows"] == [{"row": "opd"}]
    assert rows.by_hand(tmp_path)[0]["measured"] == "13.5 minutes" and rows.by_hand(tmp_path)[0]["holds"]
    (tmp_path / "by_hand.json").write_text(json.dumps({"make test, minutes": 15.5}))
    assert not rows.by_hand(tmp_path)[0]["holds"]


def test_one_test_less_than_rows_does_not_hold():
    counts = {test: (len(of), 0) for test, of in rows.ONE_A_ROW.values()}
    assert all(b["holds"] for b in rows.by_row(counts))
    counts[rows.LEARNS] = len(METHODS) - 1, 0
    assert [b["holds"] for b in rows.by_row(counts)].count(False) == 1


def run_of(name, rate, seed, passed):
    return {"row": name, "rate": rate, "seed": seed, "pass@1": passed, "interval": [0.3, 0.5], "first": 0.2,
            "updates": 160, "pass@8": 0.9, "length": 50.0, "clipped": 0.01, "ratio_max": 2.0 + seed,
            "entropy": 0.1, "samples": 5120}


def test_the_bake_off_takes_the_best_rate_and_has_a_line_a_row():
    tried = [run_of("a", rate, seed, passed) for seed in (10, 11)
             for rate, passed in ((1e-4, 0.5), (3e-4, 0.7), (1e-3, 0.7))]
    assert bakeoff.best_rate(tried, "a") == "0.0003"  # the lower of two equals
    found = [run_of(name, 1e-4, seed, 0.4 + 0.1 * seed * (name == "b"))
             for name in "ab" for seed in bakeoff.REPORTED]
    best, last = bakeoff.table(found)
    assert (best["row"], last["row"]) == ("b", "a") and best["mean pass@1"] == pytest.approx(0.5)
    assert best["seed 2"] == "0.600 (0.300 to 0.500)" and best["largest ratio"] == 4.0
    (bar,) = bakeoff.bars(found)
    assert bar["holds"] and "2 rows x 3 seeds, 5,120 samples each, from 20.0%" in bar["measured"]
    assert not bakeoff.bars(found[:-1])[0]["holds"]
